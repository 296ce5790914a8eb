"""The table of ``ctxlab compare``: names stand on lines of their own, so that every figure has room.

Where a terminal is narrow whole columns are left out, what is missed least first, and it is said which;
where that is too little intervals take two lines. A figure is never cut.
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

__all__ = ["comparison_text"]

_SPARE = ("d", "n", "w/t/l", "p (Holm)")
"columns that a narrow terminal does without, what is missed least first"
_FINDING = 15
"columns of a finding before any other is left out for it; it wraps between words"


def comparison_text(found: Comparison, basis: str) -> str:
    """A table of all pairs, what its columns mean, and the sentences on far recall last.

    ``basis``: what the figures rest on, such as how tokens were counted.
    """
    rows, first = found.rows(), found.heads.index("score")
    heads = found.heads[first:]
    cells = {head: [row[first + i] for row in rows] for i, head in enumerate(heads)}
    shown = _fitted(cells, show.width())
    hidden = [head for head in heads if head not in shown]
    notes = [_of_shown(note, hidden) for note in found.notes]
    if hidden:
        notes.append(f"Too narrow here for {', '.join(map(_plain, hidden))}; --json holds them.")
    text = "\n".join(_lines(shown, [row[:first] for row in rows]))
    said = show.drawn(Text(), *(Text(note, style="dim") for note in (*notes, basis)))
    scores = ["recall_far"] if "recall_far" in set(found.table["score"]) else []
    told = "\n".join(found.sentences(scores))
    # In a pipe each finding stays on one line.
    last = show.drawn(Text(told, style="bold")) if sys.stdout.isatty() else told
    return f"{text}\n{said}\n\n{last}"


def _fitted(columns: Mapping[str, Sequence[str]], room: int) -> dict[str, list[str]]:
    """The columns that fit beside each other, their cells on as many lines as they need.

    >>> columns = {"score": ["recall_far"], "95% interval": ["−0.191 to −0.131"], "n": ["10"],
    ...            "finding": ["worse; not shown to be no worse by 0.020"]}
    >>> list(_fitted(columns, 46)), list(_fitted(columns, 43))
    (['score', '95% interval', 'n', 'finding'], ['score', '95% interval', 'finding'])
    >>> _fitted(columns, 28)["95% interval"]
    ['−0.191 to\\n−0.131']
    """
    found = {head: list(cells) for head, cells in columns.items()}
    score, finding = next(iter(found)), list(found)[-1]
    found[finding] = _folded(columns[finding], _FINDING)
    for head in _SPARE:
        if _wide(found) > room:
            found.pop(head, None)
    (interval,) = (head for head in found if head.endswith("interval"))
    if _wide(found) > room:
        found[interval] = [_in_two(cell) for cell in found[interval]]
    if _wide(found) > room:
        found[finding] = _folded(columns[finding], 1)
    if _wide(found) > room:
        found[score] = [_in_two(cell, "_") for cell in found[score]]
    if (left := room - _wide(found)) > 0:
        found[finding] = _folded(columns[finding], _most(found[finding]) + left)
    return found


def _lines(shown: Mapping[str, Sequence[str]], names: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of the table; where the pair changes its names stand above."""
    heads = [_head(head) for head in shown]
    rows = [(list(cells), "") for cells in zip(*shown.values(), strict=True)]
    drawn = iter(show.drawn(show.table(heads, rows, {0, len(heads) - 1})).split("\n"))
    yield from (next(drawn) for _ in range(_high(heads)))
    before: Sequence[str] = ()
    for pair, (cells, _) in zip(names, rows, strict=True):
        if pair != before:
            *kind, one, two = pair
            yield from [""] if before else []
            yield show.drawn(
                *(Text(_beside(*each), style="bold") for each in (("", *kind),) if kind),
                *(Text(_beside(*each), style="bold") for each in (("a  ", one), ("b  ", two))),
            )
            before = pair
        yield from (next(drawn) for _ in range(_high(cells)))


def _beside(mark: str, name: str) -> str:
    """A name behind its mark, folded before its bars, and wherever it must be."""
    room = show.width() - len(mark)
    lines = [
        part
        for line in show.fold(name, room).split("\n")
        for part in textwrap.wrap(line, room, drop_whitespace=False) or [line]
    ]
    return mark + f"\n{' ' * len(mark)}".join(lines)


def _folded(cells: Iterable[str], columns: int) -> list[str]:
    """Texts on lines of so many columns; a word is never broken."""
    return [textwrap.fill(cell, columns, break_long_words=False) for cell in cells]


def _in_two(text: str, mark: str = " ") -> str:
    """A text on two lines, broken behind the last mark.

    >>> _in_two("−0.191 to −0.131"), _in_two("answer_containment", "_")
    ('−0.191 to\\n−0.131', 'answer_\\ncontainment')
    """
    before, found, after = text.rpartition(mark)
    return f"{before}{found.strip()}\n{after}" if found else text


def _most(cells: Iterable[str]) -> int:
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _wide(columns: Mapping[str, Sequence[str]]) -> int:
    """Columns that a table takes."""
    return sum(1 + _most([_head(head), *cells]) for head, cells in columns.items())


def _high(cells: Iterable[str]) -> int:
    return 1 + max(cell.count("\n") for cell in cells)


def _head(head: str) -> str:
    """A head on two lines.

    >>> _head("95% interval"), _head("score")
    ('95%\\ninterval', '\\nscore')
    """
    return head.replace(" ", "\n") if head.endswith((")", "interval")) else f"\n{head}"


def _plain(head: str) -> str:
    return head.removesuffix(" (Holm)")


def _of_shown(note: str, hidden: Sequence[str]) -> str:
    """A note without what it says of columns that are not shown.

    >>> _of_shown("Paired by recording; n: clusters. Intervals are good; p: a test; d: apart.", "pd")
    'Paired by recording; n: clusters. Intervals are good.'
    """
    gone = tuple(f"{_plain(head)}: " for head in hidden)
    kept = []
    for sentence in note.removesuffix(".").split(". "):
        parts = [part for part in sentence.split("; ") if not part.startswith(gone)]
        kept += ["; ".join(parts)] if parts else []
    return f"{'. '.join(kept)}."
