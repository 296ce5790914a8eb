"""Tools for an agent that works in a folder: list, search, read, write and edit files, run commands.

The file tools access only files inside the folder (``ctxlab.agent.tools.safe_paths``).
``run_command`` starts a shell in the folder, and the shell can access everything that the user can
access. The environment of the shell contains no keys and tokens
(``ctxlab.agent.tools.environment``). To restrict commands further, run the agent in a container, or
pass ``writable=False``, which leaves out ``run_command``, ``write_file`` and ``edit_file``.
"""

from __future__ import annotations

import errno
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ctxlab._utils.humanize import pluralize
from ctxlab.agent.tools.changes import FileChange, plan_edit, plan_write
from ctxlab.agent.tools.file_walk import FileWalker, matches_glob
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.result import PAGE_CHARS, ToolResult, failed_result
from ctxlab.agent.tools.safe_paths import DirectoryEntry, SafeRoot
from ctxlab.agent.tools.text_files import UnreadableText, make_line_finder, read_lines
from ctxlab.agent.tools.tool import Tool, tool_from_function

_MAX_ENTRIES, _MAX_MATCHES = 500, 200
"maximum numbers of listed files and search matches in one result"
_NOTE_CHARS = 300
"characters of a page that are kept free for notes"
_MAX_OUTCOME_FILES = 10
"maximum number of files that a stub names"
_MARKS = {"file": "", "folder": "/", "link": " (link)", "other": " (not a regular file)"}
_SUMMARY_LINES, _SUMMARY_CHARS = 3, 300
"lines and characters of the output of a command in a stub"
_SHOWN_SECONDS = 1.0
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
    root: str | Path,
    processes: ProcessManager,
    *,
    timeout: float = 60.0,
    writable: bool = True,
    page_chars: int = PAGE_CHARS,
) -> tuple[Tool, ...]:
    r"""Build the tools of an agent that works in a folder.

    The tools are ``list_files``, ``search_files``, ``read_file``, ``write_file``, ``edit_file`` and
    ``run_command``.

    The first line of a result says in brackets how the call ended and how to see the rest, and results
    fit a page, so that a strategy that cuts long results cuts only outputs of commands. Tools return
    errors as failed results. The error type is ``permission_denied`` if a path leads out of the folder
    or is not accessible, ``invalid_args`` if a path or an edit is invalid, ``command_failed`` if a
    command ends with another exit code than 0, and ``timeout`` if it takes too long. The results of
    failed commands contain the output.

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
        If False, ``write_file``, ``edit_file`` and ``run_command`` are left out.
    page_chars : int, optional
        Maximum number of characters that ``list_files``, ``search_files`` and ``read_file`` return.
        Use the length above which the agent's strategy cuts results.

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
    ...     call_tool(tools["edit_file"], '{"path": "a.txt", "old": "two", "new": "2"}').data
    ...     call_tool(tools["run_command"], '{"command": "cat a.txt"}').data
    ...     call_tool(tools["read_file"], '{"path": "../a.txt"}').error_type
    '[wrote a.txt: 8 bytes, a new file]'
    '[edited a.txt: 1 place, 1 line added, 1 removed]'
    '[exit code 0]\none\n2\n'
    'permission_denied'
    """
    opened = SafeRoot(root)
    room = max(page_chars - _NOTE_CHARS, page_chars // 2)

    @_errors_as_results
    def list_files(folder: str = ".", glob: _Glob = "", depth: _Number = 3) -> ToolResult:
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
            shown, more = _fill_page(names, _MAX_ENTRIES, room)
        notes = walk.omission_notes()
        counted = pluralize(len(shown), "entry", "entries")
        if more:
            counted = f"the first {counted}; narrow the list with folder, glob or depth"
        return _page([counted, *notes], "\n".join(shown), counted, len(shown), shown)

    @_errors_as_results
    def search_files(
        text: _Words,
        folder: str = ".",
        glob: _Glob = "",
        regex: bool = False,
        ignore_case: bool = False,
    ) -> ToolResult:
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
        files: dict[str, None] = {}

        def matches(below: Iterable[tuple[str, int, DirectoryEntry]]) -> Iterator[str]:
            for path, where, entry in below:
                if entry.kind != "file" or (glob and not matches_glob(path, glob)):
                    continue
                try:
                    for place, line in find(where, entry.name):
                        files[_printable_path(path)] = None
                        yield f"{_printable_path(path)}:{place}: {line}"
                except TimeoutError:
                    raise
                except UnreadableText as error:
                    left_out[str(error)] += 1
                except OSError:
                    left_out["could not be read"] += 1

        with opened.open_folder(folder) as number, closing(walk.walk(number)) as below:
            shown, more = _fill_page(matches(below), _MAX_MATCHES, room)
        notes = [f"{pluralize(n, 'file')} left out: {why}" for why, n in left_out.items()]
        counted = f"{pluralize(len(shown), 'match', 'matches')} in {pluralize(len(files), 'file')}"
        if more:
            counted = f"the first {counted}; narrow the search with folder, glob or text"
        notes = [counted, *notes, *walk.omission_notes()]
        return _page(notes, "\n".join(shown), counted, len(shown), list(files))

    @_errors_as_results
    def read_file(
        path: str, start: _Number = 1, end: int | None = None, numbered: bool = False
    ) -> ToolResult:
        """Read a page of a text file of the workspace, or a range of its lines.

        Args:
            path: path from the root of the workspace
            start: number of the first line, from 1
            end: number of the last line; by default as many lines as fit a page
            numbered: start each line with its number
        """
        if end is not None and end < start:
            raise ValueError(f"Expected end to be {start} (the value of start) or more, got {end}")
        with opened.open_file(path) as number:
            lines, note = read_lines(number, start, end, room, 7 if numbered else 0)
        if numbered:
            lines = [f"{start + place:>6}\t{line}" for place, line in enumerate(lines)]
        summary = note or pluralize(len(lines), "line")
        return _page([note] if note else [], "".join(lines), summary, len(lines), [path])

    @_errors_as_results
    def write_file(path: str, content: str) -> ToolResult:
        """Write a whole file of the workspace; replace an existing file and create missing folders.

        Args:
            path: path from the root of the workspace
            content: the whole new content
        """
        blob = content.encode()
        replaced = opened.write_file(path, blob)
        done = f"wrote {path}: {len(blob):,} bytes, {'replaced' if replaced else 'a new file'}"
        return _page([done], "", done, None, [path])

    @_errors_as_results
    def edit_file(path: str, old: str, new: str, everywhere: bool = False) -> ToolResult:
        """Replace a text in a file of the workspace. Prefer this to writing the whole file.

        Args:
            path: path from the root of the workspace
            old: text to replace, exactly as in the file; it must occur once
            new: text that replaces it
            everywhere: replace all occurrences of old
        """
        change = plan_edit(opened, path, old, new, everywhere)
        opened.write_file(path, change.after.encode())
        added, removed = change.line_counts
        places, lines = pluralize(change.replaced, "place"), pluralize(added, "line")
        done = f"edited {path}: {places}, {lines} added, {removed} removed"
        return _page([done], "", done, None, [path])

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
        seconds, begun = min(timeout or longest, longest), time.monotonic()
        done = processes.run(command, cwd=opened.path, timeout=seconds)
        took = time.monotonic() - begun
        code = done.exit_code
        if done.timed_out:
            ended = f"stopped after {seconds:g} s, the time limit"
        else:
            ended = f"exit code {code}" if code is None or code >= 0 else f"ended by signal {-code}"
            ended += f", {took:.1f} s" if took >= _SHOWN_SECONDS else ""
        if done.still_running:
            ended += f"; processes in the background keep running as {done.process_id}"
        page = _page([ended], done.output, _last_lines(ended, done.output))
        failed = done.timed_out or code != 0
        kind = "timeout" if done.timed_out else "command_failed"
        error = {"ok": False, "error": ended, "error_type": kind} if failed else {}
        return page.model_copy(update={"process_id": done.process_id, **error})

    @_errors_as_results
    def preview_write(path: str, content: str) -> FileChange:
        return plan_write(opened, path, content)

    @_errors_as_results
    def preview_edit(path: str, old: str, new: str, everywhere: bool = False) -> FileChange:
        return plan_edit(opened, path, old, new, everywhere)

    longest = timeout
    reading = (list_files, search_files, read_file)
    tools = [tool_from_function(function, read_only=True) for function in reading]
    if writable:
        tools += [
            tool_from_function(write_file, preview=preview_write),
            tool_from_function(edit_file, preview=preview_edit),
            tool_from_function(run_command, command_argument="command"),
        ]
    return tuple(tools)


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


def _fill_page(lines: Iterable[str], most: int, room: int) -> tuple[list[str], bool]:
    """Return as many lines as fit a page, and True if there are more."""
    shown: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if len(shown) == most or (room < 0 and shown):
            return shown, True
        shown.append(line)
    return shown, False


def _page(
    notes: Sequence[str],
    text: str,
    summary: str,
    count: int | None = None,
    files: Sequence[str] = (),
) -> ToolResult:
    """Return a result whose first lines are notes in brackets, with the short form for a stub."""
    head = "".join(f"[{note}]\n" for note in notes)
    outcome: dict[str, Any] = {"summary": summary}
    if count is not None:
        outcome["count"] = count
    if files:
        outcome["files"] = list(files[:_MAX_OUTCOME_FILES])
    return ToolResult(ok=True, data=head + text if text else head.rstrip("\n"), outcome=outcome)


def _last_lines(ended: str, output: str) -> str:
    """Return how a command ended, with the end of its output, where errors usually are."""
    lines = [line for line in output.splitlines() if line.strip()][-_SUMMARY_LINES:]
    return "\n".join([ended, *lines])[:_SUMMARY_CHARS]
