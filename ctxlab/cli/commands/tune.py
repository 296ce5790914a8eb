"""``ctxlab tune``: search the parameters of strategies and report on held-out recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.cli.experiment import spec_to_store
from ctxlab.cli.notices import note_run, note_unlogged_tokens
from ctxlab.cli.options import READING, Options, option, with_options
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec
    from ctxlab.evaluation.tuning.results import TuningResults


@with_options(
    "data strategies limits model reserve min_recall" + READING + " on_error out json no_progress",
    strategies="SPACE:: Search space: a strategy with alternatives in brackets, such as "
    "'observation_mask(keep=[1, 3, 10]) | panic', or as a range, keep=range(1, 40, 4); or the name of "
    "a default space, such as rolling_summary. May be repeated.",
    seed="Random seed of the held-out part and of the drawn trials [0].",
    out="Save the run on the held-out part, the frontier and all trials to this folder. ctxlab eval "
    "DIR replays the frontier over all of the data, tuning part included.",
)
def command(
    options: Options,
    holdout: float = option(
        "--holdout SHARE",
        "Share of the clusters to hold out of the search and report on; 0 holds out none.",
        default=0.5,
    ),
    trials: int | None = option("--trials N", "Try N configurations, drawn at random [all]."),
    objective: str = option(
        "--objective COST,GAIN",
        "Two scores to trade off: one to minimize and one to maximize, such as tokens_mean,recall.",
        default="cost_usd,recall_far",
    ),
) -> None:
    """Search the parameters of strategies for low cost and high recall.

    Examples
    --------
    ctxlab tune ~/.claude/projects -l 50k -l 100k -m claude-opus-4-5
    ctxlab tune logs/ -s 'observation_mask(keep=[1, 3, 10, 30]) | sliding_window | panic'
    ctxlab tune logs/ -s rolling_summary -s hysteresis --trials 30 --out runs/tuned

    The default spaces, all searched unless -s names some: sliding_window, hysteresis, chunked_window,
    tool_stubs, observation_mask, when_it_pays, tool_result_cap, rolling_summary, contents. None of
    them calls a model.

    The result is a frontier: the configurations that no other one beats in both cost and recall. It is
    found on one half of the recordings and reported on the other half, since the best of many
    configurations looks better than it is on the data that chose it. Whole clusters are held out, so
    repeated trials of one task are never in both halves.
    """
    from ctxlab.cli.render.frontier import frontier_json, frontier_text
    from ctxlab.evaluation.tuning.search_space import DEFAULT_SPACES
    from ctxlab.evaluation.tuning.tune import tune

    spec = replace(options, strategies=None).spec()  # search spaces are not strategies
    cost, _, gain = map(str.strip, objective.partition(","))
    if not gain or "," in gain:
        raise SpecError(f"--objective: expected two scores (cost_usd,recall), got {objective!r}")
    with report_skipped(spec.on_error) as skipped:
        recordings = list(skipped.counting(spec.recordings(skipped)))
    telling = [recording for recording in recordings if recording.request_positions]
    check_output_folder(options.out, spec, "tuning", recordings=telling)
    try:
        found = tune(
            recordings,
            options.strategies or tuple(DEFAULT_SPACES),
            spec.limits,
            spec.model,
            holdout=holdout,
            objective=(cost, gain),
            trials=trials,
            seed=spec.seed,
            reserve=spec.reserve,
            data=spec.data,
            progress=options.progress,
            profile=spec.profiles,
        )
    except SpecError as error:
        raise SpecError(_use_option_names(str(error))) from None
    ran = found.results.manifest["spec"]
    replayed = {key: tuple(ran[key]) for key in ("strategies", "limits")}
    found.results.manifest["spec"] = spec_to_store(spec, found.results, **replayed)
    _note_run(found, spec)
    with save_then_print(options.out, found.save, _saved_message(found, options.out)):
        text = frontier_json(found) if options.json else frontier_text(found, spec.min_recall)
        print_result(text)


_ERROR_REPLACEMENTS = (
    ("a holdout of ", "--holdout "),
    ("holdout must be", "--holdout must be"),
    ("use a smaller holdout", "use a smaller --holdout"),
    ("set trials to draw some", "--trials N draws N of them"),
    ("trials must be", "--trials must be"),
    ("unknown cost", "--objective: unknown cost"),
    ("unknown gain", "--objective: unknown gain"),
    (
        "choose another objective, such as tokens_mean against recall",
        "choose another one, such as --objective tokens_mean,recall",
    ),
    (
        "pass a client to allow that",
        "ctxlab tune does not allow that, but tune(…, client=…) in Python does",
    ),
)
"phrases of errors about Python arguments, and their replacements that name options"


def _use_option_names(message: str) -> str:
    """Return an error message with option names in place of Python arguments."""
    for there, here in _ERROR_REPLACEMENTS:
        message = message.replace(there, here)
    return message


def _saved_message(found: TuningResults, out: Path | None) -> str:
    """Say what was saved and how to use it."""
    held = "the held-out part" if found.heldout_clusters else "the tuning part"
    more = ", tuning part included" if found.heldout_clusters else ""
    return (
        f"saved to {out}: the run on {held}, frontier.parquet and trials.parquet; ctxlab eval {out} "
        f"replays the frontier over all of the data{more}"
    )


def _note_run(found: TuningResults, spec: Spec) -> None:
    """Note how tokens were counted, what the figures do not include, and what to run next."""
    from ctxlab.cli.render.leaderboard import short_strategy

    note_run(found.results, spec.model)
    note_unlogged_tokens(found.results.manifest["recordings"], spec.reserve)
    if not found.heldout_clusters:
        print_note(
            "warning: nothing was held out, so the figures are optimistic: they are from the same "
            "recordings that chose the configurations"
        )
    if (winner := found.winner(spec.min_recall)) is not None:
        strategy, limit = winner
        data = " ".join(f"'{path}'" if " " in path else path for path in spec.data)
        size = f"{limit:.0f}" if limit > 1 else f"{limit:g}"
        model = f" -m {spec.model}" if spec.model else ""
        named = f"-s full -s '{short_strategy(strategy)}'"
        print_note(f"next: ctxlab eval {data}{model} -l {size} {named}")
