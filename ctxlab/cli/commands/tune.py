"""``ctxlab tune``: search the parameters of strategies and report on held-out recordings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab.cli.options import (
    AsJson,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Paths,
    Reserve,
    Sample,
    Where,
    make_spec,
    parse_reserve,
    suggest_on_error_skip,
)
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, parse_out_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec
    from ctxlab.evaluation.tuning.results import TuningResults


def command(
    paths: Paths,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="SPACE",
            help="Search space: a strategy with alternatives in brackets, such as "
            "'observation_mask(keep=[1, 3, 10]) | panic', or as a range, keep=range(1, 40, 4); or the "
            "name of a default space, such as rolling_summary. May be repeated.",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    holdout: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the clusters to hold out of the search and report on; 0 holds out none.",
        ),
    ] = 0.5,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Try N configurations, drawn at random [all]."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="COST,GAIN",
            help="Two scores to trade off: one to minimize and one to maximize, such as "
            "tokens_mean,recall.",
        ),
    ] = "cost_usd,recall_far",
    min_recall: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Far recall that a recommended strategy must keep, as a share of full history's "
            "[0.95].",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Random seed of the held-out part and of the drawn trials [0]."
        ),
    ] = None,
    where: Where = None,
    sample: Sample = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=parse_out_folder,
            help="Save the run on the held-out part, the frontier and all trials to this folder. ctxlab "
            "eval DIR replays the frontier over all of the data, tuning part included.",
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Search the parameters of strategies for low cost and high recall.

    \b
    Examples:
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

    spec = make_spec(
        paths,
        limits=limit,
        model=model,
        reserve=parse_reserve(reserve),
        min_recall=min_recall,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    weighed = objective.split(",")
    if len(weighed) != 2:
        raise SpecError(
            f"--objective: expected two scores, such as cost_usd,recall_far, got {objective!r}"
        )
    with suggest_on_error_skip(spec.on_error), report_skipped() as (on_skip, rows):
        recordings = list(spec.recordings(on_skip))
        for recording in recordings:
            rows.update(recording.skipped)
    telling = [recording for recording in recordings if recording.request_positions]
    check_output_folder(out, lambda: telling, spec.model_choice, "tuning")
    try:
        found = tune(
            recordings,
            strategy or tuple(DEFAULT_SPACES),
            spec.limits,
            spec.model,
            holdout=holdout,
            objective=(weighed[0].strip(), weighed[1].strip()),
            trials=trials,
            seed=spec.seed,
            reserve=spec.reserve,
            data=spec.data,
            progress=False if no_progress else None,
            profile=spec.profiles,
        )
    except SpecError as error:
        raise SpecError(_use_option_names(str(error))) from None
    found.results.manifest["spec"] = _repeatable_spec(found, spec)
    _note_run(found, spec)
    with save_then_print(out, found.save, _saved_message(found, out)):
        print_result(frontier_json(found) if json else frontier_text(found, spec.min_recall))


_ERROR_REPLACEMENTS = (
    ("a holdout of ", "--holdout "),
    ("holdout must be", "--holdout must be"),
    ("use a smaller holdout", "use a smaller --holdout"),
    ("set trials to draw some of them", "--trials N draws N of them"),
    ("trials must be", "--trials must be"),
    ("no cost is called", "--objective: no cost is called"),
    ("no gain is called", "--objective: no gain is called"),
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
    from ctxlab.cli.notices import note_counting_model, note_unlogged_tokens
    from ctxlab.cli.render.leaderboard import short_strategy

    recordings = found.results.manifest["recordings"]
    note_counting_model(recordings, spec.model)
    note_unlogged_tokens(recordings, spec.reserve)
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
        print_note(
            f"next: ctxlab eval {data}{model} -l {size} -s full -s '{short_strategy(strategy)}'"
        )


def _repeatable_spec(found: TuningResults, spec: Spec) -> dict[str, object]:
    """Return the experiment to store, with an absolute folder so that its data is found again."""
    from msgspec import to_builtins
    from msgspec.structs import replace

    ran = found.results.manifest["spec"]
    fields = replace(
        spec,
        strategies=tuple(ran["strategies"]),
        limits=tuple(ran["limits"]),
        folder=os.path.abspath(spec.folder or "."),
    )
    whole = {k: list(v) if isinstance(v, tuple) else v for k, v in to_builtins(fields).items()}
    return {**whole, "profiles": ran["profiles"]}
