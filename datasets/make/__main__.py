"""``python -m datasets.make [--check] [OUT_DIR]`` writes the bundled recordings, or compares them.

Run from the repository root. With ``--check`` nothing is written: the recordings are built in a
temporary folder and compared byte for byte with OUT_DIR (default: ``datasets``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ctxlab.formats import write
from datasets.make import coding_agent, long_chat, support_desk

_MAKERS = (coding_agent, support_desk, long_chat)


def build(out: Path) -> list[Path]:
    """Write every recording below ``out``; returns their paths relative to it."""
    written = []
    for maker in _MAKERS:
        (out / maker.NAME).mkdir(parents=True, exist_ok=True)
        for file, recording in maker.recordings():
            written.append(Path(maker.NAME) / file)
            write([recording], out / written[-1], force=True)
    return written


def difference(made: Path, kept: Path) -> str | None:
    """One sentence on the first file that differs; None where all are the same."""
    for maker in _MAKERS:
        names = {p.name for folder in (made, kept) for p in (folder / maker.NAME).glob("*.jsonl")}
        for name in sorted(names):
            file = Path(maker.NAME) / name
            if not (kept / file).is_file():
                return f"{file} is not there; run python -m datasets.make."
            if not (made / file).is_file():
                return f"{file} is made by nothing; delete it."
            if (made / file).read_bytes() != (kept / file).read_bytes():
                return f"{file} differs from what the code makes; run python -m datasets.make."
    return None


def main(arguments: list[str] | None = None) -> int:
    """Build or check; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m datasets.make", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("datasets"), metavar="OUT_DIR")
    parser.add_argument("--check", action="store_true", help="compare only")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        print(f"{len(build(chosen.out))} recordings written to {chosen.out}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        sentence = difference(Path(folder), chosen.out)
    print(sentence or "the recordings are what the code makes")
    return 1 if sentence else 0


if __name__ == "__main__":
    sys.exit(main())
