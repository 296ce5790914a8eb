"""``ctxlab canaries``: plant facts in recordings and measure which ones each strategy keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import (
    AsJson,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Paths,
    Sample,
    Where,
    make_spec,
    suggest_on_error_skip,
)
from ctxlab.cli.output import note_skipped, print_note, print_result, report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.canaries import CanaryPlanter
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording

_BREAKDOWNS = ("kind", "depth", "round", "distance", "role")


def command(
    paths: Paths,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="STRATEGY",
            help="Strategy to measure, such as 'tool_stubs(keep=3) | panic' [the default lineup]. May "
            "be repeated.",
        ),
    ] = None,
    limit: Limits = None,
    count: Annotated[
        int, typer.Option("--number", "-n", metavar="N", help="Canaries per recording.")
    ] = 10,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Kind of canary: fact, constraint, decision, path or superseded [all]. May be "
            "repeated.",
        ),
    ] = None,
    depth: Annotated[
        list[float] | None,
        typer.Option(
            metavar="SHARE",
            help="Position of canaries, as a share of the text before the last request "
            "[0.1, 0.3, 0.5, 0.7, 0.9]. May be repeated.",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="|".join(_BREAKDOWNS),
            help="Break survival down by this property. round: how often the context was cut since the "
            "canary.",
        ),
    ] = "kind",
    write: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write the recordings with their canaries and probes to this folder, in the native "
            "format; replay nothing.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let --write replace existing files.")
    ] = False,
    model: ModelName = None,
    where: Where = None,
    sample: Sample = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Random seed of the canaries and the sample.")
    ] = 0,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Plant facts (canaries) in copies of recordings and measure which ones each strategy keeps.

    \b
    Examples:
      ctxlab canaries ~/.claude/projects -l 50k -n 25        share kept at the end, by kind
      ctxlab canaries logs/ -s rolling_summary --by round    share lost at each compaction
      ctxlab canaries logs/ --kind fact --depth 0.2 --json   figures and intervals
      ctxlab canaries logs/ --write planted/                 recordings for ctxlab probe

    The planted values are ordinary words, so that a strategy cannot recognize them by their form.
    Only paths look like paths.
    """
    from ctxlab.errors import UnknownName
    from ctxlab.evaluation.canaries import CANARY_KINDS, DEFAULT_DEPTHS, make_planter

    if by not in _BREAKDOWNS:
        raise UnknownName("breakdown of survival", by, _BREAKDOWNS)
    plan = make_planter(count, kind or tuple(CANARY_KINDS), depth or DEFAULT_DEPTHS, seed)
    spec = make_spec(
        paths,
        strategies=strategy,
        limits=limit,
        model=model,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    show_bar = False if no_progress else None
    if write is not None:
        _write_planted(spec, plan, write, force, show_bar)
    else:
        _measure_survival(spec, plan, by, json, show_bar)


def _measure_survival(
    spec: Spec, plan: CanaryPlanter, by: str, json: bool, show_bar: bool | None
) -> None:
    from ctxlab.cli.notices import note_counting_model, note_strategy_calls, note_strategy_models
    from ctxlab.cli.render.survival import survival_json, survival_text
    from ctxlab.evaluation.survival import measure_survival
    from ctxlab.llm import default_client

    if spec.strategy_models:
        note_strategy_models(spec)
    with suggest_on_error_skip(spec.on_error), report_skipped() as (on_skip, rows):
        found = measure_survival(
            spec.recordings(on_skip),
            spec.strategies,
            spec.limits,
            spec.model,
            **vars(plan),
            data=spec.data,
            progress=show_bar,
            profile=spec.profiles,
            client=default_client(mode=spec.calls) if spec.strategy_models else None,
        )
        recordings = found.results.manifest["recordings"]
        for recording in recordings:
            rows.update(recording["skipped"])
    _note_without_canaries(found.skip_reasons)
    note_strategy_calls(found.results.manifest)
    note_counting_model(recordings, spec.model)
    print_result(survival_json(found, by) if json else survival_text(found, by))


def _write_planted(
    spec: Spec, plan: CanaryPlanter, to: str, force: bool, show_bar: bool | None
) -> None:
    from ctxlab._utils.progress import track
    from ctxlab.formats import write

    if not to:
        raise SpecError(
            "--write: expected a folder, got an empty text; write . for the current one"
        )
    files: Counter[str] = Counter()
    without: list[str] = []
    done: list[str] = []
    with suggest_on_error_skip(spec.on_error):
        found = spec.recordings(lambda path, reason: files.update([reason]))
        shown = track(found, "planting", None, show_bar)
        write(_plant_canaries(shown, plan, done, without), f"{to.rstrip('/')}/", force=force)
    note_skipped(files, Counter())
    _note_without_canaries(without)
    each = "one canary" if plan.n == 1 else f"{plan.n} canaries"
    print_note(f"wrote {pluralize(len(done), 'recording')} with {each} each to {to}")


def _plant_canaries(
    recordings: Iterator[Recording],
    plan: CanaryPlanter,
    done: list[str],
    skipped_reasons: list[str],
) -> Iterator[Recording]:
    """Yield recordings with canaries; note the names and reasons of those without room for them."""
    for recording in recordings:
        try:
            changed = plan(recording)
        except SpecError as error:
            skipped_reasons.append(str(error))
            continue
        done.append(recording.id)
        yield changed
    if not done:
        raise SpecError(f"no canary could be planted: {skipped_reasons[0]}")


def _note_without_canaries(reasons: Sequence[str]) -> None:
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        print_note(f"skipped {pluralize(len(reasons), 'recording')}: {reasons[0]}{more}")
