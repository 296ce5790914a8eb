"""Render the leaderboard of ``ctxlab eval`` as text, Markdown, JSON or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import describe_limit, to_sentence
from ctxlab._utils.tables import markdown_table
from ctxlab.cli.render import format as show
from ctxlab.cli.render.table import WHOLE_TABLE, Table, TableView
from ctxlab.evaluation.columns import (
    Column,
    ColumnFacts,
    find_facts,
    frame_columns,
    legend_of,
    places_by_limit,
    score_columns,
    score_facts,
    short_strategy,
    spread_figures,
)
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.verdict import choose_configuration, control_name

_RATES = {"input": "input", "cached": "cache_read", "output": "output"}
CHOSEN_MARK = " *"
"""Mark after the name of the recommended strategy."""

_DISQUALIFYING = ("overflow_rate", "newly_invalid_rate", "overflow", "invalid")
"columns of flaws that exclude a strategy from being the best; the last two are those of products"
_FLAWS = (*_DISQUALIFYING, "invalid_rate", "over_rate")
"columns of flaws, whose values above 0 are red"
_TEXT_KINDS = {"summary": "summaries", "contents": "contents"}


def leaderboard_data(results: Results, view: TableView, *, as_csv: bool = False) -> str:
    """Convert the leaderboard to a JSON array with one object per strategy and limit, or to CSV.

    Parameters
    ----------
    results : Results
        Results of the evaluation.
    view : TableView
        Rows and columns to print.
    as_csv : bool, default False
        True for CSV, False for JSON.

    Returns
    -------
    str
        JSON or CSV. The keys are the columns of the leaderboard; limits are written as the user gave
        them.
    """
    limits = results.manifest["spec"]["limits"]
    facts = score_facts(results.scores)
    return view.to_data(results.leaderboard(), facts, limits, as_csv=as_csv)


def leaderboard_text(results: Results, min_recall: float, view: TableView = WHOLE_TABLE) -> str:
    """Return the leaderboard as a table, followed by notes and a recommendation.

    Parameters
    ----------
    results : Results
        Results of the evaluation.
    min_recall : float
        Minimum of the headline recall score of a recommended strategy, as a share of its value for full
        history.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print; the last line is the recommendation.
    """
    whole, facts = results.leaderboard(), score_facts(results.scores)
    board = view.arrange(whole, facts)
    choice = choose_configuration(whole, min_recall)
    chosen = choice.key if choice and choice.qualifies else None
    usual = score_columns(results.scores, board)
    columns = view.shown_columns(board, facts) if view.columns else usual
    table = board_table(results, board, columns, facts, chosen)
    parts = [table.render(*_notes(results, whole, table.legend + _mark_legend(table)))]
    sections = dict.fromkeys(score.section for score in results.scores if score.section)
    for title in () if view.columns else sections:
        columns = score_columns(results.scores, board, title)
        below = board_table(results, board, columns, facts, chosen)
        parts.append(show.render_to_text(Text(title, "bold")))
        parts.append(below.render(below.legend))
    return show.with_conclusion("\n\n".join(parts), results.verdict(min_recall))


def leaderboard_markdown(results: Results, view: TableView = WHOLE_TABLE) -> str:
    """Convert the leaderboard to Markdown, with one table per limit, a legend and notes.

    Parameters
    ----------
    results : Results
        Results of the evaluation.
    view : TableView, optional
        Rows and columns to print; all rows and the usual columns by default.

    Returns
    -------
    str
        Markdown text. Each table has all columns, also the spread of random controls over seeds, and
        its last rows are the controls.
    """
    facts = score_facts(results.scores)
    board = view.arrange(results.leaderboard(), facts)
    usual = [
        *(
            column
            for section in dict.fromkeys(score.section for score in results.scores)
            for column in score_columns(results.scores, board, section)
        ),
        *frame_columns(board, spread_figures(results.scores, board)),
    ]
    columns = view.shown_columns(board, facts) if view.columns else usual
    marks = {name: " (control)" if control_name(name) else "" for name in board["strategy"]}
    names = [f"`{short_strategy(name)}`{marks[name]}" for name in board["strategy"]]
    heads = ["strategy", *(column.head for column in columns)]
    parts = []
    for limit, rows in places_by_limit(board).items():
        places = [i for part in rows for i in part]
        cells = [[names[i], *(column.cells[i] for column in columns)] for i in places]
        parts += [f"Within {_describe_given(results, limit)}:", markdown_table(heads, cells)]
    return "\n\n".join([*parts, *_notes(results, results.leaderboard(), legend_of(columns))])


def board_table(
    results: Results,
    board: pd.DataFrame,
    columns: Sequence[Column],
    facts: Mapping[str, ColumnFacts] = MappingProxyType({}),
    chosen: tuple[float, str] | None = None,
) -> Table:
    """Create a table with one row per strategy, grouped by limit; controls come last in a group.

    On a terminal, controls are dim, and the best values of the strategies that fit the limit are green.
    Requests that exceed the limit or are invalid are red.

    Parameters
    ----------
    results : Results
        Results of the evaluation. The table shows the limits as the user gave them.
    board : DataFrame
        Leaderboard, or another data frame with the columns ``strategy`` and ``limit``.
    columns : sequence of Column
        Columns to show after the names of the strategies.
    facts : mapping of str to ColumnFacts, optional
        What is known about the columns of ``board``; it says which values are the best.
    chosen : (float, str), optional
        Limit and strategy of the row to mark, as the recommended one.

    Returns
    -------
    Table
        Table to print.
    """
    keys = zip(board["limit"], board["strategy"], strict=True)
    cells = [short_strategy(key[1]) + (CHOSEN_MARK if key == chosen else "") for key in keys]
    names = Column("strategy", cells, left=True)
    colored = (replace(each, cell_styles=_cell_styles(each, board, facts)) for each in columns)
    rows: list[tuple[int | str, str]] = []
    for limit, (others, controls) in places_by_limit(board).items():
        rows += [("", "")] if rows else []
        rows.append((f"within {_describe_given(results, limit)}", "bold"))
        rows += [(i, "bold" if cells[i].endswith(CHOSEN_MARK) else "") for i in others]
        rows += [("  controls", "dim italic")] if controls else []
        rows += [(i, "dim") for i in controls]
    return Table([names, *colored], rows)


def _cell_styles(
    column: Column, board: pd.DataFrame, facts: Mapping[str, ColumnFacts]
) -> list[str]:
    """Return a colour for each cell: red for flaws, green for the best values within a limit."""
    styles = [""] * len(board)
    if column.name not in board:
        return styles
    values = board[column.name]
    if column.name in _FLAWS:
        return ["red" if value > 0 else "" for value in values]
    better = find_facts(column.name, facts).better
    flawed = board[[name for name in _DISQUALIFYING if name in board]].gt(0).any(axis=1)
    for others, _ in places_by_limit(board).values():
        sound = values.iloc[[i for i in others if not flawed.iloc[i]]].dropna()
        if better and sound.nunique() > 1:
            best = sound.max() if better == "higher" else sound.min()
            for i in sound.index[sound == best]:
                styles[i] = "green"
    return styles


def _mark_legend(table: Table) -> str:
    """Explain the mark of the recommended row, if a row is marked."""
    is_marked = any(cell.endswith(CHOSEN_MARK) for cell in table.columns[0].cells)
    return f"{' ' if table.legend else ''}*: see the recommendation below." if is_marked else ""


def _describe_given(results: Results, limit: float) -> str:
    """Describe a limit as the user gave it. Data frames convert limits to floats; the spec does not."""
    given: dict[float, float] = {float(each): each for each in results.manifest["spec"]["limits"]}
    return describe_limit(given.get(limit, limit))


def _notes(results: Results, board: pd.DataFrame, legend: str) -> Iterator[str]:
    """Yield the notes below the table: recordings, questions, legend, token counts and fallbacks."""
    manifest = results.manifest
    n_recordings = results.recording_count
    requests = int(board["requests"].max())
    far = results.far_cluster_count
    if far is not None:
        arguments = pluralize(int(board["far_arguments"].max()), "argument")
        rests = f" Far recall is based on {arguments} of tool calls in {pluralize(far, 'cluster')}."
    else:
        rests = ""
    cold = int(board["cold_rate"].max() * requests + 0.5) if "cold_rate" in board else 0
    if cold:
        rests += f" {pluralize(cold, 'request')} found the prompt cache expired."
    yield (
        f"{pluralize(n_recordings, 'recording')} in {pluralize(results.cluster_count, 'cluster')}, "
        f"{pluralize(requests, 'request')}, replayed off-policy: the agent acts as recorded, whatever "
        f"a strategy removes.{rests}"
    )
    if "question_tokens_mean" in board and board["question_tokens_mean"].notna().any():
        yield (
            f"{pluralize(int(board['questions'].max()), 'question')} of the recordings were measured, "
            "each one separately and without a model. Answers that must be inferred are never found "
            "in a request. Short answers can be found by chance."
        )
    yield from [legend] if legend else []
    yield describe_counting(manifest, "cost_usd" in board)
    for strategy, counts in manifest.get("fallbacks", {}).items():
        yield _fallback_sentence(strategy, counts)


def describe_counting(manifest: dict[str, Any], include_prices: bool) -> str:
    """Describe how tokens were counted and, optionally, which prices were used.

    Parameters
    ----------
    manifest : dict
        Manifest of a saved evaluation.
    include_prices : bool
        Also describe the prices.

    Returns
    -------
    str
        One or more sentences.
    """
    alike: dict[str, list[str]] = {}
    for name, note in manifest["tokens"].items():
        alike.setdefault(note.replace(name, _NAME_PLACEHOLDER, 1), []).append(name)
    sentences = (note.replace(_NAME_PLACEHOLDER, " and ".join(it)) for note, it in alike.items())
    counted = list(map(to_sentence, sentences))
    prices = [_price_sentences(manifest["prices"])] if include_prices else []
    return " ".join([*counted, *prices])


_NAME_PLACEHOLDER = "\0"


def _fallback_sentence(strategy: str, counts: dict[str, Any]) -> str:
    """Return a sentence with the number of fallbacks of a strategy and their most common reason."""
    kinds = list(counts["kinds"])
    what = _TEXT_KINDS.get(kinds[0], f"{kinds[0]}s") if len(kinds) == 1 else "texts"
    reason, times = max(counts["reasons"].items(), key=lambda item: item[1])
    found = counts["fallbacks"]
    why = reason if times == found else f"{times:,} times: {reason}"
    return to_sentence(
        f"{found:,} of {counts['written']:,} {what} of {short_strategy(strategy)} were made without the "
        f"model, in whole or in part ({why})"
    )


def _price_sentences(models: dict[str, dict[str, Any]]) -> str:
    """Describe the prices of all models, with equal prices listed once, and add price warnings."""
    alike: dict[str, list[str]] = {}
    sources, warnings = set(), []
    for name, prices in models.items():
        if prices["warning"]:
            # Not capitalized, since it begins with the name of a model.
            warnings.append(prices["warning"].rstrip(".") + ".")
        if not (prices["input"] or prices["output"]):
            continue  # no price is known
        sources.add("litellm's table" if prices["source"] == "litellm" else "ctxlab's own table")
        rates = (f"{what} ${prices[key] * 1e6:.4g}" for what, key in _RATES.items())
        alike.setdefault(", ".join(rates), []).append(name)
    if not alike:
        return " ".join(warnings)
    named = [f"{' and '.join(names)}: {rates}" for rates, names in alike.items()]
    listed = "; ".join(named if len(models) > 1 else alike)
    source = " and ".join(sorted(sources, reverse=True))
    return " ".join([f"Prices per million tokens: {listed} ({source}).", *warnings])
