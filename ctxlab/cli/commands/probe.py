"""``ctxlab probe``: ask a model the questions of recordings, under each strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.llm_options import (
    AnswerModel,
    Concurrency,
    DryRun,
    MaxCost,
    Replicates,
    add_spec_to_manifest,
    apply_to_recordings,
    estimate_json,
    estimate_text,
    make_client,
    note_cost_terms,
    note_kept_answers_on_cancel,
)
from ctxlab.cli.notices import note_counting_model, note_strategy_calls
from ctxlab.cli.options import (
    AsJson,
    CacheModeOption,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Paths,
    Reserve,
    Sample,
    Seed,
    Where,
    make_spec,
    parse_reserve,
    suggest_on_error_skip,
)
from ctxlab.cli.output import print_note, print_result
from ctxlab.cli.saving import check_output_folder, parse_out_folder, save_then_print


def command(
    paths: Paths,
    answer_model: AnswerModel,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(
            "--judge-model",
            "-j",
            metavar="MODEL",
            help="Model that judges replies with a fixed rubric. May be repeated; the agreement of the "
            "judges is then reported.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="STRATEGY",
            help="Strategy to evaluate, such as 'rolling_summary | panic'. May be repeated. Default: "
            "full (the upper bound), a window, nothing (the lower bound).",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    replicates: Replicates = 1,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tokens of a reply, hidden reasoning included [1024]."),
    ] = None,
    max_cost: MaxCost = None,
    cache_mode: CacheModeOption = None,
    concurrency: Concurrency = None,
    dry_run: DryRun = False,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=parse_out_folder,
            help="Save the run and all replies to this folder.",
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Ask a model the questions of recordings (probes), with the context that each strategy would send.

    \b
    Examples:
      ctxlab probe dataset:locomo -a gpt-5-mini --dry-run        estimate the cost
      ctxlab probe dataset:locomo -a gpt-5-mini -l 4k -l 16k --max-cost 5
      ctxlab probe chats/ -a gpt-5-mini -s lineup -j gpt-5 -j claude-sonnet-4-5 --out run

    Answers are cached as they arrive. A run that was stopped continues where it was; the same command
    run again calls no model and prints the same results.

    To use another server, set OPENAI_BASE_URL, which litellm reads. To measure probes without a model,
    use ctxlab eval --metric probes.
    """
    from ctxlab.cli.render.probe import qa_json, qa_text
    from ctxlab.evaluation.experiment import ExperimentGrid
    from ctxlab.evaluation.probing.qa import DEFAULT_MAX_TOKENS, DEFAULT_QA_STRATEGIES, QAPlan

    spec = make_spec(
        paths,
        strategies=tuple(strategy or DEFAULT_QA_STRATEGIES),
        limits=limit,
        model=model,
        reserve=parse_reserve(reserve),
        calls=cache_mode,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    grid = ExperimentGrid.from_arguments(
        spec.strategies, spec.limits, spec.model, spec.reserve, (), spec.profiles
    )
    most = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    plan = QAPlan(grid, answer_model, tuple(judge_model or ()), replicates, most)
    if not dry_run:
        with suggest_on_error_skip(spec.on_error):
            check_output_folder(out, spec.recordings, spec.model_choice, "exam", answer_model)
    client = make_client(spec, max_cost, concurrency)
    bar = False if no_progress else None
    with suggest_on_error_skip(spec.on_error), note_kept_answers_on_cancel(spec):
        before = apply_to_recordings(spec, lambda found: plan.estimate_cost(found, client, bar))
        for number, (name, each) in enumerate(zip(plan.models, before, strict=True)):
            asked = pluralize(each.questions, "verdict" if number else "question")
            print_note(f"{asked}{estimate_text(each, name, spec.calls)}")
        note_cost_terms(spec, max_cost)
        if dry_run:
            if json:
                print_result(estimate_json(zip(plan.models, before, strict=True)))
            return
        total = sum(each.questions for each in before)
        found = plan.run(spec.recordings(), client, spec.data, bar, total)
    add_spec_to_manifest(found, spec)
    note_strategy_calls(found.manifest)
    note_counting_model(found.manifest["recordings"], spec.model)
    with save_then_print(out, found.save, f"saved to {out}; answers.parquet contains all replies"):
        print_result(qa_json(found) if json else qa_text(found))
