"""Complete what the user types in a chat: slash commands, sessions, and files of the workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

_MAX_FILES = 50  # shown at once
_MAX_SEARCHED_NAMES = 20_000
_SEARCH_SECONDS = 0.3
_IGNORED_FOLDERS = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "target", "venv"}
)


def completes_while_typing(document: Document) -> bool:
    """Return True if completions are offered without pressing Tab.

    Parameters
    ----------
    document : Document
        Text of the message, with the cursor.

    Returns
    -------
    bool
        True for the name of a slash command, and for a word that starts with ``@``.
    """
    text = document.text_before_cursor
    word = _last_word(text)
    return word.startswith("@") or (word == text and text.startswith("/") and "/" not in text[1:])


class ChatCompleter(Completer):
    """Completes the names of slash commands, the ids of sessions after ``/resume``, and paths.

    A word that starts with ``@`` is completed with all files below the workspace whose path contains it.
    With Tab, every other word is completed with the files in its folder.

    Parameters
    ----------
    workspace : Path
        Folder whose files are offered. Hidden files are left out unless their name is typed.
    commands : mapping
        Help line of each slash command, by name.
    """

    def __init__(self, workspace: Path, commands: Mapping[str, str]) -> None:
        self._workspace, self._commands = workspace, commands

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the completions of the word before the cursor.

        Parameters
        ----------
        document : Document
            Text of the message, with the cursor.
        complete_event : CompleteEvent
            Tells whether the user pressed Tab.

        Yields
        ------
        Completion
            Text that replaces the word, with its meaning.
        """
        text = document.text_before_cursor
        command, space, argument = text.partition(" ")
        word = _last_word(text)
        if text.startswith("/") and not space and "/" not in text[1:]:
            for name, meaning in self._commands.items():
                if f"/{name}".startswith(text):
                    yield Completion(f"/{name}", -len(text), display_meta=meaning)
        elif command == "/resume":
            yield from self._complete_session(argument)
        elif word.startswith("@"):
            for path in self._find_files(word[1:]):
                yield Completion(f"@{path}", -len(word), display=path)
        elif word and complete_event.completion_requested:
            for path in self._list_folder(word):
                yield Completion(path, -len(word), display=path)

    def _complete_session(self, start: str) -> Iterator[Completion]:
        from ctxlab.cli.session_lookup import session_titles

        for id, title in session_titles(self._workspace).items():
            if id.startswith(start):
                yield Completion(id, -len(start), display_meta=title)

    def _list_folder(self, word: str) -> list[str]:
        """Return the paths in one folder that start with a word, folders with a slash at the end."""
        head, slash, name = word.rpartition("/")
        folder = Path(os.path.expanduser(f"{head}{slash}")) if head or slash else Path()
        found = []
        try:
            with os.scandir(self._workspace / folder) as entries:
                for entry in entries:
                    if entry.name.startswith(name) and _is_shown(entry.name, name):
                        end = "/" if entry.is_dir() else ""
                        found.append(f"{head}{slash}{entry.name}{end}")
        except (OSError, ValueError):
            return []
        return sorted(filter(str.isprintable, found))[:_MAX_FILES]

    def _find_files(self, part: str) -> list[str]:
        """Return paths below the workspace that contain a text: first where a name starts with it."""
        if part.endswith("/") or part.startswith((".", "/", "~")):
            return self._list_folder(part)
        wanted, found = part.lower(), []
        for path in self._walk():
            place = path.lower().find(wanted)
            if place >= 0 and path.isprintable():
                starts = place == 0 or path[place - 1] == "/"
                found.append((not starts, path.count("/"), path))
        return [path for *_, path in sorted(found)[:_MAX_FILES]]

    def _walk(self) -> Iterator[str]:
        """Yield the paths below the workspace, within a limit of names and time."""
        end, count = time.monotonic() + _SEARCH_SECONDS, 0
        for folder, folders, files in os.walk(self._workspace):
            folders[:] = sorted(each for each in folders if _is_shown(each, ""))
            inside = os.path.relpath(folder, self._workspace).replace(os.sep, "/")
            start = "" if inside == "." else f"{inside}/"
            yield from (f"{start}{name}/" for name in folders)
            yield from (f"{start}{name}" for name in files if not name.startswith("."))
            count += len(folders) + len(files)
            if count > _MAX_SEARCHED_NAMES or time.monotonic() > end:
                return


def _last_word(text: str) -> str:
    return "" if not text or text[-1].isspace() else text.split()[-1]


def _is_shown(name: str, typed: str) -> bool:
    """Return True unless a name is hidden or ignored, and the user has not begun to type it."""
    if name.startswith("."):
        return typed.startswith(".")
    return name not in _IGNORED_FOLDERS or bool(typed)
