"""``ctxlab tune``: search for good strategy parameters and report the best on held-out recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.cli.experiment import spec_to_store
from ctxlab.cli.notices import note_run, note_unlogged_tokens
from ctxlab.cli.options import READING, TABLE, Options, option, with_options
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec
    from ctxlab.evaluation.tuning.results import TuningResults


@with_options(
    "data strategies limits model reserve min_recall cache_ttl fixed fixed_in_limit reasoning"
    + READING
    + " on_error out"
    + TABLE
    + " json no_cache no_progress",
    strategies="SPACE:: Search space: a strategy with alternative values in brackets or in a range, as "
    "in 'observation_mask(keep=[1, 3, 10]) | panic' or 'tool_stubs(keep=range(1, 40, 4)) | panic', "
    "the name of a default space, such as rolling_summary, or that of a product, such as claude_code, "
    "for its settings. May be repeated. Default: all default spaces.",
    seed="Seed for drawing the held-out recordings, the configurations and the sample. Default: 0.",
    out="Save the results on the held-out recordings, the frontier and all trials to this folder. "
    "ctxlab eval DIR replays the frontier on all recordings.",
    sort="Sort the frontier by this column, the best first. -COLUMN reverses the order. --csv prints "
    "the names of the columns. Default: by cost.",
    top="Print only the first N configurations.",
)
def command(
    options: Options,
    holdout: float = option(
        "--holdout SHARE",
        "Share of the recordings to keep out of the search and to use for the report. With 0, the "
        "search and the report use the same recordings.",
        default=0.5,
    ),
    trials: int | None = option(
        "--trials N", "Number of configurations to draw at random. Default: all configurations."
    ),
    objective: str | None = option(
        "--objective COST,GAIN",
        "A score to minimize and a score to maximize, such as tokens_mean,recall. Default: cost_usd, "
        "and the recall score that the recommendation uses.",
    ),
) -> None:
    """Search for strategy parameters with low cost and high recall.

    Examples
    --------
    ctxlab tune ~/.claude/projects -l 50k -l 100k -m claude-opus-4-5
    ctxlab tune logs/ -s 'observation_mask(keep=[1, 3, 10, 30]) | panic'
    ctxlab tune logs/ -s rolling_summary --trials 30 --out runs/tuned

    A configuration is a strategy with fixed parameters, under a limit. The result is the frontier: all
    configurations for which no other configuration has both a lower cost and a higher recall.

    The frontier is searched on one part of the recordings and measured on the other, held-out part,
    because the best of many configurations looks too good on the recordings that selected it. Clusters
    are never divided, so all trials of one task are in the same part. The recommendation is
    chosen on the first part alone, and withheld if the held-out part does not confirm it.

    Default search spaces: sliding_window, in_batches, chunked_window, tool_stubs, observation_mask,
    when_it_pays, on_expiry, tool_result_cap, rolling_summary, contents. None of them calls a model.
    """
    from ctxlab.cli.render.frontier import frontier_data, frontier_names, frontier_text
    from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
    from ctxlab.evaluation.tuning.search_space import DEFAULT_SPACES
    from ctxlab.evaluation.tuning.tune import tune

    spec = replace(options, strategies=None).spec()  # search spaces are not strategies
    cost, _, gain = map(str.strip, (objective or f"cost_usd,{HEADLINE_SCORE}").partition(","))
    if not gain or "," in gain:
        raise SpecError(f"--objective: expected two scores (cost_usd,recall), got {objective!r}")
    view = options.view
    view.check(frontier_names(cost, gain))
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
            cache_ttl=spec.cache_ttl,
            fixed=spec.fixed,
            fixed_in_limit=spec.fixed_in_limit,
            reasoning=spec.reasoning,
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
        if options.json or options.csv:
            print_result(frontier_data(found, view, as_csv=options.csv))
        else:
            print_result(frontier_text(found, spec.min_recall, view))


_ERROR_REPLACEMENTS = (
    ("a holdout of ", "--holdout "),
    ("holdout must be", "--holdout must be"),
    ("use a smaller holdout", "use a smaller --holdout"),
    ("pass trials=N to try N random ones", "add --trials N to try N random ones"),
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
"phrases that name Python arguments in the errors of ``tune``, each with its form for the command line"


def _use_option_names(message: str) -> str:
    """Replace the names of Python arguments in an error message by the names of options."""
    for there, here in _ERROR_REPLACEMENTS:
        message = message.replace(there, here)
    return message


def _saved_message(found: TuningResults, out: Path | None) -> str:
    """Return a note about the saved files and the command that replays the frontier."""
    held = "the held-out recordings" if found.heldout_clusters else "the recordings of the search"
    more = ", including those of the search" if found.heldout_clusters else ""
    return (
        f"saved to {out}: the run on {held}, frontier.parquet and trials.parquet; ctxlab eval {out} "
        f"replays the frontier on all recordings{more}"
    )


def _note_run(found: TuningResults, spec: Spec) -> None:
    """Print how tokens were counted, how many billed tokens the logs lack, and the next command."""
    from ctxlab.evaluation.columns import short_strategy

    note_run(found.results, spec.model)
    note_unlogged_tokens(found.results.recordings, spec.reserve)
    if not found.heldout_clusters:
        print_note(
            "warning: nothing was held out, so the results are optimistic: they were measured on the "
            "recordings that selected the configurations"
        )
    if (winner := found.winner(spec.min_recall)) is not None:
        strategy, limit = winner
        data = " ".join(
            f"'{path}'" if " " in path else path for path in spec.without_credentials().data
        )
        size = f"{limit:.0f}" if limit > 1 else f"{limit:g}"
        model = f" -m {spec.model}" if spec.model else ""
        named = f"-s full -s '{short_strategy(strategy)}'"
        print_note(f"next: ctxlab eval {data}{model} -l {size} {named}")
