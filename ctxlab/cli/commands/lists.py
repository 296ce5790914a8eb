"""``ctxlab formats`` and ``ctxlab metrics``: list the formats of recordings and the metrics."""

from __future__ import annotations

from ctxlab.cli.output import print_result


def formats() -> None:
    """List the formats of recordings, and whether ctxlab can only read a format or also write it."""
    from ctxlab.cli.render.table import Table
    from ctxlab.evaluation.columns import text_columns
    from ctxlab.formats import FORMATS

    access = {True: "read, write", False: "read"}
    rows = [(name, access[bool(it.dump)], it.description) for name, it in FORMATS.items()]
    columns = text_columns(("format", "supports", "description"), rows)
    print_result(Table(columns, wrap=2, prose=True).render())


def metrics() -> None:
    """List the metrics: the values measured at each request, and the scores of the leaderboard."""
    from ctxlab.cli.render.table import Table
    from ctxlab.evaluation.columns import text_columns
    from ctxlab.evaluation.metrics import METRICS

    rows: list[tuple[int | str, str]] = []
    cells: list[tuple[str, ...]] = []
    for name, metric in METRICS.items():
        rows.append((name, "bold"))
        for kind, figures in (("  request", metric.columns), ("  score", metric.scores)):
            for each in figures:
                rows.append((len(cells), ""))
                cells.append((kind, each.name, each.unit, each.meaning))
    columns = text_columns(("metric", "name", "unit", "description"), cells)
    legend = (
        "request: a column of requests.parquet, which is measured at every request. score: a column "
        "of the leaderboard, computed over all requests. Recall scores also have columns with the "
        "suffixes _low and _high, the bounds of the 95 % interval. In view: the request contains the "
        "name, value or message. Fetchable: the agent can read it again with a tool call."
    )
    print_result(Table(columns, rows, wrap=3, prose=True).render(legend))
