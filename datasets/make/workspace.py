"""Tools of the coding agent, which run in a copy of the code base with reproducible results.

Search results and file lists are sorted, test output contains no times, and child processes run with
a fixed hash seed. Errors are returned to the agent as text, as in a real harness.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxlab._utils.jsonio import dump_json

CODEBASE = Path(__file__).parent / "codebase"
_MOST_HITS = 80
_CONTEXT = 3


def _tool(
    name: str, description: str, required: str, **properties: tuple[str, str]
) -> dict[str, Any]:
    fields = {key: {"type": kind, "description": text} for key, (kind, text) in properties.items()}
    parameters = {"type": "object", "properties": fields, "required": required.split()}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


TOOLS: tuple[dict[str, Any], ...] = (
    _tool(
        "list_files",
        "List the files below a folder with their number of lines.",
        "path",
        path=("string", "Folder relative to the repository root; '.' for all of it."),
    ),
    _tool(
        "search",
        "Search file contents line by line. Returns path:line: text, sorted by path.",
        "pattern",
        pattern=("string", "Text to look for; case matters."),
        path=("string", "File or folder to search in. Default: the whole repository."),
        regex=("boolean", "Treat the pattern as a regular expression. Default: false."),
    ),
    _tool(
        "read_file",
        "Read a file with line numbers, all of it or a range of lines.",
        "path",
        path=("string", "File relative to the repository root."),
        start=("integer", "First line, counted from 1."),
        end=("integer", "Last line, inclusive."),
    ),
    _tool(
        "edit_file",
        "Replace a piece of text in a file. The old text must occur exactly once.",
        "path old new",
        path=("string", "File relative to the repository root."),
        old=("string", "Text to replace, exactly as it stands in the file, without line numbers."),
        new=("string", "Text to put in its place."),
    ),
    _tool(
        "run_tests",
        "Run the test suite, one module, or one test.",
        "",
        target=("string", "A module such as tests/test_x.py, or tests/test_x.py::test_name."),
        verbose=("boolean", "Name each test. Default: false."),
    ),
    _tool(
        "run_cli",
        "Run the program: python -m stockroom COMMAND.",
        "command",
        command=("string", "The words after python -m stockroom."),
    ),
)


class Workspace:
    """A copy of the code base, and the tools that an agent uses to read and change it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(CODEBASE, root, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))

    def execute(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool and return its result as text."""
        result: str = getattr(self, f"_{name}")(**arguments)
        return result

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return (self.root / path).read_text(encoding="utf-8")

    def put(self, path: str, text: str) -> None:
        """Write a file with ``\\n`` as line ending on every system."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")

    def _files(self, path: str) -> Iterator[str]:
        base = self.root / path
        found = [base] if base.is_file() else base.rglob("*")
        names = (f.relative_to(self.root).as_posix() for f in found if f.is_file())
        yield from sorted(n for n in names if "__pycache__" not in n)

    def _list_files(self, path: str) -> str:
        if not (self.root / path).is_dir():
            return dump_json({"error": "not_a_folder", "path": path})
        rows = [f"{len(self.text(n).splitlines()):6d}  {n}" for n in self._files(path)]
        return "\n".join([*rows, f"{len(rows)} files"])

    def _search(self, pattern: str, path: str = ".", regex: bool = False) -> str:
        if not (self.root / path).exists():
            return dump_json({"error": "no_such_path", "path": path})
        wanted = re.compile(pattern if regex else re.escape(pattern))
        hits = [
            f"{name}:{number}: {line.strip()}"
            for name in self._files(path)
            for number, line in enumerate(self.text(name).splitlines(), 1)
            if wanted.search(line)
        ]
        if not hits:
            return f"no match for {pattern!r} in {path}"
        files = len({hit.split(":")[0] for hit in hits})
        more = [f"... {len(hits) - _MOST_HITS} more"] if len(hits) > _MOST_HITS else []
        head = f"{_plural(len(hits), 'match', 'matches')} in {_plural(files, 'file', 'files')}"
        return "\n".join([head, *hits[:_MOST_HITS], *more])

    def _read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        if not (self.root / path).is_file():
            near = difflib.get_close_matches(path, list(self._files(".")), n=3, cutoff=0.5)
            return dump_json({"error": "file_not_found", "path": path, "similar": near})
        lines = self.text(path).splitlines()
        last = min(end or len(lines), len(lines))
        if not 1 <= start <= last:
            return f"error: lines {start}-{end} are outside of {path}, which has {len(lines)} lines"
        rows = [f"{n:5d}  {line}".rstrip() for n, line in enumerate(lines[start - 1 : last], start)]
        return "\n".join([f"{path} (lines {start}-{last} of {len(lines)})", *rows])

    def _edit_file(self, path: str, old: str, new: str) -> str:
        if not (self.root / path).is_file():
            return dump_json({"error": "file_not_found", "path": path})
        text = self.text(path)
        if text.count(old) != 1:
            lines = text.splitlines()
            near = difflib.get_close_matches(old.strip().splitlines()[0], lines, n=1, cutoff=0.3)
            hint = f"line {lines.index(near[0]) + 1}: {near[0].strip()}" if near else None
            error = "text_not_found" if old not in text else "text_not_unique"
            return dump_json({"error": error, "path": path, "closest": hint})
        changed = text.replace(old, new)
        self.put(path, changed)
        first = text[: text.index(old)].count("\n") + 1
        lines = changed.splitlines()
        last = first + new.count("\n")
        shown = range(max(1, first - _CONTEXT), min(len(lines), last + _CONTEXT) + 1)
        rows = [
            f"{n:5d}{' >' if first <= n <= last else '  '}{lines[n - 1]}".rstrip() for n in shown
        ]
        return "\n".join([f"edited {path}, lines {first}-{last}", *rows])

    def _run_tests(self, target: str = "", verbose: bool = False) -> str:
        words = [word for word in (target, "-v" if verbose else "") if word]
        return self._python("runner.py", *words)

    def _run_cli(self, command: str) -> str:
        return self._python("-m", "stockroom", *shlex.split(command))

    def _python(self, *words: str) -> str:
        kept = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT") if key in os.environ}
        done = subprocess.run(
            [sys.executable, "-S", "-B", "-X", "utf8", *words],
            cwd=self.root,
            env={**kept, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return f"{done.stdout.rstrip()}\n[exit status {done.returncode}]"
