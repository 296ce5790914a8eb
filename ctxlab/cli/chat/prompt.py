"""Read the user's messages in a chat from a terminal, with editing, completion and a history.

While an answer is printed, ``LineReader.hold_input`` keeps what the user types: it is not shown in the
answer, and appears at the next prompt. Ctrl+D is dropped meanwhile, so that it does not end the chat
when the answer ends. A question about a tool call discards what was typed before it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab.cli.chat.terminal import moves_cursor

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

_CTRL_D = "\x04"
_CONTINUED = "… "
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class LineCleared(Exception):
    """Raised if the user presses Ctrl+C to discard a line that is not empty."""


class LineReader:
    """Read the messages that the user enters in a chat.

    Enter sends a message. Alt+Enter, or a backslash at the end, starts a new line; pasted text keeps its
    lines. The arrow keys recall earlier messages, and Ctrl+R searches them. If the terminal cannot move
    the cursor, lines are read without editing.

    Parameters
    ----------
    history_path : Path, optional
        File that stores earlier messages. It is created if its folder exists, and only its owner can
        read it. None stores no messages.
    """

    def __init__(self, history_path: Path | None = None) -> None:
        self.interactive = sys.stdin.isatty()
        self.make_completer: Callable[[], Completer] | None = None
        "function that creates the completer of messages; None completes nothing"
        self.on_first_prompt: Callable[[], None] | None = None
        "function that is called once, when the first prompt is on the screen"
        self._history_path = history_path
        self._output = next(filter(moves_cursor, (sys.stdout, sys.stderr)), None)
        self._editing = self._output is not None and moves_cursor(sys.stdin)
        self._session: PromptSession[str] | None = None
        self._devices: dict[str, Any] = {}

    def read_line(self, prompt: str = "> ") -> str:
        """Read the next message.

        Parameters
        ----------
        prompt : str
            Prompt to show.

        Returns
        -------
        str
            The message, which may have several lines.

        Raises
        ------
        EOFError
            If there are no more lines, or if the user pressed Ctrl+D and the message was empty.
        LineCleared
            If the user pressed Ctrl+C and the message was not empty.
        KeyboardInterrupt
            If the user pressed Ctrl+C and the message was empty.
        """
        if not self._editing:
            return self._read_plain_lines(prompt)
        if self._session is None:
            self._session = self._make_session()
        return self._session.prompt(prompt, pre_run=self._call_when_drawn)

    def save_history(self) -> None:
        """Append messages to the history file that were sent before its folder existed."""
        if self._session is not None:
            history: Any = self._session.history
            history.save()

    def ask(self, question: str) -> str:
        """Ask the user a question without adding the answer to the history.

        Parameters
        ----------
        question : str
            Text to show in place of the prompt.

        Returns
        -------
        str
            Line that the user entered.

        Raises
        ------
        EOFError
            If the user pressed Ctrl+D.
        KeyboardInterrupt
            If the user pressed Ctrl+C.
        """
        if not self._editing:
            try:
                return self._input(question)
            except KeyboardInterrupt:
                print(file=sys.stderr)
                raise
        from prompt_toolkit import PromptSession

        session: PromptSession[str] = PromptSession(**self._open_devices())
        bindings = _make_bindings(cleared=KeyboardInterrupt)
        return session.prompt(question, key_bindings=bindings, pre_run=self._call_when_drawn)

    def discard_typed(self) -> None:
        """Discard what the user has typed, so that it does not answer a question that comes now."""
        if self._editing:
            from prompt_toolkit.input.typeahead import clear_typeahead

            clear_typeahead(self._open_devices()["input"])
        with suppress(ImportError, OSError, ValueError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    @contextmanager
    def hold_input(self) -> Iterator[None]:
        """Keep what the user types during an answer for the next prompt, and ignore Ctrl+D.

        Ctrl+C still interrupts the answer, and discards what was typed.
        """
        if os.name == "nt":
            yield
            return
        import termios

        try:
            file = sys.stdin.fileno()
            before = termios.tcgetattr(file)
        except (OSError, ValueError, termios.error):  # no terminal
            yield
            return
        during = termios.tcgetattr(file)
        if self._editing:
            # Keys are read at the next prompt. Echoed, they would be printed into the answer.
            during[3] &= ~(termios.ICANON | termios.ECHO)
            during[0] &= ~termios.ICRNL
        else:
            during[6][termios.VEOF] = os.fpathconf(file, "PC_VDISABLE").to_bytes(1)
        termios.tcsetattr(file, termios.TCSADRAIN, during)
        self._put(_PASTE_ON)
        try:
            yield
        finally:
            self._put(_PASTE_OFF)
            if self._editing:
                self._take_typed_ahead(file)
            termios.tcsetattr(file, termios.TCSADRAIN, before)

    def _take_typed_ahead(self, file: int) -> None:
        """Move the keys that were typed during an answer to the input of the next prompt."""
        import select

        from prompt_toolkit.input.typeahead import store_typeahead
        from prompt_toolkit.input.vt100_parser import Vt100Parser
        from prompt_toolkit.key_binding.key_processor import KeyPress

        blob = b""
        while select.select([file], [], [], 0)[0] and (part := os.read(file, 65_536)):
            blob += part
        if not blob:
            return
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(blob.decode(errors="replace").replace(_CTRL_D, ""))
        parser.flush()
        store_typeahead(self._open_devices()["input"], keys)

    def _make_session(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition

        from ctxlab.cli.chat.completion import completes_while_typing
        from ctxlab.cli.chat.input_history import InputHistory

        session: PromptSession[str]
        session = PromptSession(
            completer=None if self.make_completer is None else self.make_completer(),
            history=InputHistory(self._history_path),
            multiline=True,
            prompt_continuation=_CONTINUED,
            key_bindings=_make_bindings(cleared=LineCleared),
            complete_while_typing=Condition(
                lambda: completes_while_typing(session.default_buffer.document)
            ),
            complete_in_thread=True,
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
            **self._open_devices(),
        )
        return session

    def _open_devices(self) -> dict[str, Any]:
        """Return the input and the output of prompts."""
        if not self._devices:
            from prompt_toolkit.input.defaults import create_input
            from prompt_toolkit.output.defaults import create_output

            self._devices["input"] = create_input(sys.stdin)
            self._devices["output"] = create_output(self._output)
        return self._devices

    def _call_when_drawn(self) -> None:
        """Call ``on_first_prompt`` when the prompt is on the screen."""
        from prompt_toolkit.application import get_app

        if self.on_first_prompt is None:
            return
        call, self.on_first_prompt = self.on_first_prompt, None
        drawn = get_app().after_render

        def once(_: object) -> None:
            drawn.remove_handler(once)
            call()

        drawn.add_handler(once)

    def _read_plain_lines(self, prompt: str) -> str:
        lines: list[str] = []
        try:
            while True:
                line = self._input(_CONTINUED if lines else prompt)
                lines.append(line.removesuffix("\\"))
                if not line.endswith("\\"):
                    return "\n".join(lines)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # end the line on which the terminal printed ^C
            if lines:
                raise LineCleared from None
            raise

    def _input(self, prompt: str) -> str:
        if self.on_first_prompt is not None:
            call, self.on_first_prompt = self.on_first_prompt, None
            call()
        try:
            if sys.stdout.isatty():
                return input(prompt).replace(_CTRL_D, "")
            sys.stderr.write(
                prompt
            )  # standard output is redirected and must not contain the prompt
            sys.stderr.flush()
            return input().replace(_CTRL_D, "")
        except EOFError:
            print(file=sys.stderr)
            raise

    def _put(self, text: str) -> None:
        if self._output is not None and self._editing:
            with suppress(OSError):
                self._output.write(text)
                self._output.flush()


def _make_bindings(cleared: type[BaseException]) -> KeyBindings:
    """Create the key bindings of a prompt.

    Parameters
    ----------
    cleared : type of exception
        Exception to raise if the user presses Ctrl+C and the text is not empty.
    """
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    @bindings.add("enter", eager=True)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        chosen = buffer.complete_state and buffer.complete_state.current_completion
        if chosen and not buffer.text.startswith("/"):
            buffer.complete_state = None  # keep the completion, and go on with the message
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", eager=True)
    @bindings.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        kind = cleared if event.current_buffer.text else KeyboardInterrupt
        event.app.exit(exception=kind, style="class:aborting")

    return bindings
