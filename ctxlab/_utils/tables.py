"""Format tables as Markdown, LaTeX or HTML. Markup characters in the cells are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

_LATEX_ESCAPES = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--",
    "∞": r"$\infty$", "<": "$<$", ">": "$>$", "|": r"$|$",
})  # fmt: skip
_NUMERIC_CELL = re.compile(r"[$+−\-–<>]?[\d.,]+( ?%)?[kMG]?(\s.*)?|–?")


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


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table as HTML, for notebooks.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(head)}</th>" for head in headers)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _join_whitespace(text: str) -> str:
    return " ".join(text.split())


def _find_numeric_columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether all of its cells are numbers; False if there are no rows."""
    columns = [[row[i] for row in rows] for i in range(len(headers))]
    return [bool(c) and all(_NUMERIC_CELL.fullmatch(cell) for cell in c) for c in columns]
