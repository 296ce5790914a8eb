"""Render the table of ``ctxlab compare``.

Strategy names have lines of their own, so that every figure has room. On a narrow terminal whole
columns are left out, least important first, and a note names them. If that is not enough, intervals
take two lines. Figures are never cut.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ctxlab.cli.render import format as show

if TYPE_CHECKING:
    from ctxlab.evaluation.comparison.report import Comparison

_DROP_ORDER = ("effect", "clusters", "w/t/l", "p (Holm)")
"columns that a narrow terminal leaves out, least important first"
_MIN_FINDING_WIDTH = 15
"width to which findings are wrapped before any column is left out"


def comparison_text(comparison: Comparison, counting_note: str) -> str:
    """Return the table of all pairs, a legend, and the findings about far recall.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    counting_note : str
        Sentences about how tokens were counted.

    Returns
    -------
    str
        The text.
    """
    rows, first = comparison.rows(), comparison.headings.index("score")
    heads = comparison.headings[first:]
    cells = {head: [row[first + i] for row in rows] for i, head in enumerate(heads)}
    shown = _fit_columns(cells, show.output_width())
    hidden = [head for head in heads if head not in shown]
    notes = [_drop_hidden_legend(note, hidden) for note in comparison.notes]
    if hidden:
        notes.append(
            f"Hidden at this width: {', '.join(map(_strip_correction, hidden))}; --json shows them."
        )
    text = "\n".join(_table_lines(shown, [row[:first] for row in rows]))
    said = show.render_to_text(
        Text(), *(Text(note, style="dim") for note in (*notes, counting_note))
    )
    scores = ["recall_far"] if "recall_far" in set(comparison.table["score"]) else []
    findings = "\n".join(comparison.sentences(scores))
    # In a pipe each finding stays on one line, for line-based tools.
    last = show.render_to_text(Text(findings, style="bold")) if sys.stdout.isatty() else findings
    return f"{text}\n{said}\n\n{last}"


def _fit_columns(columns: Mapping[str, Sequence[str]], room: int) -> dict[str, list[str]]:
    r"""Return the columns that fit next to each other, with wrapped cells.

    >>> columns = {"score": ["recall_far"], "95% interval": ["−0.191 to −0.131"], "clusters": ["10"],
    ...            "finding": ["worse; not shown to be no worse by 0.020"]}
    >>> list(_fit_columns(columns, 52)), list(_fit_columns(columns, 43))
    (['score', '95% interval', 'clusters', 'finding'], ['score', '95% interval', 'finding'])
    >>> _fit_columns(columns, 28)["95% interval"]
    ['−0.191 to\n−0.131']
    """
    found = {head: list(cells) for head, cells in columns.items()}
    score, finding = next(iter(found)), list(found)[-1]
    found[finding] = _wrap_cells(columns[finding], _MIN_FINDING_WIDTH)
    for head in _DROP_ORDER:
        if _table_width(found) > room:
            found.pop(head, None)
    (interval,) = (head for head in found if head.endswith("interval"))
    if _table_width(found) > room:
        found[interval] = [_split_in_two(cell) for cell in found[interval]]
    if _table_width(found) > room:
        found[finding] = _wrap_cells(columns[finding], 1)
    if _table_width(found) > room:
        found[score] = [_split_in_two(cell, "_") for cell in found[score]]
    if (left := room - _table_width(found)) > 0:
        found[finding] = _wrap_cells(columns[finding], _max_line_width(found[finding]) + left)
    return found


def _table_lines(
    shown: Mapping[str, Sequence[str]], names: Sequence[Sequence[str]]
) -> Iterator[str]:
    """Yield the lines of the table, with the names of each pair above its rows."""
    heads = [_two_line_head(head) for head in shown]
    rows = [(list(cells), "") for cells in zip(*shown.values(), strict=True)]
    drawn = iter(show.render_to_text(show.make_table(heads, rows, {0, len(heads) - 1})).split("\n"))
    yield from (next(drawn) for _ in range(_row_height(heads)))
    before: Sequence[str] = ()
    for pair, (cells, _) in zip(names, rows, strict=True):
        if pair != before:
            *kind, one, two = pair
            yield from [""] if before else []
            yield show.render_to_text(
                *(Text(_label_name(*each), style="bold") for each in (("", *kind),) if kind),
                *(Text(_label_name(*each), style="bold") for each in (("a  ", one), ("b  ", two))),
            )
            before = pair
        yield from (next(drawn) for _ in range(_row_height(cells)))


def _label_name(mark: str, name: str) -> str:
    """Return a name after its mark, wrapped before its bars or, if needed, anywhere."""
    room = show.output_width() - len(mark)
    lines = [
        part
        for line in show.fold_pipeline(name, room).split("\n")
        for part in textwrap.wrap(line, room, drop_whitespace=False) or [line]
    ]
    return mark + f"\n{' ' * len(mark)}".join(lines)


def _wrap_cells(cells: Iterable[str], columns: int) -> list[str]:
    """Wrap texts to a width without breaking words."""
    return [textwrap.fill(cell, columns, break_long_words=False) for cell in cells]


def _split_in_two(text: str, mark: str = " ") -> str:
    r"""Break a text into two lines after the last mark.

    >>> _split_in_two("−0.191 to −0.131"), _split_in_two("answer_containment", "_")
    ('−0.191 to\n−0.131', 'answer_\ncontainment')
    """
    before, found, after = text.rpartition(mark)
    return f"{before}{found.strip()}\n{after}" if found else text


def _max_line_width(cells: Iterable[str]) -> int:
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _table_width(columns: Mapping[str, Sequence[str]]) -> int:
    """Return the width of a table in terminal columns."""
    return sum(
        1 + _max_line_width([_two_line_head(head), *cells]) for head, cells in columns.items()
    )


def _row_height(cells: Iterable[str]) -> int:
    return 1 + max(cell.count("\n") for cell in cells)


def _two_line_head(head: str) -> str:
    r"""Return a column heading on two lines.

    >>> _two_line_head("95% interval"), _two_line_head("score")
    ('95%\ninterval', '\nscore')
    """
    return head.replace(" ", "\n") if head.endswith((")", "interval")) else f"\n{head}"


def _strip_correction(head: str) -> str:
    return head.removesuffix(" (Holm)")


def _drop_hidden_legend(note: str, hidden: Sequence[str]) -> str:
    """Return a note without the legend of hidden columns.

    >>> _drop_hidden_legend("By recording; n: clusters. Intervals are good; p: a test; w: won.", "pw")
    'By recording; n: clusters. Intervals are good.'
    """
    gone = tuple(f"{_strip_correction(head)}: " for head in hidden)
    kept = []
    for sentence in note.removesuffix(".").split(". "):
        parts = [part for part in sentence.split("; ") if not part.startswith(gone)]
        kept += ["; ".join(parts)] if parts else []
    return f"{'. '.join(kept)}."
