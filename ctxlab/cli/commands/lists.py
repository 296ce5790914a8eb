"""``ctxlab formats`` and ``ctxlab metrics``: list the formats and the metrics."""

from __future__ import annotations

from ctxlab.cli.output import print_result


def formats() -> None:
    """List the formats of recordings, and for each if ctxlab reads it, writes it or both."""
    from ctxlab.cli.render.format import make_table, render_to_text
    from ctxlab.formats import FORMATS

    rows = [
        ([name, "read, write" if known.dump else "read", known.description], "")
        for name, known in FORMATS.items()
    ]
    print_result(
        render_to_text(
            make_table(["format", "supports", "description"], rows, {0, 1, 2}, wrap_column=2)
        )
    )


def metrics() -> None:
    """List the metrics: the columns that they add to each request and their leaderboard scores."""
    from rich.text import Text

    from ctxlab.cli.render.format import make_table, render_to_text
    from ctxlab.evaluation.metrics import METRICS

    rows: list[tuple[list[str], str]] = []
    for name, metric in METRICS.items():
        rows.append(([name], "bold"))
        rows += [(["  request", c.name, c.unit, c.meaning], "") for c in metric.columns]
        rows += [(["  score", s.name, s.unit, s.meaning], "") for s in metric.scores]
    legend = Text(
        "request: a column of requests.parquet, measured at every request. score: a column of the "
        "leaderboard, over all requests; recall scores also have columns _low and _high, the bounds "
        "of their 95 % interval."
    )
    heads = ["metric", "name", "unit", "description"]
    table = make_table(heads, rows, {0, 1, 2, 3}, wrap_column=3)
    print_result(render_to_text(table, Text(), legend))
