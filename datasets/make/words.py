"""Load the texts of scripted conversations from TOML files in ``words/``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "words"


def load_words(name: str) -> dict[str, Any]:
    """Return the contents of ``words/NAME.toml``."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
