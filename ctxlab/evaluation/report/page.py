"""Page of a report: the verdict, the other tables and the methods as HTML, around the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.evaluation.columns import Column, score_columns, short_strategy
from ctxlab.evaluation.frontend import render_page, text_to_html
from ctxlab.evaluation.html import board_rows, paragraph, table_html
from ctxlab.evaluation.metrics.recall import FAR_TOKENS

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results

_METHODS = (
    "Each recording was replayed: before each recorded model call, the strategy built the request "
    "that it would have sent. The replay is off-policy: the agent acts as recorded, whatever the "
    "request holds.",
    "A need is a name or value that a tool call of the agent used and that an earlier message "
    "mentioned. It is held if an unchanged message or a quoted line shows it, named if only another "
    "text contains it, a pointer if it is not in the request but can be fetched again, and lost "
    f"otherwise. It is far if it was last mentioned more than {FAR_TOKENS:,} tokens earlier. Recall is "
    "availability: an upper bound on what a model uses.",
    "Intervals are 95 % bootstrap intervals over clusters. A cluster has the recordings of one task. "
    "With fewer than five clusters there are no intervals. Differences are of the same requests.",
    "The cheapest of many rows is chosen partly by chance, so its recall on the recordings that chose "
    "it is optimistic. ctxlab tune chooses on one part of the recordings and measures on another.",
)


def render_report(results: Results, document: dict[str, Any], title: str, min_recall: float) -> str:
    """Render the page of a report.

    Parameters
    ----------
    results : Results
        Results of the run.
    document : dict
        Document of ``make_document``.
    title : str
        Title.
    min_recall : float
        Minimum of the headline recall of a recommended strategy.

    Returns
    -------
    str
        HTML.
    """
    import ctxlab

    board = results.leaderboard()
    names = Column("strategy", [short_strategy(name) for name in board["strategy"]], left=True)
    parts = {
        "title": text_to_html(title),
        "version": ctxlab.__version__,
        "answer": text_to_html(document["answer"]),
        "verdict": text_to_html(results.verdict(min_recall)),
        "facts": text_to_html(_facts(results)),
        "board": table_html([names, *score_columns(results.scores, board)], board_rows(board)),
        "sections": "".join(_sections(results, names)),
        "methods": "".join(paragraph(text) for text in (*_METHODS, results.model_note)),
        "manifest": text_to_html(_indent(results.manifest)),
    }
    return render_page("report.html", "report.js", document, parts)


def _facts(results: Results) -> str:
    clusters = pluralize(results.cluster_count, "cluster")
    requests = int(results.leaderboard()["requests"].max())
    counted = pluralize(results.recording_count, "recording")
    return f"{counted} in {clusters}, {requests:,} requests. {results.model_note}"


def _sections(results: Results, names: Column) -> Iterator[str]:
    """Yield the tables of further sections of the leaderboard, such as the closed loop."""
    board = results.leaderboard()
    for title in dict.fromkeys(score.section for score in results.scores if score.section):
        columns = score_columns(results.scores, board, title)
        if columns:
            head = f"{title[:1].upper()}{title[1:]}"
            table = table_html([names, *columns], board_rows(board))
            yield f"<section><h2>{text_to_html(head)}</h2>{table}</section>"


def _indent(manifest: dict[str, Any]) -> str:
    """Return the manifest as JSON text, without the list of scores."""
    shown = {key: value for key, value in manifest.items() if key not in ("scores", "draws")}
    return json.dumps(parse_json(dump_json(shown).encode()), indent=1, ensure_ascii=False)
