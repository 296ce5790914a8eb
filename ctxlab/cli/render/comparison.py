"""Render the output of ``ctxlab compare``: a table of all pairs, or a summary if there are many.

In the table of all pairs, the names of strategies are on separate lines to leave room for figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_count, format_share
from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.cli.render.table import WHOLE_TABLE, Table, TableView, wrap_name
from ctxlab.evaluation.columns import Column, short_strategy
from ctxlab.evaluation.comparison.report import Configuration
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.comparison.report import Comparison

_MAX_PAIRS, _MAX_ROWS, _MAX_RECORDINGS = 6, 8, 5


def arrange_comparison(comparison: Comparison, view: TableView) -> Comparison:
    """Return a comparison with the chosen rows: sorted, and only the first ones of each score.

    Parameters
    ----------
    comparison : Comparison
        Comparison to arrange.
    view : TableView
        Rows to print.

    Returns
    -------
    Comparison
        Comparison with the chosen rows of its table.
    """
    if not (view.sort or view.top):
        return comparison
    within = [name for name in ("kind", "score") if name in comparison.table]
    table = comparison.table.sort_values(within, kind="stable")
    return replace(comparison, table=view.arrange(table, {}, within))


def comparison_text(
    comparison: Comparison,
    runs: pd.DataFrame,
    counting_note: str,
    show_all: bool,
    view: TableView = WHOLE_TABLE,
) -> str:
    """Return the table of a comparison, followed by notes and a conclusion.

    The notes list the recordings in which strategies differ most. The conclusion has one sentence
    per pair. If the table is a summary, the conclusion counts the pairs with each finding,
    such as "better".

    Parameters
    ----------
    comparison : Comparison
        Comparison to print.
    runs : DataFrame
        Scores of each recording under each strategy and limit.
    counting_note : str
        Sentences about how tokens were counted.
    show_all : bool
        Show every pair, even if there are more than six.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print.
    """
    frame = comparison.table
    is_flat = bool(view.sort or view.top or view.columns)
    pairs = len(frame.groupby(["a", "limit_a", "b", "limit_b"]))
    brief = pairs > _MAX_PAIRS and not show_all
    if is_flat:
        table = _flat_table(arrange_comparison(comparison, view), view)
    else:
        table = _summary_table(comparison) if brief else _pairs_table(comparison)
    notes = [_drop_hidden_legend(note, table.hidden) for note in comparison.notes]
    score = HEADLINE_SCORE if HEADLINE_SCORE in set(frame["score"]) else str(frame["score"].iloc[0])
    text = table.render(*_recording_sentences(frame, runs, score), *notes, counting_note)
    if not brief:
        sentences = comparison.sentences([score] if score == HEADLINE_SCORE else [])
        return show.with_conclusion(text, "\n".join(sentences))
    counts = frame.loc[frame["score"] == score, "finding"].str.partition(";")[0].value_counts()
    found = ", ".join(f"{count:,} {finding}" for finding, count in counts.items())
    said = f"Findings for {score} in {pluralize(pairs, 'pair')}: {found}. --all shows every pair."
    return show.with_conclusion(text, said)


def _pairs_table(comparison: Comparison) -> Table:
    """Return a table with one row per pair and score; each pair is named above its rows."""
    columns = comparison.columns()
    names = [row[: -len(columns)] for row in comparison.rows()]
    rows: list[tuple[int | str, str]] = []
    for (*kind, a, b), group in groupby(range(len(names)), key=names.__getitem__):
        rows += [("", "")] if rows else []
        for mark, name in (*(("", each) for each in kind), ("a  ", a), ("b  ", b)):
            wrapped = wrap_name(name, show.output_width() - len(mark))
            rows.append((mark + wrapped.replace("\n", f"\n{' ' * len(mark)}"), "bold"))
        rows += [(place, "") for place in group]
    return Table(columns, rows, wrap=len(columns) - 1, prose=True, least=12)


def _summary_table(comparison: Comparison) -> Table:
    """Return a table that compares the first strategy with the others, in one section per score."""
    figures, all_cells = comparison.columns()[1:], comparison.rows()
    names = [cells[: -len(figures)] for cells in all_cells]  # kind (optional), a, b, score
    first: dict[tuple[str, float], str] = {}
    parts: dict[str, list[int]] = {}
    limits = comparison.table["limit_a"]
    for place, ((*kind, a, _, score), limit) in enumerate(zip(names, limits, strict=True)):
        title = ": ".join([*kind, score])
        if first.setdefault((title, limit), a) == a:
            parts.setdefault(f"{title}: a = {a}", []).append(place)
    rows: list[tuple[int | str, str]] = []
    for title, places in parts.items():
        rows += [("", "")] if rows else []
        rows.append((wrap_name(title, show.output_width()), "bold"))
        rows += [(place, "") for place in places[:_MAX_ROWS]]
        left = len(places) - _MAX_ROWS
        rows += [(f"… {left:,} more (--all)", "dim")] if left > 0 else []
    return Table([Column("b", [name[-2] for name in names], left=True), *figures], rows)


def _flat_table(comparison: Comparison, view: TableView) -> Table:
    """Return a table with one row per pair, in the given order, in one section per score."""
    frame = comparison.table
    figures = view.shown_columns(frame, {}) if view.columns else comparison.columns()[1:]
    has_limits = frame[["limit_a", "limit_b"]].stack().nunique() > 1
    sides = [
        [
            str(Configuration(short_strategy(name), limit)) if has_limits else short_strategy(name)
            for name, limit in zip(frame[side], frame[f"limit_{side}"], strict=True)
        ]
        for side in "ab"
    ]
    pairs = [f"{a} against {b}" for a, b in zip(*sides, strict=True)]
    names = Column("a against b", pairs, left=True)
    within = [name for name in ("kind", "score") if name in frame]
    titles = frame[within].astype(str).agg(": ".join, axis=1).tolist()
    rows: list[tuple[int | str, str]] = []
    for title, group in groupby(range(len(frame)), key=titles.__getitem__):
        rows += [("", "")] if rows else []
        rows += [(title, "bold"), *((place, "") for place in group)]
    return Table([names, *figures], rows)


def _recording_sentences(frame: pd.DataFrame, runs: pd.DataFrame, score: str) -> Iterator[str]:
    """Yield a sentence that lists the recordings in which two strategies differ most.

    The two strategies are the pair with the largest difference in ``score``.
    """
    rows = frame[(frame["score"] == score) & frame["difference"].notna()]
    if rows.empty:
        return
    row = rows.iloc[int(rows["difference"].abs().to_numpy().argmax())]
    pair = [Configuration(row[side], row[f"limit_{side}"]) for side in "ab"]
    a, b = (
        runs[(runs["strategy"] == name) & (runs["limit"] == limit)].set_index("recording")[score]
        for name, limit in pair
    )
    gaps = (a - b).abs().nlargest(_MAX_RECORDINGS)
    write = format_share if row["unit"] == "share" else format_count
    listed = [f"{one_line(str(i))}: a {write(a[i])}, b {write(b[i])}" for i in gaps.index[gaps > 0]]
    most = f"Recordings that differ most in {score} (a = {pair[0]}, b = {pair[1]})"
    if listed:
        yield f"{most}: {'; '.join(listed)}."


def _drop_hidden_legend(note: str, hidden: Sequence[str]) -> str:
    """Return a note without the explanations of hidden columns.

    An explanation begins with the first word of the column's heading and a colon.

    >>> note = "By recording; n: clusters. Intervals are good; p: a test; w: won."
    >>> _drop_hidden_legend(note, ["p", "w"])
    'By recording; n: clusters. Intervals are good.'
    """
    gone = tuple(f"{head.split()[0]}: " for head in hidden)
    sentences = [
        "; ".join(part for part in sentence.split("; ") if not part.startswith(gone))
        for sentence in note.removesuffix(".").split(". ")
    ]
    return f"{'. '.join(filter(None, sentences))}."
