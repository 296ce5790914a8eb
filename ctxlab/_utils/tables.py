"""A table of texts is written as Markdown, LaTeX or HTML; what they would read as markup is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html", "latex", "markdown"]

_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--",
    "∞": r"$\infty$", "<": "$<$", ">": "$>$", "|": r"$|$",
}  # fmt: skip
_FIGURE = re.compile(r"[$+−\-–<>]?[\d.,]+( ?%)?[kMG]?(\s.*)?|–?")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as GitHub reads it.

    >>> print(markdown(["strategy", "far"], [["tool_stubs | panic", ".81"]]))
    | strategy | far |
    | --- | ---: |
    | tool_stubs \\| panic | .81 |
    """
    rows = [[_line(cell).replace("|", r"\|") for cell in row] for row in rows]
    ruled = ["---:" if right else "---" for right in _figures(heads, rows)]
    lines = [[_line(head) for head in heads], ruled, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A ``tabular`` with the rules of the package ``booktabs``.

    >>> print(latex(["strategy", "far"], [["tool_stubs", "81 %"]]))
    \begin{tabular}{lr}
    \toprule
    strategy & far \\
    \midrule
    tool\_stubs & 81 \% \\
    \bottomrule
    \end{tabular}
    """
    rows = [[_line(cell) for cell in row] for row in rows]
    columns = "".join("r" if right else "l" for right in _figures(heads, rows))
    head, *body = ([_tex(cell) for cell in row] for row in ([_line(h) for h in heads], *rows))
    lines = [f"{' & '.join(line)} \\\\" for line in (head, *body)]
    table = ["\\toprule", lines[0], "\\midrule", *lines[1:], "\\bottomrule"]
    return "\n".join([f"\\begin{{tabular}}{{{columns}}}", *table, "\\end{tabular}"])


def html(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook.

    >>> html(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(text: str) -> str:
    return " ".join(text.split())


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def _figures(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold figures alone, and stand to the right."""
    columns = [[row[i] for row in rows] for i in range(len(heads))]
    return [bool(c) and all(_FIGURE.fullmatch(cell) for cell in c) for c in columns]
