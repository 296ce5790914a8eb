"""``ctxlab canaries`` plants statements in recordings and says which of them each strategy keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab._utils.humanize import many
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
    chosen,
    hint_at_skipping,
)
from ctxlab.cli.output import (
    left_out,
    note,
    say,
    say_left_out,
)
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.canaries import Planting
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording

__all__ = ["command"]

_BY = ("kind", "depth", "round", "distance", "role")


def command(
    paths: Paths,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="S",
            help="Such as 'tool_stubs(keep=3) | panic' [the lineup]. May be repeated, as all that "
            "follow with one value each.",
        ),
    ] = None,
    limit: Limits = None,
    count: Annotated[
        int, typer.Option("--number", "-n", metavar="N", help="Canaries in each recording.")
    ] = 10,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="fact, constraint, decision, path or superseded [all of them]."
        ),
    ] = None,
    depth: Annotated[
        list[float] | None,
        typer.Option(
            metavar="X",
            help="Where they are planted, as a share of the text before the last request "
            "[0.1, 0.3, 0.5, 0.7, 0.9].",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="|".join(_BY),
            help="What survival is taken apart by; round is the cliff: how often the context had been "
            "cut since.",
        ),
    ] = "kind",
    write: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Replay nothing and write the planted recordings with their questions, in the "
            "native format.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that --write finds there.")
    ] = False,
    model: ModelName = None,
    where: Where = None,
    sample: Sample = None,
    seed: Annotated[
        int, typer.Option(metavar="S", help="The same S plants, and draws, the same.")
    ] = 0,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Plant statements in copies of recordings and say which of them each strategy keeps in view.

    \b
    Examples:
      ctxlab canaries ~/.claude/projects -l 50k -n 25          share in view at the end, by kind
      ctxlab canaries logs/ -s rolling_summary -l 16k --by round    the cliff of compaction
      ctxlab canaries logs/ --kind fact --depth 0.2 --json          figures and intervals
      ctxlab canaries logs/ --write planted/                        to ask a model about them

    Values are ordinary words, so that nothing keeps them by their looks; only a path looks like one.
    """
    from ctxlab.errors import UnknownName
    from ctxlab.evaluation.canaries import (
        DEPTHS,
        KINDS,
        planting,
    )

    if by not in _BY:
        raise UnknownName("breakdown of survival", by, _BY)
    plan = planting(count, kind or tuple(KINDS), depth or DEPTHS, seed)
    spec = chosen(
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
        _write(spec, plan, write, force, show_bar)
    else:
        _measure(spec, plan, by, json, show_bar)


def _measure(spec: Spec, plan: Planting, by: str, json: bool, show_bar: bool | None) -> None:
    from ctxlab.cli.notices import (
        say_of_which_model,
        say_what_was_asked,
        say_who_is_asked,
    )
    from ctxlab.cli.render.survival import (
        survival_json,
        survival_text,
    )
    from ctxlab.evaluation.survival import survival_of
    from ctxlab.llm import default_client

    if spec.asked:
        say_who_is_asked(spec)
    with hint_at_skipping(spec.on_error), left_out() as (on_skip, rows):
        found = survival_of(
            spec.recordings(on_skip),
            spec.strategies,
            spec.limits,
            spec.model,
            **vars(plan),
            data=spec.data,
            progress=show_bar,
            profile=spec.profiles,
            client=default_client(mode=spec.calls) if spec.asked else None,
        )
        recordings = found.results.manifest["recordings"]
        for recording in recordings:
            rows.update(recording["skipped"])
    _say_without(found.left_out)
    say_what_was_asked(found.results.manifest)
    say_of_which_model(recordings, spec.model)
    say(survival_json(found, by) if json else survival_text(found, by))


def _write(spec: Spec, plan: Planting, to: str, force: bool, show_bar: bool | None) -> None:
    from ctxlab._utils.progress import track
    from ctxlab.formats import write

    if not to:
        raise SpecError("--write: the folder is empty; the current one is written as .")
    files: Counter[str] = Counter()
    without: list[str] = []
    done: list[str] = []
    with hint_at_skipping(spec.on_error):
        found = spec.recordings(lambda path, reason: files.update([reason]))
        shown = track(found, "planting", None, show_bar)
        write(_planted(shown, plan, done, without), f"{to.rstrip('/')}/", force=force)
    say_left_out(files, Counter())
    _say_without(without)
    each = "one canary" if plan.n == 1 else f"{plan.n} canaries"
    note(f"{many(len(done), 'recording')} written to {to} with {each} in each")


def _planted(
    recordings: Iterator[Recording], plan: Planting, done: list[str], without: list[str]
) -> Iterator[Recording]:
    """The recordings with their canaries; those that have no room are named and left out."""
    for recording in recordings:
        try:
            changed = plan(recording)
        except SpecError as error:
            without.append(str(error))
            continue
        done.append(recording.id)
        yield changed
    if not done:
        raise SpecError(f"nothing could be planted: {without[0]}")


def _say_without(reasons: Sequence[str]) -> None:
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        note(f"left out: {many(len(reasons), 'recording')}: {reasons[0]}{more}")
