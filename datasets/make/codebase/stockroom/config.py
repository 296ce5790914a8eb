"""Settings are read from config/*.toml and addressed by a dotted path.

``setting("store.reservation.hold_minutes")`` is the key ``hold_minutes`` in the table
``reservation`` of config/store.toml. Files are read once in a run.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from stockroom.errors import StockroomError

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "config"
DATA = ROOT / "data"


@cache
def load(name: str) -> dict[str, Any]:
    """The whole of config/NAME.toml."""
    path = CONFIG / f"{name}.toml"
    if not path.is_file():
        raise StockroomError("E_CFG_001", file=f"config/{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def setting(path: str) -> Any:
    """One value by its dotted path; the first part names the file."""
    name, *keys = path.split(".")
    value: Any = load(name)
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise StockroomError("E_CFG_001", key=path)
        value = value[key]
    return value


def optional(path: str, default: Any) -> Any:
    """One value by its dotted path, or the default where the key is not set."""
    try:
        return setting(path)
    except StockroomError:
        return default


def data_rows(name: str) -> list[dict[str, str]]:
    """The rows of data/NAME as dictionaries; blank lines and lines with # are skipped."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    header = lines[0].split(",")
    return [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
