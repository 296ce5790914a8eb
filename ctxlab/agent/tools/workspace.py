"""Tools for an agent that works in a folder: list, search, read and write files, run commands.

The file tools access only files inside the folder (``ctxlab.agent.tools.safe_paths``).
``run_command`` starts a shell in the folder, and the shell can access everything that the user can
access. The environment of the shell contains no keys and tokens
(``ctxlab.agent.tools.environment``). To restrict commands further, run the agent in a container, or
pass ``writable=False``, which leaves out ``run_command`` and ``write_file``.
"""

from __future__ import annotations

import errno
import functools
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ctxlab.agent.tools.file_walk import FileWalker, matches_glob
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.result import ToolResult, failed_result
from ctxlab.agent.tools.safe_paths import SafeRoot
from ctxlab.agent.tools.text_files import UnreadableText, make_line_finder, read_lines
from ctxlab.agent.tools.tool import Tool, tool_from_function

_MAX_ENTRIES, _MAX_MATCHES, _MAX_LINES = 500, 200, 2000
"maximum numbers of listed files, search matches and file lines in one result"
_MARKS = {"file": "", "folder": "/", "link": " (link)", "other": " (not a regular file)"}
_SEARCH_TIMEOUT = 10.0
"maximum seconds for listing or searching files"
_INVALID_PATH_ERRNOS = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.E2BIG, errno.EINVAL),
}


_Glob = Annotated[str, Field(max_length=500)]
_Number = Annotated[int, Field(ge=1)]
_Words = Annotated[str, Field(min_length=1)]


def workspace_tools(
    root: str | Path, processes: ProcessManager, *, timeout: float = 60.0, writable: bool = True
) -> tuple[Tool, ...]:
    r"""Build the tools of an agent that works in a folder.

    The tools are ``list_files``, ``search_files``, ``read_file``, ``write_file`` and
    ``run_command``.

    Tools return errors as failed results. The error type is ``permission_denied`` if a path leads
    out of the folder or is not accessible, ``invalid_args`` if a path is invalid or does not exist,
    and ``timeout`` if a command takes too long. A command with an exit code other than 0 is not a
    failure, because the agent needs its output, for instance the output of failing tests. The
    result contains the exit code.

    Parameters
    ----------
    root : str or pathlib.Path
        Root folder of the workspace.
    processes : ProcessManager
        Process manager that runs the commands. Its ``keep_env`` contains the names of
        secret environment variables that the commands inherit.
    timeout : float, optional
        Maximum duration of a command in seconds. The model may pass a shorter timeout.
    writable : bool, optional
        If False, ``write_file`` and ``run_command`` are left out.

    Returns
    -------
    tuple of Tool
        Tools in the order given above.

    Examples
    --------
    >>> import tempfile
    >>> from ctxlab.agent.tools.tool import call_tool
    >>> with tempfile.TemporaryDirectory() as folder, ProcessManager() as processes:
    ...     tools = {tool.name: tool for tool in workspace_tools(folder, processes)}
    ...     call_tool(tools["write_file"], '{"path": "a.txt", "content": "one\\ntwo\\n"}').data
    ...     call_tool(tools["run_command"], '{"command": "cat a.txt"}').data
    ...     call_tool(tools["read_file"], '{"path": "../a.txt"}').error_type
    'wrote a.txt: 8 bytes, a new file'
    'one\ntwo\n[exit code 0]'
    'permission_denied'
    """
    opened = SafeRoot(root)

    @_errors_as_results
    def list_files(folder: str = ".", glob: _Glob = "", depth: _Number = 3) -> str:
        """List files and folders of the workspace, sorted by name, without hidden ones.

        Args:
            folder: folder to list, as a path from the root of the workspace
            glob: list only files that match this pattern, such as "*.py" or "src/**/*.md"
            depth: maximum number of folder levels
        """
        walk = FileWalker(depth, time.monotonic() + _SEARCH_TIMEOUT)
        with opened.open_folder(folder) as number, closing(walk.walk(number)) as below:
            names = (
                _printable_path(path) + _MARKS[entry.kind]
                for path, _, entry in below
                if not glob or (entry.kind != "folder" and matches_glob(path, glob))
            )
            shown = list(islice(names, _MAX_ENTRIES + 1))
        notes = walk.omission_notes()
        if len(shown) > _MAX_ENTRIES:
            notes.insert(0, f"only the first {_MAX_ENTRIES}; narrow it with folder, glob or depth")
        return _with_notes(shown[:_MAX_ENTRIES] or ["nothing found"], notes)

    @_errors_as_results
    def search_files(
        text: _Words,
        folder: str = ".",
        glob: _Glob = "",
        regex: bool = False,
        ignore_case: bool = False,
    ) -> str:
        """Search the text files of the workspace; return each matching line as path:line: text.

        Args:
            text: text to find in a line, taken literally unless regex is true
            folder: folder to search, as a path from the root of the workspace
            glob: search only files that match this pattern, such as "*.py" or "src/**/*.md"
            regex: true if text is a regular expression
            ignore_case: ignore the case of letters
        """
        until = time.monotonic() + _SEARCH_TIMEOUT
        find = make_line_finder(text, regex, ignore_case, until)
        walk, left_out = FileWalker(deadline=until), Counter[str]()
        shown: list[str] = []
        with opened.open_folder(folder) as number, closing(walk.walk(number)) as below:
            for path, where, entry in below:
                if entry.kind != "file" or (glob and not matches_glob(path, glob)):
                    continue
                if len(shown) == _MAX_MATCHES:
                    break
                try:
                    found = islice(find(where, entry.name), _MAX_MATCHES - len(shown))
                    shown += [f"{_printable_path(path)}:{place}: {line}" for place, line in found]
                except TimeoutError:
                    raise
                except UnreadableText as error:
                    left_out[str(error)] += 1
                except OSError:
                    left_out["could not be read"] += 1
        notes = [f"{count} files left out: {why}" for why, count in left_out.items()]
        if len(shown) == _MAX_MATCHES:
            notes.insert(0, f"only the first {_MAX_MATCHES}; there may be more")
        return _with_notes(shown or ["nothing found"], notes + walk.omission_notes())

    @_errors_as_results
    def read_file(
        path: str, start: _Number = 1, end: int | None = None, numbered: bool = False
    ) -> str:
        """Read a text file of the workspace, or a range of its lines.

        Args:
            path: path from the root of the workspace
            start: number of the first line, from 1
            end: number of the last line; by default 2,000 lines are read
            numbered: start each line with its number
        """
        if end is not None and end < start:
            raise ValueError(f"Expected end to be {start} (the value of start) or more, got {end}")
        last = start + _MAX_LINES - 1
        stop = min(end or last, last)
        with opened.open_file(path) as number:
            lines, note = read_lines(number, start, stop, end)
        if numbered:
            lines = [f"{start + place:>6}\t{line}" for place, line in enumerate(lines)]
        return _with_notes(["".join(lines)] if lines else [], [note] if note else [])

    @_errors_as_results
    def write_file(path: str, content: str) -> str:
        """Write a whole file of the workspace; replace an existing file and create missing folders.

        Args:
            path: path from the root of the workspace
            content: the whole new content
        """
        blob = content.encode()
        replaced = opened.write_file(path, blob)
        return f"wrote {path}: {len(blob):,} bytes, {'replaced' if replaced else 'a new file'}"

    @_errors_as_results
    def run_command(
        command: _Words, timeout: Annotated[float | None, Field(gt=0)] = None
    ) -> ToolResult:
        """Run a shell command in the root of the workspace and return its output and exit code.

        The command has no input and no terminal. Background processes keep running after it ends.

        Args:
            command: command for /bin/sh
            timeout: maximum seconds; can only shorten the default limit
        """
        seconds = min(timeout or longest, longest)
        done = processes.run(command, cwd=opened.path, timeout=seconds)
        if done.timed_out:
            said = f"The command exceeded {seconds:g} s and was ended. Its output:\n{done.output}"
            return failed_result(said, "timeout", process_id=done.process_id)
        code = done.exit_code
        ended = f"exit code {code}" if code is None or code >= 0 else f"ended by signal {-code}"
        if done.still_running:
            ended += f"; processes in the background keep running as {done.process_id}"
        said = _with_notes([done.output], [ended])
        return ToolResult(ok=True, data=said, process_id=done.process_id)

    longest = timeout
    functions = [list_files, search_files, read_file]
    if writable:
        functions += [write_file, run_command]
    return tuple(map(tool_from_function, functions))


def _errors_as_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a tool function so that it returns exceptions as failed results with an error type."""

    @functools.wraps(function)
    def wrapper(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except TimeoutError as error:
            return failed_result(str(error), "timeout")
        except PermissionError as error:
            return failed_result(_os_error_text(error), "permission_denied")
        except OSError as error:
            kind = "invalid_args" if error.errno in _INVALID_PATH_ERRNOS else "execution_error"
            return failed_result(_os_error_text(error), kind)
        except (ValueError, UnreadableText) as error:
            return failed_result(str(error), "invalid_args")

    return wrapper


def _os_error_text(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    reason = error.strerror[:1].lower() + error.strerror[1:]
    return f"{error.filename}: {reason}" if isinstance(error.filename, str) else reason


def _printable_path(path: str) -> str:
    """Return a path with line breaks and other unprintable characters escaped."""
    return path if path.isprintable() else path.encode("unicode_escape", "replace").decode()


def _with_notes(parts: list[str], notes: list[str]) -> str:
    text = "\n".join(parts)
    if text and notes and not text.endswith("\n"):
        text += "\n"
    return text + "\n".join(f"[{note}]" for note in notes)
