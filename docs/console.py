"""Run the commands that pages show, and write their output below them: ``python docs/console.py``.

A console block with output is run, and one without output is not. The commands of a page share a folder,
which contains the files that the page shows in blocks with a title. Standard error is left out. With
``--check``, nothing is written, and the exit code is 1 if an output has changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r'^```\w+ title="([\w./-]+)"\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (?:.*\\\n)*.*\n", flags=re.MULTILINE)
WIDTH = 88
"characters of a line, so that a block need not be scrolled sideways"


def update(text: str, folder: Path) -> str:
    """Return the text of a page with the output that its commands have today."""

    def rerun(block: re.Match[str]) -> str:
        commands = COMMAND.findall(block[1])
        if not COMMAND.sub("", block[1]).strip():
            return block[0]
        return "```console\n" + "".join(c + run(c[2:], folder) for c in commands) + "```"

    for name, content in FILE.findall(text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return BLOCK.sub(rerun, text)


def run(command: str, folder: Path) -> str:
    """Return what a command prints to standard output, without spaces at the ends of lines."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    fixed = {"COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1", "CTXLAB_CACHE": ""}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, **fixed, "PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode or (re.search(r"\| (head|tail) ", command) and not done.stdout):
        raise SystemExit(f"{command.strip()} fails with {done.returncode}:\n{done.stderr}")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "\n".join([*lines, ""]).lstrip("\n")


def changed_pages() -> Iterator[tuple[Path, str]]:
    """Yield the pages whose output has changed, with their new text."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            now = update(text, Path(folder))
        if now != text:
            yield page, now


if __name__ == "__main__":
    changed = list(changed_pages())
    for page, now in changed:
        print(f"docs/{page.name}: the output of a command has changed")
        if "--check" not in sys.argv:
            page.write_text(now, encoding="utf-8")
    sys.exit(bool(changed) and "--check" in sys.argv)
