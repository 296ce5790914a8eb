"""Draw tables that fit the output: names wrap, whole columns are left out, figures are never cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ctxlab.cli.render import format as show

if TYPE_CHECKING:
    import pandas as pd

_MIN_WRAP_WIDTH = 12
_STEPS = r"(?= \| )"
"where a pipeline of strategies is broken first"
_BREAKS = r"(?<=,)|(?<=\()(?!\))|(?<=[^\s|])(?=[ /])"
"where a step is broken: after a comma or parenthesis and before a space or slash"
_WORDS = r"(?<=[_=-])"
"where the rest is broken: between the words of a name"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str
    "heading, in one or two lines"
    cells: Sequence[str]
    "one text per row, in one or more lines"
    legend: str = ""
    "explanation of the heading"
    drop: int = 0
    "columns with the highest number are left out first; 0 is never left out"
    left: bool = False
    "align the cells left, not right"
    style: str = ""
    "style of all cells"
    narrow: Sequence[str] = ()
    "the cells in more and shorter lines, tried before the column is left out"

    @property
    def width(self) -> int:
        """The columns of the terminal that the widest line takes."""
        return max(cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n"))


_Format: TypeAlias = Literal["count", "usd", "share", "percent", "interval"]


class Figure(NamedTuple):
    """How a column of a data frame is printed."""

    head: str
    "heading of the column, in one or two lines"
    name: str
    "name in the data frame; an interval has two more, with _low and _high"
    format: _Format
    "how its values are written"
    legend: str = ""
    "explanation of the heading"
    drop: int = 0
    "as in ``Column``"
    hide: Literal["", "nan", "zero", "empty"] = ""
    "leave the column out if all values are nan, or 0, or either of them"

    def column(self, frame: pd.DataFrame) -> Column:
        """Return the column with its values as text.

        Parameters
        ----------
        frame : DataFrame
            The data frame.

        Returns
        -------
        Column
            The column.
        """
        cells = show.format_values(frame, self.name, self.format)
        return Column(self.head, cells, self.legend, self.drop, self.format == "interval")

    def is_shown(self, frame: pd.DataFrame) -> bool:
        """Test if the data frame has something to show in this column.

        Parameters
        ----------
        frame : DataFrame
            The data frame.

        Returns
        -------
        bool
            True if it has.
        """
        values = frame[self.name]
        match self.hide:
            case "nan":
                return bool(values.notna().any())
            case "zero":
                return bool((values != 0).any())
            case "empty":
                return bool(values.fillna(0).any())
        return True


def text_columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Column]:
    """Return columns of words from rows.

    Parameters
    ----------
    heads : sequence of str
        The headings.
    rows : iterable of sequence of str
        A text per heading.

    Returns
    -------
    list of Column
        The columns.
    """
    return [Column(head, cells, left=True) for head, *cells in zip(heads, *rows, strict=True)]


def frame_columns(frame: pd.DataFrame, figures: Iterable[Figure]) -> list[Column]:
    """Return the columns of a data frame that have something to show.

    Parameters
    ----------
    frame : DataFrame
        The data frame.
    figures : iterable of Figure
        How its columns are printed.

    Returns
    -------
    list of Column
        The columns.
    """
    return [figure.column(frame) for figure in figures if figure.is_shown(frame)]


@dataclass
class Table:
    """A table that is no wider than the output.

    Examples
    --------
    >>> names = Column("name", ["a long name, which wraps"], left=True)
    >>> table = Table([names, Column("msgs", ["2,134"]), Column("kind", ["native"], drop=1)], room=28)
    >>> print(show.render_to_text(table.text))
    name                    msgs
    a long name, which     2,134
      wraps
    >>> table.hidden_note
    'Hidden at this width: kind; --json shows them.'
    """

    columns: Sequence[Column]
    "all columns, of which some may be left out"
    rows: Iterable[tuple[int | str, str]] | None = None
    "what to draw, and in which style: the number of a row, or a line of text; None: all rows"
    wrap: int = 0
    "number of the column whose cells wrap"
    prose: bool = False
    "the cells that wrap are sentences, not names"
    least: int = 16
    "width down to which sentences wrap before a column is left out; names get a quarter of the room"
    room: int | None = None
    "columns of the terminal; None: those of the output"
    shown: list[Column] = field(init=False)
    "the columns that fit"

    def __post_init__(self) -> None:
        """Choose the columns that fit, and wrap the cells of one of them to what is left."""
        room = show.output_width() if self.room is None else self.room
        wrapped = self.columns[self.wrap]
        steps = [step for cell in wrapped.cells for step in re.split(_STEPS, cell)]
        longest = 0 if self.prose else min(max(map(cell_len, steps), default=0), room // 4)
        least = min(wrapped.width, max(self.least, longest))

        def spare(columns: Iterable[Column]) -> int:
            return room + 1 - sum(1 + (least if c is wrapped else c.width) for c in columns)

        self.shown = list(self.columns)
        for column in sorted(self.columns, key=lambda each: -each.drop):
            place = self.shown.index(column)
            if spare(self.shown) < 0 and column.narrow:
                self.shown[place] = replace(column, cells=column.narrow)
            if spare(self.shown) < 0 and column.drop:
                del self.shown[place]
        width = min(wrapped.width, max(least + spare(self.shown), _MIN_WRAP_WIDTH))
        wrap = wrap_text if self.prose else wrap_name
        lines = [wrap(cell, width) for cell in wrapped.cells]
        self._cells = [lines if each is wrapped else each.cells for each in self.shown]
        self._sizes = [width if each is wrapped else each.width for each in self.shown]

    @property
    def text(self) -> Text:
        """The table."""
        text = Text(no_wrap=True, overflow="ignore")
        heads = [each.head.split("\n") for each in self.shown]
        height = max(map(len, heads))
        self._draw(text, [[""] * (height - len(head)) + head for head in heads], "bold")
        rows = [(n, "") for n in range(len(self._cells[0]))] if self.rows is None else self.rows
        for what, style in rows:
            if isinstance(what, str):
                text.append(f"{what}\n", style)
            else:
                self._draw(text, [cells[what].split("\n") for cells in self._cells], style)
        text.right_crop(1)
        return text

    def _draw(self, text: Text, cells: Sequence[Sequence[str]], style: str) -> None:
        for n in range(max(map(len, cells))):
            gap = ""
            for column, size, lines in zip(self.shown, self._sizes, cells, strict=True):
                line = lines[n] if n < len(lines) else ""
                space = " " * (size - cell_len(line))
                padded = line + space if column.left else space + line
                text.append(gap + padded, f"{style} {column.style}".strip())
                gap = " "
            text.append("\n")

    @property
    def legend(self) -> str:
        """A sentence that explains the columns that are shown."""
        return legend_of(self.shown)

    @property
    def hidden(self) -> list[str]:
        """The headings of the columns that are left out."""
        shown = {column.head for column in self.shown}
        return [column.head for column in self.columns if column.head not in shown]

    @property
    def hidden_note(self) -> str:
        """A sentence that names the columns that are left out."""
        names = ", ".join(" ".join(head.replace("(95 %)", "").split()) for head in self.hidden)
        return f"Hidden at this width: {names}; --json shows them." if names else ""

    def render(self, *notes: str) -> str:
        """Return the table with notes below it.

        Parameters
        ----------
        *notes : str
            Sentences; empty ones are left out.

        Returns
        -------
        str
            The text to print.
        """
        said = [Text(note, "dim") for note in (*notes, self.hidden_note) if note]
        return show.render_to_text(self.text, *([Text(), *said] if said else []))


def legend_of(columns: Iterable[Column]) -> str:
    """Return a sentence that explains columns.

    Parameters
    ----------
    columns : iterable of Column
        The columns.

    Returns
    -------
    str
        The sentence; empty if no column has a legend.
    """
    words = "; ".join(dict.fromkeys(column.legend for column in columns if column.legend))
    return show.to_sentence(words) if words else ""


def wrap_name(name: str, width: int) -> str:
    """Wrap a strategy or another name before its bars and, if needed, at commas and the like.

    Parameters
    ----------
    name : str
        The name, such as a pipeline of strategies.
    width : int
        Columns per line.

    Returns
    -------
    str
        The lines; words that do not fit are cut.

    Examples
    --------
    >>> print(wrap_name("observation_mask(keep=3) | rolling_summary | panic", 30))
    observation_mask(keep=3)
      | rolling_summary | panic
    >>> print(wrap_name("when_it_pays(observation_mask(keep=3)) | aVeryLongNameOfMyOwn()", 20))
    when_it_pays(
      observation_mask(
      keep=3))
      | aVeryLongNameOf…
    """
    lines = [name]
    for breaks in (_STEPS, _BREAKS, _WORDS):
        lines = [part for line in lines for part in _fill(re.split(breaks, line), width, "  ")]
    return "\n".join(_cut(line, width) for line in lines)


def wrap_text(text: str, width: int) -> str:
    """Wrap a sentence at its spaces; words that do not fit are cut.

    Parameters
    ----------
    text : str
        The sentence.
    width : int
        Columns per line.

    Returns
    -------
    str
        The lines.

    Examples
    --------
    >>> print(wrap_text("a sentence with incomprehensibilities", 12))
    a sentence
    with
    incomprehen…
    """
    lines = _fill(re.split(r"(?<=\S)(?= )", text), width, "")
    return "\n".join(_cut(line, width) for line in lines)


def _cut(line: str, width: int) -> str:
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _fill(pieces: Iterable[str], width: int, indent: str) -> list[str]:
    """Join pieces to lines of at most a width, of which all but the first are indented."""
    lines = [""]
    for piece in pieces:
        if not lines[-1] or cell_len(lines[-1] + piece) <= width:
            lines[-1] += piece
        else:
            lines.append(indent + piece.lstrip())
    return lines
