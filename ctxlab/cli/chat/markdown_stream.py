"""Render Markdown on a terminal while it is streamed.

A block, such as a paragraph or an item of a list, is printed once, when it is complete. Until then its
rendering is shown below the printed blocks and replaced with each piece of text. While it is shown,
the cursor is at its first character: terminals keep the cursor at its character when they are resized,
so the unfinished block can be erased without knowing how many lines it takes. Of a long block, only the
end is shown until it is complete, because lines that left the screen cannot be erased. Lines of code are
complete one by one.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import ClassVar, TextIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, ListElement, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.theme import Theme

from ctxlab.cli.render.control_characters import strip_control_characters

_CODE_THEME = "ansi_dark"  # the 16 colours of the terminal, which fit its background
_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.block_quote": "italic",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.link": "none",
        "markdown.link_url": "underline",
        "markdown.hr": "dim",
    }
)
# Erases all that follows the cursor. tmux keeps a copy of a screen that is erased from its first
# character, so the first erasure starts at the second one.
_ERASE = "\r \x1b[J\r\x1b[2K"
_MAX_SHOWN_LINES = 6  # of an unfinished block, and at most one third of the screen
_MAX_HIGHLIGHTED_LINES = 300  # lines of code before a line that are read to highlight it
_SLOW_DRAWING_SECONDS = 0.005
_COMPLETE_AT_ONCE = {"heading_open", "hr"}
_COMPLETE_BEFORE_EMPTY_LINE = {"paragraph_open", "table_open", "blockquote_open"}


class MarkdownStream:
    """Prints Markdown that arrives in pieces.

    Parameters
    ----------
    file : text file
        Terminal to print on.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._console = Console(
            file=io.StringIO(), force_terminal=True, legacy_windows=False, theme=_THEME
        )
        self._colors = COLOR_SYSTEMS.get(self._console.color_system or "")
        # Text that a parser would drop is printed as it is: HTML, and the definitions of links.
        self._parser = MarkdownIt("commonmark", {"html": False})
        self._parser.enable(["table", "strikethrough"]).disable(["reference", "image"])
        self._source = ""  # text of the blocks that are not complete
        self._code: _OpenCode | None = None
        self._list_type = ""  # type and sign of the list that the last printed block belongs to
        self._printed = False
        self._shown = False
        self._drawn_at = self._drawing_seconds = 0.0

    def write(self, text: str) -> None:
        """Print the blocks that a piece of text completes, and show the unfinished block.

        Parameters
        ----------
        text : str
            The next piece of text.
        """
        self._source += strip_control_characters(text)
        if "\n" in text:
            self._print_complete_blocks()
        waited = time.monotonic() - self._drawn_at
        if self._drawing_seconds < _SLOW_DRAWING_SECONDS or waited > 2 * self._drawing_seconds:
            self.show()

    def finish(self) -> None:
        """Print all text that was written. The next piece of text starts a new document."""
        if self._source and not self._source.endswith("\n"):
            self._source += "\n"
        self._print_complete_blocks()
        if not self._code:
            self._print_blocks(self._parse(self._source))
        self.hide()
        self._file.flush()
        self._source, self._code, self._list_type, self._printed = "", None, "", False

    def show(self) -> None:
        """Show the unfinished block below the printed blocks."""
        started = time.monotonic()
        columns, rows = self._size()
        if self._code is not None:
            lines = [self._source[: columns - 1]] if self._source else []
        else:
            tokens = self._parse(self._source)
            lines = self._render(tokens)
            if lines and self._needs_empty_line(tokens):
                lines.insert(0, "")
        lines = lines[-max(1, min(_MAX_SHOWN_LINES, rows // 3)) :]
        if not lines:
            self.hide()
        else:
            text = "\n".join(f"\x1b[2K{line}" for line in lines)
            up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            # Without wrapping, the number of lines is right even if the terminal is resized meanwhile.
            self._put(f"\x1b[?7l\r{text}\x1b[J{up}\r\x1b[?7h")
            self._shown = True
        self._drawn_at = time.monotonic()
        self._drawing_seconds = self._drawn_at - started

    def hide(self) -> None:
        """Erase the unfinished block. The cursor is then at the start of an empty line."""
        if self._shown:
            self._put(_ERASE)
            self._shown = False

    def _print_complete_blocks(self) -> None:
        while "\n" in self._source:
            if self._code is not None:
                if not self._print_code(self._code):
                    return
                continue
            end = self._source.rindex("\n") + 1
            tokens = self._parse(self._source[:end])
            if not tokens:
                return
            blocks = _split_blocks(tokens)
            last = blocks[-1]
            if last[0].type == "fence" and last[0].level == 0:
                self._print_blocks(tokens[: -len(last)])
                self._open_code(last[0])
                continue
            complete = blocks if self._is_complete(last, end) else blocks[:-1]
            if not complete:
                return
            self._print_blocks([token for block in complete for token in block])
            self._drop_source(
                blocks[len(complete)][0] if len(complete) < len(blocks) else None, end
            )

    def _is_complete(self, block: Sequence[Token], end: int) -> bool:
        """Return True if later lines cannot belong to the last block of the text before ``end``."""
        kind, lines = block[0].type, block[0].map
        if kind in _COMPLETE_BEFORE_EMPTY_LINE:
            return lines is not None and lines[1] < self._source.count("\n", 0, end)
        return kind in _COMPLETE_AT_ONCE

    def _drop_source(self, next_block: Token | None, end: int) -> None:
        """Drop the text of printed blocks, which ends where the next block starts."""
        if next_block is None:
            self._source = self._source[end:]
        else:
            assert next_block.map is not None
            self._source = "".join(_lines(self._source)[next_block.map[0] :])

    def _print_blocks(self, tokens: Sequence[Token]) -> None:
        for block in _split_blocks(tokens):
            if block[0].type == "fence":  # not closed, or closed by the end of the text
                lines = self._highlight(block[0].content.rstrip("\n").split("\n"), block[0].info)
            else:
                lines = self._render(block)
            self._print_lines(block, lines)

    def _print_lines(self, block: Sequence[Token], lines: Sequence[str]) -> None:
        if not lines:
            return
        start = "\n" if self._needs_empty_line(block) else ""
        self._put(_ERASE + start + "\n".join(lines) + "\n")
        self._shown, self._printed, self._list_type = False, True, _list_type(block)

    def _needs_empty_line(self, block: Sequence[Token]) -> bool:
        same_list = bool(self._list_type) and _list_type(block) == self._list_type
        return self._printed and not same_list

    def _open_code(self, fence: Token) -> None:
        assert fence.map is not None
        lines = _lines(self._source)
        indent = len(lines[fence.map[0]]) - len(lines[fence.map[0]].lstrip(" "))
        self._source = "".join(lines[fence.map[0] + 1 :])
        self._code = _OpenCode(fence.markup, indent, fence.info)
        self.hide()
        if self._printed:
            self._put("\n")
        self._printed, self._list_type = True, ""

    def _print_code(self, code: _OpenCode) -> bool:
        """Print the complete lines of the open block of code. Return True if the block is complete."""
        text, _, self._source = self._source.rpartition("\n")
        lines = text.split("\n")
        closing = next((n for n, line in enumerate(lines) if code.is_closed_by(line)), None)
        new = [code.without_indent(line) for line in lines[:closing]]
        before = code.lines[-_MAX_HIGHLIGHTED_LINES:]
        shown = self._highlight([*before, *new], code.info)[len(before) :]
        code.lines += new
        self._put(_ERASE + "".join(f"{line}\n" for line in shown))
        self._shown = False
        if closing is None:
            return False
        rest = lines[closing + 1 :]
        self._source = "".join(f"{line}\n" for line in rest) + self._source
        self._code = None
        return True

    def _highlight(self, lines: Sequence[str], info: str) -> list[str]:
        language = info.split()[0] if info.split() else "text"
        syntax = Syntax("", language, theme=_CODE_THEME, tab_size=0)
        text = syntax.highlight("\n".join(lines))
        made = text.split("\n", allow_blank=True)[: len(lines)]
        return [self._to_ansi(line.render(self._console)) for line in made]

    def _render(self, tokens: Sequence[Token]) -> list[str]:
        columns, _ = self._size()
        options = self._console.options.update(width=max(20, columns - 1), height=None)
        document = _Document("", code_theme=_CODE_THEME, hyperlinks=False)
        document.parsed = list(tokens)
        segments = self._console.render(document, options)
        lines = [self._to_ansi(line) for line in Segment.split_lines(segments)]
        while lines and not lines[0]:
            del lines[0]
        while lines and not lines[-1]:
            del lines[-1]
        return lines

    def _to_ansi(self, segments: Iterable[Segment]) -> str:
        shown = [each for each in segments if not each.control]
        while shown and not shown[-1].text.rstrip():
            shown.pop()
        made = []
        for place, (text, style, _) in enumerate(shown):
            # An entity, such as &#x202e;, becomes a character only when it is rendered.
            text = strip_control_characters(text).replace("\n", "")
            text = text.rstrip() if place == len(shown) - 1 else text
            made.append(style.render(text, color_system=self._colors) if style else text)
        return "".join(made)

    def _parse(self, source: str) -> list[Token]:
        tokens = self._parser.parse(source)
        for token in tokens:
            for child in token.children or ():
                if child.type == "softbreak":  # models end lines where they mean it
                    child.type = "hardbreak"
        return tokens

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._file.fileno())
        except (OSError, ValueError):
            size = shutil.get_terminal_size()
        return max(size.columns, 2), max(size.lines, 2)

    def _put(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


class _OpenCode:
    """Block of code whose end has not been read."""

    def __init__(self, fence: str, indent: int, info: str) -> None:
        self.info = info
        self.lines: list[str] = []
        self._indent = indent
        self._end = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*")

    def is_closed_by(self, line: str) -> bool:
        return self._end.fullmatch(line) is not None

    def without_indent(self, line: str) -> str:
        start = min(self._indent, len(line) - len(line.lstrip(" ")))
        return line[start:]


class _PlainCode(CodeBlock):
    """Code without a frame and without spaces that are not part of it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        syntax = Syntax("", self.lexer_name, theme=self.theme, tab_size=0)
        text = syntax.highlight(str(self.text).rstrip())
        text.rstrip()
        yield text


class _LeftHeading(Heading):
    """Heading at the left edge."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _AlignedList(ListElement):
    """List whose items are aligned, although each is rendered before the next is known."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.list_type == "bullet_list_open":
            yield from super().__rich_console__(console, options)
            return
        for number, item in enumerate(
            self.items, 1 if self.list_start is None else self.list_start
        ):
            yield from item.render_number(console, options, number, max(number, 10))


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _PlainCode,
        "code_block": _PlainCode,
        "heading_open": _LeftHeading,
        "ordered_list_open": _AlignedList,
        "list_item_open": ListItem,
    }


def _split_blocks(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split tokens into blocks. Each item of a list is a block: a list of one item."""
    blocks: list[list[Token]] = []
    for start, end in _spans(tokens, 0):
        opening = tokens[start]
        if opening.type not in ("bullet_list_open", "ordered_list_open"):
            blocks.append(list(tokens[start:end]))
            continue
        for item, item_end in _spans(tokens[start + 1 : end - 1], 1):
            inner = tokens[start + 1 + item : start + 1 + item_end]
            number = int(inner[0].info or 1)  # the number in the text, also where one is left out
            head = opening.copy(map=inner[0].map, attrs={"start": number})
            blocks.append([head, *inner, tokens[end - 1]])
    return blocks


def _spans(tokens: Sequence[Token], level: int) -> list[tuple[int, int]]:
    """Return the start and the end of each element of a level."""
    spans, start = [], 0
    for place, token in enumerate(tokens):
        if token.level == level and token.nesting >= 0:
            start = place
        if token.level == level and token.nesting <= 0:
            spans.append((start, place + 1))
    return spans


def _lines(text: str) -> list[str]:
    """Split a text into lines with their ends, as a parser of Markdown does."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _list_type(block: Sequence[Token]) -> str:
    return f"{block[0].type} {block[0].markup}" if "list" in block[0].type else ""
