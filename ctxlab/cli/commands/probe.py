"""``ctxlab probe``: ask a model the questions of recordings, under each strategy."""

from __future__ import annotations

from ctxlab.cli.options import ASKING, READING, Options, option, with_options
from ctxlab.cli.probing import ask_model


@with_options(
    "data answer_model strategies limits model reserve" + ASKING + READING + " on_error out json "
    "no_progress",
    strategies="Strategy to evaluate, such as 'rolling_summary | panic'. May be repeated. Default: "
    "full (the upper bound), a window, nothing (the lower bound).",
    out="Save the run and all replies to this folder.",
)
def command(
    options: Options,
    judge_model: list[str] | None = option(
        "--judge-model -j MODEL",
        "Model that judges replies with a fixed rubric. May be repeated; the agreement of the "
        "judges is then reported.",
    ),
    max_tokens: int | None = option(
        "--max-tokens N", "Most tokens of a reply, hidden reasoning included [1024]."
    ),
) -> None:
    """Ask a model the questions of recordings (probes), with the context that each strategy would send.

    Examples
    --------
    ctxlab probe dataset:locomo -a gpt-5-mini --dry-run        estimate the cost
    ctxlab probe dataset:locomo -a gpt-5-mini -l 4k -l 16k --max-cost 5
    ctxlab probe chats/ -a gpt-5-mini -s lineup -j gpt-5 -j claude-sonnet-4-5 --out run

    Answers are cached as they arrive. A run that was stopped continues where it was; the same command
    run again calls no model and prints the same results.

    To use another server, set OPENAI_BASE_URL, which litellm reads. To measure probes without a model,
    use ctxlab eval --metric probes.
    """
    from ctxlab.cli.render.probe import qa_text
    from ctxlab.evaluation.experiment import ExperimentGrid
    from ctxlab.evaluation.probing.qa import DEFAULT_MAX_TOKENS, DEFAULT_QA_STRATEGIES, QAPlan

    spec = options.spec(strategies=tuple(DEFAULT_QA_STRATEGIES))
    grid = ExperimentGrid.from_arguments(
        spec.strategies, spec.limits, spec.model, spec.reserve, (), spec.profiles
    )
    most = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    plan = QAPlan(grid, options.answer_model, tuple(judge_model or ()), options.replicates, most)
    ask_model(options, spec, plan, qa_text)
