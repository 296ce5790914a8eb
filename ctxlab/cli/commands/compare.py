"""``ctxlab compare`` says how strategies differ on the same requests, and how sure that is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxlab._utils.humanize import quantity
from ctxlab.cli.compare_plan import (
    matched,
    of_those,
    planned,
    written,
)
from ctxlab.cli.notices import (
    say_of_which_model,
    say_what_was_asked,
    say_who_is_asked,
)
from ctxlab.cli.options import (
    AsJson,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Reserve,
    Sample,
    Seed,
    Where,
    given,
    hint_at_skipping,
    reserved,
)
from ctxlab.cli.output import (
    left_out,
    say,
)
from ctxlab.cli.saving import (
    a_folder,
    check_out,
    saving,
)
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

__all__ = ["command"]

_LEAST = 1000
"draws of the bootstrap below which the ends of an interval are noise"


def command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="RUN|PATH",
            help="A saved run, whose figures are taken as they are; or an experiment file or "
            "recordings (a file, a folder, a glob in quotes, bundled:NAME, dataset:NAME), which "
            "are replayed through what is compared.",
        ),
    ],
    strategies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="S…",
            help="Strategies, such as 'tool_stubs | panic', or 'panic @ 16k' within a limit of its "
            "own. Every pair is compared; none named compares all of a run.",
            show_default=False,
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    equal_tokens: Annotated[
        bool,
        typer.Option(
            "--equal-tokens",
            help="Give each strategy after the first the limit under which it sends as many tokens "
            "a request as the first does within its own.",
        ),
    ] = False,
    score: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What to compare (ctxlab metrics). May be repeated."),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=X",
            help="How much worse the first may be and still be no worse: recall_far=0.02, "
            "cost_usd=5%. May be repeated.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="FACT", help="Compare recordings apart by format, model or source."),
    ] = None,
    draws: Annotated[
        int, typer.Option(metavar="N", help="Draws of the bootstrap, 1000 at least.")
    ] = 10_000,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=a_folder, help="Save what was replayed as a run."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX tabular.")] = False,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Compare strategies on the same requests: paired, clustered, with intervals and tests.

    \b
    Examples:
      ctxlab compare runs/a rolling_summary 'tool_stubs | panic'
      ctxlab compare runs/a 'panic @ 16k' 'panic @ 32k' --score recall_far --margin recall_far=0.02
      ctxlab compare logs/ observation_mask sliding_window -l 200k --equal-tokens
      ctxlab compare logs/ 'rolling_summary @ 16k' 'sliding_window @ 32k' --out runs/b
      ctxlab compare runs/a full 'tool_stubs | panic' --by format --latex

    Whole clusters of recordings are drawn: trials of one task are one witness.
    """
    from ctxlab.cli.render.comparison import comparison_text
    from ctxlab.cli.render.format import as_json
    from ctxlab.cli.render.leaderboard import basis
    from ctxlab.evaluation.comparison.paired import compare

    if draws < _LEAST:
        raise SpecError(f"--draws: {_LEAST:,} at least, so that bounds hold, not {draws:,}")
    margins = dict(map(_margin, margin or ()))
    changes = given(
        limits=limit,
        model=model,
        reserve=reserved(reserve),
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    if sum([markdown, latex, json]) > 1:
        raise SpecError("--markdown, --latex or --json: one at a time")
    ran, results, choices = _results(
        path, strategies or [], changes, equal_tokens, out, no_progress
    )
    again = " ".join(shlex.quote(each) for each in (str(out), *choices))
    said = f"saved to {out}; ctxlab compare {again} compares it again"
    with saving(out, ran.save, said):
        found = compare(results, *choices, scores=score, margins=margins, by=by, samples=draws)
        if json:
            rows = zip(*(found.table[name] for name in found.table), strict=True)
            say(as_json(dict(zip(map(str, found.table), row, strict=True)) for row in rows))
        elif markdown or latex:
            say(found.markdown() if markdown else found.latex())
        else:
            priced = "cost_usd" in set(found.table["score"])
            say(comparison_text(found, basis(results.manifest, priced)))


def _results(
    path: str,
    choices: list[str],
    changes: dict[str, Any],
    equal: bool,
    out: Path | None,
    quiet: bool,
) -> tuple[Results, Results, Sequence[str]]:
    """The run, saved earlier or replayed now; of it what is compared; names of the strategies."""
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import is_spec

    if is_spec(path) and Path(path).suffix != ".toml" and not equal:
        others = [*changes, *(["out"] if out is not None else [])]
        if others:
            raise SpecError(
                f"{path} is compared as it was run; {', '.join(sorted(others))} would need a replay: "
                "name the data instead"
            )
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        saved = Results.load(folder)
        return saved, saved, choices
    if not choices:
        raise SpecError("name the strategies to compare, at least two of them")
    plan = planned(path, choices, changes, equal)
    with hint_at_skipping(plan.spec.on_error):
        check_out(out, plan.spec.recordings, plan.spec.models)
    if plan.spec.asked:
        say_who_is_asked(plan.spec)
    progress = False if quiet else None
    with hint_at_skipping(plan.spec.on_error):
        if equal:
            plan = matched(plan, progress)
        results = _replayed(plan.spec, progress)
    say_what_was_asked(results.manifest)
    say_of_which_model(results.manifest["recordings"], plan.spec.model)
    names = [written(each) for each in plan.asked]
    return results, of_those(results, plan), names


def _replayed(spec: Spec, progress: bool | None) -> Results:
    """The run, and what was left out of it, whether or not all goes well."""
    from ctxlab.evaluation.spec import run

    with left_out() as (on_skip, rows):
        results = run(spec, progress, on_skip)
        for recording in results.manifest["recordings"]:
            rows.update(recording["skipped"])
    return results


def _margin(text: str) -> tuple[str, float]:
    name, _, amount = (part.strip() for part in text.partition("="))
    found = quantity(amount)
    if found is None and amount[:1] in "-−" and quantity(amount[1:]):
        raise SpecError(f"--margin: {name}: a margin is 0 or more, not {amount}")
    if found is None or not name:
        raise SpecError(f"--margin: {text!r} is not NAME=X, such as recall_far=0.02 or cost_usd=5%")
    return name, found[0] / 100 if found[1] else float(found[0])
