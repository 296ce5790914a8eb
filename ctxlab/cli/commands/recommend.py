"""``ctxlab recommend``: the setting of one's product that the logs of one's work recommend."""

from __future__ import annotations

from ctxlab.cli.options import READING, Options, complete_from, option, with_options
from ctxlab.cli.output import print_result, report_skipped
from ctxlab.cli.saving import check_recommendation_folder, save_then_print
from ctxlab.errors import SpecError


def _product_names() -> list[str]:
    from ctxlab.strategies.baselines import BASELINES

    return [name for name, each in BASELINES.items() if not each.superseded_by]


@with_options(
    "data limits model reserve min_recall cache_ttl" + READING + " on_error out json no_cache "
    "no_progress",
    limits="TOKENS:: Context window, such as 200k. Default: the logged one, that of the product, or the "
    "input limit of the model.",
    reserve="Part of the window to keep free for the reply, in tokens, such as 8000 or 8k. Default: the "
    "longest logged reply.",
    min_recall="Minimum held far recall of a setting, as a share of that of the default. Default: 0.95.",
    seed="Seed for drawing the held-out recordings and the sample. Default: 0.",
    out="Save the recommendation (recommendation.json) and the evaluation behind it to this folder.",
)
def command(
    options: Options,
    product: str | None = option(
        "--for PRODUCT",
        "Product to set up, such as claude-code, codex or opencode; ctxlab strategies lists the "
        "baselines. Default: the one that wrote most of the logs.",
        autocompletion=complete_from(_product_names),
    ),
    holdout: float = option(
        "--holdout SHARE",
        "Share of the recordings that the choice does not use and that measure it. With 0, or with "
        "fewer than seven sessions, the same recordings choose and measure.",
        default=0.5,
    ),
) -> None:
    """Recommend the setting of your product: what to write where, what it saves and what it forgets.

    Examples
    --------
    ctxlab recommend ~/.claude/projects                  Claude Code, as its logs tell
    ctxlab recommend ~/.codex/sessions --sample 40       a random part of many sessions
    ctxlab recommend logs/ --for pi -l 128k -m gpt-5     another product for the same work
    ctxlab recommend logs/ --json                        every figure, and each setting that was tried

    The settings of the product are replayed over half of the sessions, beside strategies that any agent
    can use. The cheapest one is then measured on the other half, of those that keep at least 95 % of
    the held far recall of the default: of the names and values that the agent used over 4,000 tokens
    after they were mentioned, the share that is still in the request. It is recommended if it saves 5 %
    or more there, and something even if the agent fetches again what it lacks.

    The answer has four lines: what to write in which file, the saving against the default and the
    recorded requests, what is forgotten, and how sure that is. A fifth line names a strategy for any
    agent, if it is clearly better. What was assumed, such as the context window, follows.

    Recall is availability: what a request contains, and not what a model makes of it. The agent acts as
    recorded, whatever was removed. Summaries are extracted without a model.
    """
    from ctxlab._utils.humanize import parse_limit
    from ctxlab.cli.render.recommendation import recommendation_json, recommendation_text
    from ctxlab.evaluation.recommendation import recommend

    spec = options.spec()
    limits = options.limits or []
    if len(limits) > 1:
        raise SpecError(f"--limit: expected one context window, got {len(limits)}; name one")
    windows = [parse_limit(each) for each in limits]
    if windows and windows[0] <= 1:
        raise SpecError(f"--limit: expected a context window in tokens, got {limits[0]}")
    check_recommendation_folder(options.out)
    with report_skipped(spec.on_error) as skipped:
        recordings = list(skipped.counting(spec.recordings(skipped)))
    try:
        found = recommend(
            recordings, product, int(windows[0]) if windows else None, spec.model,
            reserve=options.reserve, cache_ttl=spec.cache_ttl, min_recall=spec.min_recall,
            holdout=holdout, seed=spec.seed, progress=options.progress, profile=spec.profiles,
        )  # fmt: skip
    except SpecError as error:
        raise SpecError(_use_option_names(str(error))) from None
    with save_then_print(options.out, found.save, f"saved to {options.out}"):
        print_result(recommendation_json(found) if options.json else recommendation_text(found))


_ERROR_REPLACEMENTS = (
    ("name the product", "name the product with --for"),
    ("name a model that is priced alike", "name a model that is priced alike with --model"),
    ("min_recall: ", "--min-recall: "),
    ("holdout must be", "--holdout must be"),
)
"phrases that name Python arguments in the errors of ``recommend``, each with its form here"


def _use_option_names(message: str) -> str:
    for there, here in _ERROR_REPLACEMENTS:
        message = message.replace(there, here)
    return message
