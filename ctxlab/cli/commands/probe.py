"""``ctxlab probe`` asks a model the questions of recordings, with what every strategy would send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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

__all__ = ["command"]


def command(
    paths: Paths,
    answer_model: AnswerModel,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(
            "--judge-model",
            "-j",
            metavar="M",
            help="Who judges the replies by a written rubric. May be repeated: then it is said how far "
            "they agree.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="S",
            help="Such as 'rolling_summary | panic'; may be repeated. Left out: full (the ceiling), a "
            "window, nothing (the floor).",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    replicates: Replicates = 1,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Tokens that a reply may take, hidden reasoning included [1024]."
        ),
    ] = None,
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
            metavar="DIR", parser=a_folder, help="Save the run, and every reply beside it."
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Ask a model the questions of recordings, with what every strategy would send there.

    \b
    Examples:
      ctxlab probe dataset:locomo -a gpt-5-mini --dry-run        what it would cost
      ctxlab probe dataset:locomo -a gpt-5-mini -l 4k -l 16k --max-cost 5
      ctxlab probe chats/ -a gpt-5-mini -s lineup -j gpt-5 -j claude-sonnet-4-5 --out run

    Answers are kept as they come. A run that was stopped goes on where it was, and the same command once
    more asks nothing and says the same. Another server: OPENAI_BASE_URL, as litellm reads it. Without a
    model: ctxlab eval --metric probes
    """
    from ctxlab.cli.render.probe import (
        exam_json,
        exam_text,
    )
    from ctxlab.evaluation.experiment import Grid
    from ctxlab.evaluation.probing.qa import (
        CONTRASTED,
        carry_out,
        foresee,
    )
    from ctxlab.evaluation.probing.qa_plan import (
        REPLY,
        Paper,
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
    grid = Grid.make(spec.strategies, spec.limits, spec.model, spec.reserve, (), spec.profiles)
    judges = tuple(judge_model or ())
    most = REPLY if max_tokens is None else max_tokens
    paper = Paper(grid, answer_model, judges, replicates, most)
    if not dry_run:
        with hint_at_skipping(spec.on_error):
            check_out(out, spec.recordings, spec.models, "exam", answer_model)
    client = client_of(spec, max_cost, concurrency)
    bar = False if no_progress else None
    with hint_at_skipping(spec.on_error), kept_when_cancelled(spec):
        before = foreseen(spec, lambda found: foresee(paper, found, client, bar))
        questions = many(before.answers.questions, "question")
        note(f"{questions}{taken(before.answers, answer_model, spec.calls)}")
        for judge, each in zip(judges, before.judges, strict=True):
            note(f"{many(each.questions, 'verdict')}{taken(each, judge, spec.calls)}")
        say_terms(spec, max_cost)
        if dry_run:
            if json:
                models = (answer_model, *judges)
                parts = zip(models, (before.answers, *before.judges), strict=True)
                say(estimate_json(parts))
            return
        found = carry_out(paper, spec.recordings(), client, spec.data, bar, before.replies)
    completed(found, spec)
    say_what_was_asked(found.manifest)
    say_of_which_model(found.manifest["recordings"], spec.model)
    with saving(out, found.save, f"saved to {out}; answers.parquet has every reply"):
        say(exam_json(found) if json else exam_text(found))
