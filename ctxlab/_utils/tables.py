"""Columns of printed tables, and tables in Markdown and LaTeX, with markup characters escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ctxlab._utils.numbers import to_sentence

_LATEX_ESCAPES = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--",
    "∞": r"$\infty$", "<": "$<$", ">": "$>$", "|": r"$|$",
})  # fmt: skip
_NUMERIC_CELL = re.compile(r"[$+−\-–<>]?[\d.,]+( ?%)?[kMG]?(\s.*)?|–?")


@dataclass(frozen=True)
class Column:
    """Column of a table: heading, cells and layout."""

    head: str
    "heading of one or two lines"
    cells: Sequence[str]
    "one cell per row; a cell may have several lines"
    legend: str = ""
    "explanation of the heading, for the legend below the table; empty if none is needed"
    drop: int = 0
    "if the table is too wide, the column with the highest number is left out first; 0: never"
    left: bool = False
    "True to align the cells left, False to align them right"
    style: str = ""
    "style of the heading and all cells, in the notation of the library rich"
    narrow: Sequence[str] = ()
    "the same cells with shorter lines, tried before the column is left out; empty if there are none"
    name: str = ""
    "name of the column in the data frame that it shows; empty if it shows none"
    cell_styles: Sequence[str] = ()
    "style of each cell, in the notation of the library rich; empty for plain cells"

    @property
    def width(self) -> int:
        """Width of the widest line of the heading and the cells, in terminal columns."""
        from rich.cells import cell_len

        return max(cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n"))


def text_columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Column]:
    """Create left-aligned columns from rows of strings.

    Parameters
    ----------
    heads : sequence of str
        Headings of the columns.
    rows : iterable of sequence of str
        Rows, each with one cell per heading.

    Returns
    -------
    list of Column
        One column per heading.
    """
    return [Column(head, cells, left=True) for head, *cells in zip(heads, *rows, strict=True)]


def legend_of(columns: Iterable[Column]) -> str:
    """Join the legends of columns to one sentence.

    Parameters
    ----------
    columns : iterable of Column
        Columns to explain.

    Returns
    -------
    str
        Sentence with each legend once; empty if no column has a legend.
    """
    words = "; ".join(dict.fromkeys(column.legend for column in columns if column.legend))
    is_name = "_" in words.partition(":")[0]  # names of columns have no capital letter
    return f"{words}." if is_name else to_sentence(words) if words else ""


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Format a table as GitHub Flavored Markdown. Columns of numbers are right-aligned.

    >>> print(markdown_table(["strategy", "far"], [["tool_stubs | panic", ".81"]]))
    | strategy | far |
    | --- | ---: |
    | tool_stubs \| panic | .81 |
    """
    rows = [[_join_whitespace(cell).replace("|", r"\|") for cell in row] for row in rows]
    ruled = ["---:" if right else "---" for right in _find_numeric_columns(headers, rows)]
    lines = [[_join_whitespace(head) for head in headers], ruled, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Format a table as a LaTeX ``tabular`` with the rules of the package ``booktabs``.

    >>> print(latex_table(["strategy", "far"], [["tool_stubs", "81 %"]]))
    \begin{tabular}{lr}
    \toprule
    strategy & far \\
    \midrule
    tool\_stubs & 81 \% \\
    \bottomrule
    \end{tabular}
    """
    rows = [[_join_whitespace(cell) for cell in row] for row in rows]
    columns = "".join("r" if right else "l" for right in _find_numeric_columns(headers, rows))
    heads = [_join_whitespace(head) for head in headers]
    escaped = [[cell.translate(_LATEX_ESCAPES) for cell in row] for row in (heads, *rows)]
    lines = [f"{' & '.join(row)} \\\\" for row in escaped]
    table = ["\\toprule", lines[0], "\\midrule", *lines[1:], "\\bottomrule"]
    return "\n".join([f"\\begin{{tabular}}{{{columns}}}", *table, "\\end{tabular}"])


def _join_whitespace(text: str) -> str:
    return " ".join(text.split())


def _find_numeric_columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether all of its cells are numbers; False if there are no rows."""
    columns = [[row[i] for row in rows] for i in range(len(headers))]
    return [bool(c) and all(_NUMERIC_CELL.fullmatch(cell) for cell in c) for c in columns]
