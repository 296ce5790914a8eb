"""``ctxlab next-action``: ask a model for the next tool call and compare it with the recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
from ctxlab.errors import ReadError, SpecError


def command(
    paths: Paths,
    answer_model: AnswerModel,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="STRATEGY",
            help="Strategy to evaluate, such as 'observation_mask | panic'. May be repeated. Default: "
            "full (the upper bound), a mask, a window, nothing (the lower bound).",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    requests_per_recording: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Requests to ask at in each recording, spread over its length; 0 means all.",
        ),
    ] = 20,
    replicates: Replicates = 1,
    include_text_only: Annotated[
        bool,
        typer.Option(
            "--include-text-only", help="Also ask at requests where the agent called no tool."
        ),
    ] = False,
    only_changed: Annotated[
        bool,
        typer.Option(
            "--only-changed",
            help="Ask only at requests whose context at least one strategy changes.",
        ),
    ] = False,
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with a list of tool definitions [the recorded ones, else derived from the "
            "recorded calls].",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Most tokens of a reply.")] = 4096,
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
            help="Save the run and all answers to this folder.",
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Ask a model for the next tool call under each strategy and compare it with the recorded call.

    \b
    Examples:
      ctxlab next-action logs/ -a gpt-5-mini --dry-run           estimate the cost
      ctxlab next-action logs/ -a gpt-5-mini -l 16k --max-cost 5 --out run
      ctxlab next-action logs/ -a gpt-5-mini -s full -s panic --only-changed

    Answers are cached: the same command run again calls no model and prints the same results.
    """
    from ctxlab.cli.render.next_action import next_action_json, next_action_text
    from ctxlab.evaluation.experiment import ExperimentGrid
    from ctxlab.evaluation.probing.next_action import DEFAULT_NEXT_ACTION_STRATEGIES, NextActionPlan

    spec = make_spec(
        paths,
        strategies=tuple(strategy or DEFAULT_NEXT_ACTION_STRATEGIES),
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
    plan = NextActionPlan(
        grid,
        answer_model,
        requests_per_recording,
        replicates,
        None if tools is None else _read_tool_definitions(tools),
        include_text_only,
        only_changed,
        max_tokens,
        spec.seed,
    )
    if not dry_run:
        with suggest_on_error_skip(spec.on_error):
            check_output_folder(out, spec.recordings, spec.model_choice, "agreement", answer_model)
    client = make_client(spec, max_cost, concurrency)
    bar = False if no_progress else None
    with suggest_on_error_skip(spec.on_error), note_kept_answers_on_cancel(spec):
        (before,) = apply_to_recordings(spec, lambda found: plan.estimate_cost(found, client, bar))
        cost = estimate_text(before, plan.answer_model, spec.calls)
        print_note(f"{pluralize(before.questions, 'question')}{cost}")
        note_cost_terms(spec, max_cost)
        if dry_run:
            if json:
                print_result(estimate_json([(plan.answer_model, before)]))
            return
        found = plan.run(spec.recordings(), client, spec.data, bar, before.questions)
    add_spec_to_manifest(found, spec)
    note_strategy_calls(found.manifest)
    note_counting_model(found.manifest["recordings"], spec.model)
    with save_then_print(out, found.save, f"saved to {out}; answers.parquet contains all answers"):
        print_result(next_action_json(found) if json else next_action_text(found))


def _read_tool_definitions(path: Path) -> tuple[dict[str, Any], ...]:
    from ctxlab._utils.jsonio import parse_json

    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except ValueError:
        raise ReadError(
            path, None, "expected a JSON list of tool definitions, but this is not JSON"
        ) from None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise SpecError(
            f"{path}: expected a JSON list of tool definitions, as objects in OpenAI's format"
        )
    return tuple(found)
