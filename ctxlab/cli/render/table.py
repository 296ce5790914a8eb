"""Choose the rows and columns of a data frame to print, and draw tables that fit the output's width.

If a table is too wide, names or sentences are wrapped, and less important columns are left out.
Figures are never cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ctxlab.cli.render import format as show
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import (
    SUFFIXES,
    Column,
    ColumnFacts,
    find_facts,
    legend_of,
    named_columns,
)
from ctxlab.evaluation.verdict import control_names

if TYPE_CHECKING:
    import pandas as pd

_MIN_WRAP_WIDTH = 12
_STEPS = r"(?= \| )"
"positions of the line breaks that are tried first: before each `` | `` of a pipeline"
_BREAKS = r"(?<=,)|(?<=\()(?!\))|(?<=[^\s|])(?=[ /])"
"positions of line breaks within a strategy: after a comma or ``(``, and before a space or slash"
_WORDS = r"(?<=[_=-])"
"positions of line breaks within a name: after an underscore, an equals sign or a hyphen"
_KEYS = (
    *("a", "limit_a", "b", "limit_b", "score", "strategy", "limit"),
    *("kind", "depth", "round", "distance", "role"),
)
"columns that say what a row is about, which are always printed"


@dataclass(frozen=True)
class TableView:
    """Rows and columns of a data frame that the user chose to print.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"limit": [8, 8, 4], "strategy": ["a", "b", "c"], "cost": [3, 1, 2]})
    >>> best = TableView(sort="cost", top=1).arrange(frame, {"cost": ColumnFacts("USD", "lower")})
    >>> best["strategy"].tolist()
    ['b', 'c']
    >>> TableView(columns=("usd",)).check(["limit", "cost"])
    Traceback (most recent call last):
    ctxlab.errors.SpecError: --columns: expected columns of the table, got 'usd'; choose from limit, cost
    """

    sort: str = ""
    "column to sort by; with a leading hyphen, the order is reversed; empty to keep the order"
    top: int | None = None
    "number of strategies to keep in each group; None keeps all"
    columns: tuple[str, ...] = ()
    "columns to print; empty for the usual ones"

    @property
    def sort_column(self) -> str:
        """Column to sort by, without a hyphen; empty to keep the order."""
        return self.sort.removeprefix("-")

    def check(self, known: Iterable[str]) -> None:
        """Check that the named columns exist, before anything is computed.

        Parameters
        ----------
        known : iterable of str
            Names of the columns that the data frame will have.

        Raises
        ------
        SpecError
            If a column is unknown. The message lists the names of the columns.
        """
        names = list(known)
        listed = ", ".join(each for each in names if not each.endswith(SUFFIXES))
        for option, wanted in (("--sort", [self.sort_column]), ("--columns", self.columns)):
            what = "a column" if option == "--sort" else "columns"
            for name in wanted:
                if name and name not in names:
                    raise SpecError(
                        f"{option}: expected {what} of the table, got {name!r}; choose from {listed}"
                    )

    def arrange(
        self,
        frame: pd.DataFrame,
        facts: Mapping[str, ColumnFacts],
        within: Sequence[str] = ("limit",),
    ) -> pd.DataFrame:
        """Sort the rows of each group, and keep the first ones.

        Parameters
        ----------
        frame : pandas.DataFrame
            Data frame to arrange.
        facts : mapping of str to ColumnFacts
            What is known about the columns. The best values come first. Columns that are not better
            in either direction are sorted in ascending order.
        within : sequence of str, optional
            Columns that define the groups, whose order is kept. Empty for a single group.

        Returns
        -------
        pandas.DataFrame
            Rows in their new order. Controls do not count as one of the ``top`` rows, and are kept.
        """
        frame = frame.reset_index(drop=True)
        self.check(map(str, frame))
        group = frame.groupby(list(within), sort=False, observed=True).ngroup() if within else None
        if self.sort:
            name = self.sort_column
            is_ascending = find_facts(name, facts).better != "higher"
            if self.sort.startswith("-"):
                is_ascending = not is_ascending
            order = frame.sort_values(name, ascending=is_ascending, kind="stable").index
            if group is not None:
                order = group[order].sort_values(kind="stable").index
            frame = frame.loc[order].reset_index(drop=True)
            group = None if group is None else group[order].reset_index(drop=True)
        if self.top is not None:
            counted = frame.assign(counted=True)["counted"]
            if "strategy" in frame:
                counted = control_names(frame) == ""
            place = counted.cumsum() if group is None else counted.groupby(group).cumsum()
            frame = frame[~counted | (place <= self.top)].reset_index(drop=True)
        return frame

    def pick(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the chosen columns, after those that say what a row is about.

        Parameters
        ----------
        frame : pandas.DataFrame
            Data frame with all columns.

        Returns
        -------
        pandas.DataFrame
            The data frame itself if no columns were chosen.
        """
        if not self.columns:
            return frame
        self.check(map(str, frame))
        return frame[list(dict.fromkeys([*(key for key in _KEYS if key in frame), *self.columns]))]

    def to_data(
        self,
        frame: pd.DataFrame,
        facts: Mapping[str, ColumnFacts],
        limits: Iterable[int | float] = (),
        within: Sequence[str] = ("limit",),
        *,
        as_csv: bool = False,
    ) -> str:
        """Convert the chosen rows and columns to JSON or CSV.

        Parameters
        ----------
        frame : pandas.DataFrame
            Data frame with all rows and columns.
        facts : mapping of str to ColumnFacts
            What is known about the columns.
        limits : iterable of int or float, optional
            Distinct limits as the user gave them.
        within : sequence of str, optional
            Columns that define the groups, as in ``arrange``.
        as_csv : bool, default False
            True for CSV, False for a JSON array with one object per row.

        Returns
        -------
        str
            Text to print.
        """
        chosen = self.pick(self.arrange(frame, facts, within))
        return (show.frame_to_csv if as_csv else show.frame_to_json)(chosen, limits)

    def shown_columns(self, frame: pd.DataFrame, facts: Mapping[str, ColumnFacts]) -> list[Column]:
        """Create the printed columns that were chosen, without those that say what a row is about.

        Parameters
        ----------
        frame : pandas.DataFrame
            Data frame with all columns.
        facts : mapping of str to ColumnFacts
            What is known about the columns.

        Returns
        -------
        list of Column
            Columns of the table; empty if no columns were chosen.
        """
        self.check(map(str, frame))
        return named_columns(frame, [name for name in self.columns if name not in _KEYS], facts)


WHOLE_TABLE = TableView()
"""All rows in their order, and the usual columns."""


@dataclass
class Table:
    """Table that is not wider than the output.

    If the table is too wide, the cells of the column with index ``wrap`` are wrapped. If it is
    still too wide, columns are left out: those with nothing but 0 first, then the highest ``drop``, and
    ``drop=0`` never.

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
    "all columns, including those that may be left out"
    rows: Iterable[tuple[int | str, str]] | None = None
    """lines to draw, as pairs of content and style; the content is the index of a row or a line of
    text. None draws all rows"""
    wrap: int = 0
    "index of the column with cells that are wrapped if they are too long"
    prose: bool = False
    "True if the wrapped cells are sentences, False if they are names of strategies or other names"
    least: int = 16
    """minimum width of the wrapped cells: if less is available, other columns are left out. If the
    cells are names, the minimum is raised to the width of the longest strategy, but not to more than
    a quarter of the available width"""
    room: int | None = None
    "available width in terminal columns; None: the width of the output"
    shown: list[Column] = field(init=False)
    "columns that fit, in display order"

    def __post_init__(self) -> None:
        """Choose the columns that fit, and wrap the cells of column ``wrap`` to the remaining width."""
        room = show.output_width() if self.room is None else self.room
        wrapped = self.columns[self.wrap]
        steps = [step for cell in wrapped.cells for step in re.split(_STEPS, cell)]
        longest = 0 if self.prose else min(max(map(cell_len, steps), default=0), room // 4)
        least = min(wrapped.width, max(self.least, longest))

        def spare(columns: Iterable[Column]) -> int:
            return room + 1 - sum(1 + (least if c is wrapped else c.width) for c in columns)

        self.shown = list(self.columns)
        for column in sorted(self.columns, key=_order_of_leaving_out):
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
        """Table as printable text, without notes."""
        text = Text(no_wrap=True, overflow="ignore")
        heads = [each.head.split("\n") for each in self.shown]
        height = max(map(len, heads))
        self._draw(text, [[""] * (height - len(head)) + head for head in heads], "bold")
        rows = [(n, "") for n in range(len(self._cells[0]))] if self.rows is None else self.rows
        for what, style in rows:
            if isinstance(what, str):
                text.append(f"{what}\n", style)
            else:
                lines = [cells[what].split("\n") for cells in self._cells]
                self._draw(text, lines, style, what)
        text.right_crop(1)
        return text

    def _draw(
        self, text: Text, cells: Sequence[Sequence[str]], style: str, row: int | None = None
    ) -> None:
        for n in range(max(map(len, cells))):
            gap = ""
            for column, size, lines in zip(self.shown, self._sizes, cells, strict=True):
                line = lines[n] if n < len(lines) else ""
                space = " " * (size - cell_len(line))
                own = column.cell_styles[row] if row is not None and column.cell_styles else ""
                before, after = ("", space) if column.left else (space, "")
                text.append(gap + before)
                text.append(line, f"{style} {column.style} {own}".strip())
                text.append(after)
                gap = " "
            text.append("\n")

    @property
    def legend(self) -> str:
        """Sentence that explains the headings of the shown columns."""
        return legend_of(self.shown)

    @property
    def hidden(self) -> list[str]:
        """Headings of the columns that are left out."""
        shown = {column.head for column in self.shown}
        return [column.head for column in self.columns if column.head not in shown]

    @property
    def hidden_note(self) -> str:
        """Sentence that names the columns that are left out; empty if all columns are shown."""
        names = ", ".join(" ".join(head.replace("(95 %)", "").split()) for head in self.hidden)
        return f"Hidden at this width: {names}; --json shows them." if names else ""

    def render(self, *notes: str) -> str:
        """Render the table with notes below it, including a note on the columns that are left out.

        Parameters
        ----------
        *notes : str
            Paragraphs to print below the table. Empty strings are skipped.

        Returns
        -------
        str
            Text to print.
        """
        said = [Text(note, "dim") for note in (*notes, self.hidden_note) if note]
        return show.render_to_text(self.text, *([Text(), *said] if said else []))


def _order_of_leaving_out(column: Column) -> tuple[bool, int]:
    has_only_zeros = column.drop > 0 and set(column.cells) == {"0"}
    return not has_only_zeros, -column.drop


def wrap_name(name: str, width: int) -> str:
    """Wrap a name, such as a pipeline of strategies.

    The name is broken before the bars of a pipeline. If a strategy of the pipeline is still too long,
    it is also broken at commas, parentheses, spaces and slashes, and then after underscores and hyphens.

    Parameters
    ----------
    name : str
        Name to wrap.
    width : int
        Maximum width of a line in terminal columns.

    Returns
    -------
    str
        Wrapped name. All lines but the first are indented. A part that is still too long is cut off.

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
    """Wrap a sentence at its spaces.

    Parameters
    ----------
    text : str
        Sentence to wrap.
    width : int
        Maximum width of a line in terminal columns.

    Returns
    -------
    str
        Wrapped sentence. Words that are longer than a line are cut off.

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
    """Join pieces to lines no wider than ``width``; all lines except the first are indented."""
    lines = [""]
    for piece in pieces:
        if not lines[-1] or cell_len(lines[-1] + piece) <= width:
            lines[-1] += piece
        else:
            lines.append(indent + piece.lstrip())
    return lines
