"""``ctxlab canaries``: insert facts into recordings and measure which facts each strategy keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.notices import note_run, note_strategy_models
from ctxlab.cli.options import READING, TABLE, Options, complete_from, flag, option, with_options
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.canaries import CanaryPlanter
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording

_BREAKDOWNS = ("kind", "depth", "round", "distance", "role")


@with_options(
    "data strategies limits model reserve"
    + READING
    + " on_error"
    + TABLE
    + " json no_cache no_progress",
    strategies="Strategy to measure, such as 'tool_stubs(keep=3) | panic'. May be repeated. Default: "
    "the default lineup.",
    seed="Seed for choosing the canaries and the sample. Default: 0.",
)
def command(
    options: Options,
    count: int = option("--number -n N", "Number of canaries per recording.", default=10),
    kind: list[str] | None = option(
        "--kind KIND",
        "Kind of canary to insert: fact, constraint, decision, path or superseded. May be "
        "repeated. Default: all kinds.",
    ),
    depth: list[float] | None = option(
        "--depth SHARE",
        "Position of canaries, as a share of the text before the last request: 0 is the start. "
        "May be repeated. Default: 0.1, 0.3, 0.5, 0.7 and 0.9.",
    ),
    by: str = option(
        f"--by {'|'.join(_BREAKDOWNS)}",
        "Show the share of kept canaries for each value of this property. depth: position of the "
        "canary. round: number of times the context was cut after the canary. distance: tokens "
        "between the canary and the end of the request. role: role of the message.",
        default="kind",
        autocompletion=complete_from(lambda: _BREAKDOWNS),
    ),
    write: str | None = option(
        "--write DIR",
        "Write the recordings with canaries and probes to this folder, in the native format. No "
        "recording is replayed.",
    ),
    force: bool = flag("--force", "Allow --write to replace existing files."),
) -> None:
    """Insert facts (canaries) into copies of recordings and measure which facts each strategy keeps.

    A canary is kept at a request if its value is in the messages that are sent.

    Examples
    --------
    ctxlab canaries ~/.claude/projects -l 50k -n 25       share kept, by kind
    ctxlab canaries logs/ -s rolling_summary --by round   after each compaction
    ctxlab canaries logs/ --kind fact --depth 0.2 --json  with intervals
    ctxlab canaries logs/ --write planted/                for ctxlab probe

    The values are ordinary words, so that a strategy cannot recognize canaries by their form. Only
    canaries of the kind path have the form of file names.
    """
    from ctxlab.errors import UnknownName
    from ctxlab.evaluation.canaries import CANARY_KINDS, DEFAULT_DEPTHS, make_planter

    if by not in _BREAKDOWNS:
        raise UnknownName("value of --by", by, _BREAKDOWNS)
    spec = options.spec()
    plan = make_planter(count, kind or tuple(CANARY_KINDS), depth or DEFAULT_DEPTHS, spec.seed)
    if write is not None:
        _write(spec, plan, write, force, options.progress)
    else:
        _measure_survival(spec, plan, by, options)


def _measure_survival(spec: Spec, plan: CanaryPlanter, by: str, options: Options) -> None:
    from ctxlab.cli.render.survival import survival_data, survival_names, survival_text
    from ctxlab.evaluation.survival import measure_survival
    from ctxlab.llm import default_client

    view = options.view
    view.check(survival_names(by))
    note_strategy_models(spec)
    with report_skipped(spec.on_error) as skipped:
        found = measure_survival(
            skipped.counting(spec.recordings(skipped)),
            spec.strategies,
            spec.limits,
            spec.model,
            **vars(plan),
            reserve=spec.reserve,
            data=spec.data,
            progress=options.progress,
            profile=spec.profiles,
            client=default_client(mode=spec.calls) if spec.strategy_models else None,
        )
    _note_without_canaries(found.skip_reasons)
    note_run(found.results, spec.model)
    if options.json or options.csv:
        print_result(survival_data(found, by, view, as_csv=options.csv))
    else:
        print_result(survival_text(found, by, view))


def _write(spec: Spec, plan: CanaryPlanter, to: str, force: bool, progress: bool | None) -> None:
    from ctxlab._utils.progress import track
    from ctxlab.formats import write

    if not to:
        raise SpecError("--write: expected a folder, got an empty string; use . for this folder")
    without: list[str] = []
    done: list[str] = []
    with report_skipped(spec.on_error) as skipped:
        shown = track(spec.recordings(skipped), "planting", None, progress)
        write(_plant_canaries(shown, plan, done, without), f"{to.rstrip('/')}/", force=force)
    _note_without_canaries(without)
    each = "one canary" if plan.n == 1 else f"{plan.n} canaries"
    print_note(f"wrote {pluralize(len(done), 'recording')} with {each} each to {to}")


def _plant_canaries(
    recordings: Iterable[Recording],
    plan: CanaryPlanter,
    done: list[str],
    skipped_reasons: list[str],
) -> Iterator[Recording]:
    """Insert canaries into recordings and yield the changed recordings.

    The ids of the changed recordings are added to ``done``. If a recording is too short for canaries,
    it is left out, and the reason is added to ``skipped_reasons``.
    """
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
