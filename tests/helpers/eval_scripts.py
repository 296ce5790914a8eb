"""Import scripts of the folder ``evals``, which is no package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "datasets" / "coding-agent"


def import_eval_script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a script, with the scripts that it imports itself."""
    monkeypatch.syspath_prepend(ROOT / "evals")
    return import_module(name)


def bundled_folder() -> str:
    """Return the folder of the bundled recordings of an agent; skip the test if it is not there."""
    if not any(BUNDLED.glob("*.jsonl")):
        pytest.skip("the bundled recordings are not there")
    return str(BUNDLED)
