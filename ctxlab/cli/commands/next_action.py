"""``ctxlab agree`` asks a model for the next tool call and says how often it is the recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ctxlab._utils.humanize import many
from ctxlab.cli.llm_options import (
    AnswerModel,
    Concurrency,
    DryRun,
    MaxCost,
    Replicates,
    client_of,
    completed,
    estimate_json,
    foreseen,
    kept_when_cancelled,
    say_terms,
    taken,
)
from ctxlab.cli.notices import (
    say_of_which_model,
    say_what_was_asked,
)
from ctxlab.cli.options import (
    AsJson,
    Calls,
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
    chosen,
    hint_at_skipping,
    reserved,
)
from ctxlab.cli.output import (
    note,
    say,
)
from ctxlab.cli.saving import (
    a_folder,
    check_out,
    saving,
)
from ctxlab.errors import (
    ReadError,
    SpecError,
)

__all__ = ["command"]


def command(
    paths: Paths,
    answer_model: AnswerModel,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="S",
            help="Such as 'observation_mask | panic'; may be repeated. Left out: full (the ceiling), "
            "a mask, a window, nothing (the floor).",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    requests: Annotated[
        int,
        typer.Option(metavar="N", help="Drawn of each recording, from all of its length; 0: all."),
    ] = 20,
    replicates: Replicates = 1,
    texts: Annotated[
        bool, typer.Option("--texts", help="Also ask at turns where the agent called no tool.")
    ] = False,
    differing: Annotated[
        bool,
        typer.Option(
            "--differing", help="Only draw requests from which some strategy leaves something out."
        ),
    ] = False,
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON list of tool definitions. Left out: the recorded ones, or what the calls show.",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="Tokens that a reply may take.")
    ] = 4096,
    max_cost: MaxCost = None,
    calls: Calls = None,
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
            metavar="DIR", parser=a_folder, help="Save the run, and every answer beside it."
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Ask a model for the next tool call under every strategy, and compare it with the recorded one.

    \b
    Examples:
      ctxlab agree logs/ -a gpt-5-mini --dry-run                what it would cost
      ctxlab agree logs/ -a gpt-5-mini -l 16k --max-cost 5
      ctxlab agree logs/ -a gpt-5-mini -s full -s 'panic' --replicates 3 --differing --out run

    Answers are kept, so that the same command once more asks nothing and says the same.
    """
    from ctxlab.cli.render.next_action import (
        agreement_json,
        agreement_text,
    )
    from ctxlab.evaluation.probing.next_action import (
        CONTRASTED,
        carry_out,
        forecast,
        planned,
    )

    spec = chosen(
        paths,
        strategies=tuple(strategy or CONTRASTED),
        limits=limit,
        model=model,
        reserve=reserved(reserve),
        calls=calls,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    plan = planned(
        spec.strategies,
        spec.limits,
        spec.model,
        answer_model=answer_model,
        requests=requests,
        replicates=replicates,
        tools=None if tools is None else _definitions(tools),
        texts=texts,
        differing=differing,
        max_tokens=max_tokens,
        reserve=spec.reserve,
        profile=spec.profiles,
        seed=spec.seed,
    )
    if not dry_run:
        with hint_at_skipping(spec.on_error):
            check_out(out, spec.recordings, spec.models, "agreement", answer_model)
    client = client_of(spec, max_cost, concurrency)
    bar = False if no_progress else None
    with hint_at_skipping(spec.on_error), kept_when_cancelled(spec):
        before = foreseen(spec, lambda found: forecast(plan, found, client, bar))
        note(f"{many(before.questions, 'question')}{taken(before, plan.answer_model, spec.calls)}")
        say_terms(spec, max_cost)
        if dry_run:
            if json:
                say(estimate_json([(plan.answer_model, before)]))
            return
        found = carry_out(
            plan, spec.recordings(), client, spec.data, bar, questions=before.questions
        )
    completed(found, spec)
    say_what_was_asked(found.manifest)
    say_of_which_model(found.manifest["recordings"], spec.model)
    with saving(out, found.save, f"saved to {out}; answers.parquet has every answer"):
        say(agreement_json(found) if json else agreement_text(found))


def _definitions(path: Path) -> list[dict[str, Any]]:
    from ctxlab._utils.jsonio import parse_json

    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except ValueError:
        raise ReadError(
            path, None, "tool definitions are a JSON list, and this is no JSON"
        ) from None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise SpecError(f"{path}: tool definitions are a JSON list of objects in OpenAI's shape")
    return found
