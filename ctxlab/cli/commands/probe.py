"""``ctxlab probe``: ask a model the questions of recordings, with the context of each strategy."""

from __future__ import annotations

from ctxlab.cli.options import ASKING, READING, TABLE, Options, option, with_options
from ctxlab.cli.probing import ask_model


@with_options(
    "data answer_model strategies limits model reserve"
    + ASKING
    + READING
    + " on_error out"
    + TABLE
    + " json no_cache no_progress",
    strategies="Strategy to evaluate, such as 'rolling_summary | panic'. May be repeated. Default: "
    "full (upper bound), sliding_window and nothing (lower bound).",
    out="Save the run and all replies of the model to this folder.",
)
def command(
    options: Options,
    judge_model: list[str] | None = option(
        "--judge-model -j MODEL",
        "Model that grades the replies by a fixed rubric. May be repeated; the agreement between "
        "the judges is then reported. Default: no judge.",
    ),
    max_tokens: int | None = option(
        "--max-tokens N", "Maximum tokens of a reply, including hidden reasoning. Default: 1024."
    ),
) -> None:
    """Ask a model questions about recordings (probes), with the context that each strategy would send.

    The replies are compared with the accepted answers in the recording.

    Examples
    --------
    ctxlab probe dataset:locomo -a gpt-5-mini --dry-run  estimate the cost
    ctxlab probe dataset:locomo -a gpt-5-mini -l 4k -l 16k --max-cost 5
    ctxlab probe chats/ -a gpt-5-mini -s lineup -j gpt-5 --out run

    Answers are cached. If a run was stopped, repeat the command to continue it. If a run was complete,
    the same command calls no model and prints the same results.

    To use another server, set OPENAI_BASE_URL, which litellm reads. To measure without a model whether
    the answers are in the context, use ctxlab eval --metric probes.
    """
    from ctxlab.cli.render.probe import qa_text
    from ctxlab.evaluation.grid import ExperimentGrid
    from ctxlab.evaluation.probing.qa import DEFAULT_MAX_TOKENS, DEFAULT_QA_STRATEGIES, QAPlan

    spec = options.spec(strategies=tuple(DEFAULT_QA_STRATEGIES))
    grid = ExperimentGrid.from_arguments(
        spec.strategies, spec.limits, spec.model, spec.reserve, (), spec.profiles
    )
    most = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    plan = QAPlan(grid, options.answer_model, tuple(judge_model or ()), options.replicates, most)
    ask_model(options, spec, plan, qa_text)
