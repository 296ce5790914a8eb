"""Render the leaderboard of ``ctxlab eval`` as text, Markdown or JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.cli.render import format as show
from ctxlab.evaluation.metrics import Score
from ctxlab.evaluation.recommendation import control_name
from ctxlab.evaluation.results import Results

_DROP_ORDER = (
    *("survival_end", "tokens_peak", "lost_rate", "pointer_rate", "recall", "cached_share"),
    *("invalid_rate", "evidence_pointer_rate", "answer_chance"),
    *("question_tokens_mean", "question_overflow_rate"),
)
"scores whose columns a narrow terminal leaves out, least important first"
_EXTRA_NAME_WIDTH = 12  # added to the least width of names if there are columns of probes
_PROBE_COLUMNS = (
    *("question_tokens_mean", "question_overflow_rate"),
    *("evidence_pointer_rate", "evidence_recall", "answer_containment", "answer_chance"),
    "survival_end",
)
"columns that only recordings with probes or canaries have"
_INTERVAL_MARK = "(95 %)"
_HIDE_WHEN_ZERO = ("strategy_usd", "evidence_pointer_rate")
"columns that are shown only if some value is not zero"
_TEXT_KINDS = {"summary": "summaries", "contents": "contents"}


def leaderboard_json(results: Results) -> str:
    """Return the leaderboard as a JSON array of objects keyed by its columns.

    Parameters
    ----------
    results : Results
        The results.

    Returns
    -------
    str
        The array; limits are written as they were given.
    """
    board, limits_as_given = results.leaderboard(), _limits_as_given(results)
    columns = {str(name): list(board[name]) for name in board}
    columns["limit"] = [limits_as_given.get(limit, limit) for limit in columns["limit"]]
    rows = zip(*columns.values(), strict=True)
    return show.to_json_array(dict(zip(columns, row, strict=True)) for row in rows)


def leaderboard_text(results: Results, min_recall: float) -> str:
    """Return the table, its legend and notes, and the verdict as the last line.

    Parameters
    ----------
    results : Results
        The results.
    min_recall : float
        Far recall that the verdict requires, as a share of full history's.

    Returns
    -------
    str
        The text.
    """
    board = results.leaderboard()
    scores = {score.heading: score for score in _shown_scores(results.scores, board)}
    cells_by_head = {head: _cells(score, board) for head, score in scores.items()}
    names = [*board["strategy"].map(short_strategy)]
    room = show.output_width() - (
        _EXTRA_NAME_WIDTH if _is_shown("question_tokens_mean", board) else 0
    )
    heading_of = {score.name: head for head, score in scores.items()}
    drop_order = [heading_of[name] for name in _DROP_ORDER if name in heading_of]
    heads = show.fit_columns({"\nstrategy": names, **cells_by_head}, drop_order, room)
    rows = rows_by_limit(board, heads, cells_by_head, results.manifest["spec"]["limits"])
    left = {0, *(i for i, head in enumerate(heads) if _INTERVAL_MARK in head)}
    told_of = [scores[head] for head in heads[1:]]
    notes = [Text(sentence, style="dim") for sentence in _notes(results, board, told_of)]
    text = show.render_to_text(show.make_table(heads, rows, left), Text(), *notes)
    verdict = results.verdict(min_recall)
    # In a pipe the verdict stays on one line, so that `tail -n 1` has it.
    last = show.render_to_text(Text(verdict, style="bold")) if sys.stdout.isatty() else verdict
    return f"{text}\n\n{last}"


def leaderboard_markdown(results: Results) -> str:
    """Return the leaderboard as Markdown: one table per limit with all columns, and a legend.

    Parameters
    ----------
    results : Results
        The results.

    Returns
    -------
    str
        The text; controls come last in each table.
    """
    board, limits_as_given = results.leaderboard(), _limits_as_given(results)
    scores = _shown_scores(results.scores, board)
    columns = [_cells(score, board) for score in scores]
    heads = ["strategy", *(" ".join(score.heading.split()) for score in scores)]
    is_control = [bool(control_name(str(name))) for name in board["strategy"]]
    parts = []
    for limit in dict.fromkeys(board["limit"]):
        here = [i for i, each in enumerate(board["limit"]) if each == limit]
        cells = [
            [_markdown_name(str(board["strategy"][i])), *(column[i] for column in columns)]
            for i in sorted(here, key=is_control.__getitem__)
        ]
        parts += [
            f"Within {describe_limit(limits_as_given.get(limit, limit))}:",
            markdown_table(heads, cells),
        ]
    return "\n\n".join([*parts, *_notes(results, board, scores)])


def short_strategy(strategy: str) -> str:
    """Return a strategy without empty parentheses, as it may be typed.

    Parameters
    ----------
    strategy : str
        The text of a strategy.

    Returns
    -------
    str
        The shorter text.

    Examples
    --------
    >>> short_strategy("tool_stubs(keep=3) | panic()")
    'tool_stubs(keep=3) | panic'
    """
    return re.sub(r"(?<=\w)\(\)(?= \||$)", "", strategy)


def describe_limit(limit: float) -> str:
    """Return a limit in words.

    Parameters
    ----------
    limit : float
        Tokens as an int, or a share of each recording as a float.

    Returns
    -------
    str
        The words.

    Examples
    --------
    >>> describe_limit(8000), describe_limit(0.25)
    ('8,000 tokens', '25 % of each recording')
    """
    if isinstance(limit, float) and limit <= 1:
        return f"{limit * 100:.3g} % of each recording"
    return f"{limit:,.0f} tokens"


def rows_by_limit(
    board: pd.DataFrame, heads: list[str], columns: dict[str, list[str]], limits: list[int | float]
) -> Iterator[show.TableRow]:
    """Yield table rows grouped by limit, strategies first and controls last.

    Parameters
    ----------
    board : DataFrame
        A leaderboard.
    heads : list of str
        Headings to show; the first one is the strategy's.
    columns : dict of str to list of str
        Cells by heading.
    limits : list of int or float
        Limits as they were given.

    Yields
    ------
    TableRow
        Cells and style of one row.
    """
    limits_as_given = {float(limit): limit for limit in limits}
    sizes = [
        max(len(line) for text in (h, *columns[h]) for line in text.split("\n")) for h in heads[1:]
    ]
    room = show.output_width() - sum(sizes) - len(sizes)
    for number, limit in enumerate(dict.fromkeys(board["limit"])):
        if number:
            yield [""], ""
        yield [f"within {describe_limit(limits_as_given.get(limit, limit))}"], "bold"
        here = [i for i, each in enumerate(board["limit"]) if each == limit]
        is_control = {i: bool(control_name(board["strategy"][i])) for i in here}
        for control in (False, True):
            if control and any(is_control.values()):
                yield ["  controls"], "dim italic"
            for i in here:
                if is_control[i] == control:
                    name = show.fold_pipeline(short_strategy(board["strategy"][i]), room)
                    yield (
                        [name, *(columns[head][i] for head in heads[1:])],
                        "dim" if control else "",
                    )


def _is_shown(column: str, board: pd.DataFrame) -> bool:
    """Test if a column was measured and has something to show."""
    if column not in board or (column in _PROBE_COLUMNS and board[column].isna().all()):
        return False
    return column not in _HIDE_WHEN_ZERO or not (board[column] == 0).all()


def _markdown_name(strategy: str) -> str:
    """Return a strategy as Markdown code."""
    return f"`{short_strategy(strategy)}`{' (control)' if control_name(strategy) else ''}"


def _shown_scores(scores: Iterable[Score], board: pd.DataFrame) -> list[Score]:
    return [score for score in scores if score.heading and _is_shown(score.name, board)]


def _cells(score: Score, board: pd.DataFrame) -> list[str]:
    """Format the column of a score according to its unit and heading."""
    values = board[score.name]
    if score.unit == "USD":
        return [show.format_usd(value) for value in values]
    if score.unit != "share":
        return [show.format_count(value) for value in values]
    if _INTERVAL_MARK in score.heading:
        bounds = (board[f"{score.name}_{bound}"] for bound in ("low", "high"))
        return [show.format_share_interval(*three) for three in zip(values, *bounds, strict=True)]
    write = show.format_percent if "%" in score.heading else show.format_share
    return [write(value) for value in values]


def _notes(results: Results, board: pd.DataFrame, shown: Collection[Score]) -> Iterator[str]:
    """Yield what the figures are based on and the legend of the shown columns."""
    manifest = results.manifest
    n_recordings = sum(r["requests"] > 0 for r in manifest["recordings"])
    requests = int(board["requests"].max())
    far = results.far_cluster_count
    if far is not None:
        arguments = pluralize(int(board["far_arguments"].max()), "argument")
        rests = f" Far recall is based on {arguments} in {pluralize(far, 'cluster')}."
    else:
        rests = ""
    yield (
        f"{pluralize(n_recordings, 'recording')} in {pluralize(results.cluster_count, 'cluster')}, "
        f"{pluralize(requests, 'request')}, replayed off-policy: the agent acts as recorded, whatever "
        f"a strategy removes.{rests}"
    )
    if _is_shown("question_tokens_mean", board):
        yield (
            f"{pluralize(int(board['questions'].max()), 'question')} of the recordings were measured, "
            "each one alone and without a model. An answer that must be inferred is never in the "
            "request; a short answer can be there by chance."
        )
    if words := "; ".join(score.legend for score in shown if score.legend):
        yield f"{words[:1].upper()}{words[1:]}."
    yield describe_counting(manifest, "cost_usd" in board)
    for strategy, counts in manifest.get("fallbacks", {}).items():
        yield _fallback_sentence(strategy, counts)


def describe_counting(manifest: dict[str, Any], include_prices: bool) -> str:
    """Describe how tokens were counted and, optionally, at which prices.

    Parameters
    ----------
    manifest : dict
        The manifest of a run.
    include_prices : bool
        Include the prices.

    Returns
    -------
    str
        Sentences.
    """
    alike: dict[str, list[str]] = {}
    for name, note in manifest["tokens"].items():
        alike.setdefault(note.replace(name, _NAME_PLACEHOLDER, 1), []).append(name)
    counted = [
        _to_sentence(note.replace(_NAME_PLACEHOLDER, " and ".join(names)))
        for note, names in alike.items()
    ]
    prices = [_price_sentences(manifest["prices"])] if include_prices else []
    return " ".join([*counted, *prices])


_NAME_PLACEHOLDER = "\0"


def _fallback_sentence(strategy: str, counts: dict[str, Any]) -> str:
    """Say how many texts a strategy had to write without its model, and why."""
    kinds = list(counts["kinds"])
    what = _TEXT_KINDS.get(kinds[0], f"{kinds[0]}s") if len(kinds) == 1 else "texts"
    reason, times = max(counts["reasons"].items(), key=lambda item: item[1])
    found = counts["fallbacks"]
    why = reason if times == found else f"{times:,} times: {reason}"
    return _to_sentence(
        f"{found:,} of {counts['written']:,} {what} of {short_strategy(strategy)} were made without the "
        f"model, in whole or in part ({why})"
    )


def _price_sentences(models: dict[str, dict[str, Any]]) -> str:
    """Return the prices of all models, grouped if equal, and warnings about them."""
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
    whose = len(models) > 1
    listed = "; ".join(
        (" and ".join(names) + ": " if whose else "") + rates for rates, names in alike.items()
    )
    source = " and ".join(sorted(sources, reverse=True))
    return " ".join([f"Prices per million tokens: {listed} ({source}).", *warnings])


_RATES = {"input": "input", "cached": "cache_read", "output": "output"}


def _limits_as_given(results: Results) -> dict[float, int | float]:
    """Map limits to the way they were given; the frame stores all of them as floats."""
    return {float(limit): limit for limit in results.manifest["spec"]["limits"]}


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
