"""``ctxlab products``: what the default context strategies of products cost, and what they forget."""

from __future__ import annotations

from ctxlab.cli.notices import note_strategy_models
from ctxlab.cli.options import READING, TABLE, Options, flag, option, with_options
from ctxlab.cli.output import print_result, report_skipped
from ctxlab.cli.saving import save_then_print


@with_options(
    "data strategies limits model"
    + READING
    + " on_error out"
    + TABLE
    + " json no_cache no_progress",
    strategies="Strategy to compare, such as claude_code or 'codex(trigger=0.5)'. May be repeated. "
    "Default: the newest baseline of every product, beside full history, the recorded compactions, a "
    "sliding window, excerpt_memory and controls.",
    limits="Context window in tokens (200000, 200k), with the system prompt and tools that no log "
    "contains. May be repeated. Default: 200k.",
    seed="Seed for planting the constraints and drawing the sample. Default: 0.",
    out="Save the table (products.parquet, products.csv) and its evaluations to this folder. If the run "
    "stops, the same command goes on where it stopped.",
)
def command(
    options: Options,
    constraints: int = option(
        "--constraints N",
        "Number of constraints that are planted in a copy of each recording; 0: none.",
        default=10,
    ),
    no_closed_loop: bool = flag(
        "--no-closed-loop",
        "Do not replay with an agent that fetches again what it needs. Takes a third of the time.",
    ),
    markdown: bool = flag("--markdown", "Print Markdown, with one table per limit."),
) -> None:
    """Replay recordings through the defaults of products: what each costs, and what it forgets.

    Examples
    --------
    ctxlab products ~/.claude/projects         all, in a window of 200k
    ctxlab products logs/ -l 128k -s codex     two, smaller window
    ctxlab products logs/ --out runs/products  keep all measurements
    ctxlab strategies claude_code              what it does, and settings

    Only recordings that are longer than the window are replayed, because a product does nothing to
    shorter ones. Costs are shares of the cost of the full history. Summaries are extracted without a
    model: a product's own summary costs more, and may keep more. The agent acts as recorded, whatever a
    product removed.
    """
    from ctxlab._utils.humanize import parse_limit
    from ctxlab.cli.render import products as render
    from ctxlab.evaluation.products import COLUMN_NAMES, DEFAULT_WINDOWS, compare_products

    view = options.view
    view.check(COLUMN_NAMES)
    spec = options.spec()
    note_strategy_models(spec)
    limits = [parse_limit(each) for each in options.changes.get("limits") or DEFAULT_WINDOWS]
    with report_skipped(spec.on_error) as skipped:
        recordings = list(skipped.counting(spec.recordings(skipped)))
    found = compare_products(
        recordings, limits, options.changes.get("strategies"), spec.model,
        constraints=constraints, closed_loop=not no_closed_loop, seed=spec.seed,
        progress=options.progress, profile=spec.profiles, folder=options.out,
    )  # fmt: skip
    with save_then_print(options.out, found.save, f"saved to {options.out}"):
        if options.json or options.csv:
            print_result(render.products_data(found, view, as_csv=options.csv))
        elif markdown:
            print_result(render.products_markdown(found, view))
        else:
            print_result(render.products_text(found, view))
