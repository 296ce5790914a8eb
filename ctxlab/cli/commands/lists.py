"""``ctxlab formats`` and ``ctxlab metrics``: list the formats and the metrics."""

from __future__ import annotations

from ctxlab.cli.output import print_result


def formats() -> None:
    """List the formats of recordings, and for each if ctxlab reads it, writes it or both."""
    from ctxlab.cli.render.table import Table, text_columns
    from ctxlab.formats import FORMATS

    access = {True: "read, write", False: "read"}
    rows = [(name, access[bool(it.dump)], it.description) for name, it in FORMATS.items()]
    columns = text_columns(("format", "supports", "description"), rows)
    print_result(Table(columns, wrap=2, prose=True).render())


def metrics() -> None:
    """List the metrics: the columns that they add to each request and their leaderboard scores."""
    from ctxlab.cli.render.table import Table, text_columns
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
        "request: a column of requests.parquet, measured at every request. score: a column of the "
        "leaderboard, over all requests; recall scores also have columns _low and _high, the bounds "
        "of their 95 % interval."
    )
    print_result(Table(columns, rows, wrap=3, prose=True).render(legend))
