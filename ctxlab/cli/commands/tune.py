"""``ctxlab tune`` searches the parameters of strategies and reports on recordings it has not seen."""

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

__all__ = ["command"]


def command(
    paths: Paths,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="SPACE",
            help="A strategy in which [..] holds alternatives: "
            "'observation_mask(keep=[1, 3, 10]) | panic', keep=range(1, 40, 4); or a name of the spaces "
            "that are searched when nothing is said, such as rolling_summary. May be repeated.",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    holdout: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the clusters that the frontier is reported on and not found on; 0: none.",
        ),
    ] = 0.5,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Draw N of the configurations at random [all]."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="COST,GAIN",
            help="What is weighed: a figure of which lower is better, and one of which higher is, such "
            "as tokens_mean,recall.",
        ),
    ] = "cost_usd,recall_far",
    min_recall: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Far recall to keep, as a share of full history's [0.95]."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Of what is held out, and of the trials that are drawn [0]."
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
            help="Save what was held out as a run, and the frontier and all trials beside it; ctxlab "
            "eval DIR replays the frontier over all of the data, what it was tuned on too.",
        ),
    ] = None,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Search parameters of strategies for what costs least and keeps most.

    \b
    Examples:
      ctxlab tune ~/.claude/projects -l 50k -l 100k -m claude-opus-4-5
      ctxlab tune logs/ -s 'observation_mask(keep=[1, 3, 10, 30]) | sliding_window | panic'
      ctxlab tune logs/ -s rolling_summary -s hysteresis --trials 30 --out runs/tuned

    Spaces by name, which are all searched where none is given: sliding_window, hysteresis,
    chunked_window, tool_stubs, observation_mask, when_it_pays, tool_result_cap, rolling_summary,
    contents. None of them asks a model.

    The frontier is found on one half of the recordings and reported on the other, so that what was best
    of many by luck does not look better than it is. Whole clusters are held out: recordings that repeat
    one task never stand in both halves.
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
            f"--objective is two figures, such as cost_usd,recall_far, not {objective!r}"
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
    ("holdout is a share", "--holdout: a share"),
    ("take a smaller holdout", "take a smaller --holdout"),
    ("say how many trials to draw of them", "--trials N draws N of them"),
    ("no cost is called", "--objective: no cost is called"),
    ("no gain is called", "--objective: no gain is called"),
    (
        "another objective may be, such as tokens_mean against recall",
        "--objective tokens_mean,recall may be known",
    ),
    ("tune needs a client for that", "ctxlab tune asks none; in Python tune(…, client=…) does"),
)
"what Python says of its arguments, and what that is here"


def _use_option_names(message: str) -> str:
    """An error in the words of the command line."""
    for there, here in _ERROR_REPLACEMENTS:
        message = message.replace(there, here)
    return message


def _saved_message(found: TuningResults, out: Path | None) -> str:
    """Say what was saved, and what to do with it."""
    held = "what was held out" if found.heldout_clusters else "what it was tuned on"
    more = ", what it was tuned on too" if found.heldout_clusters else ""
    return (
        f"saved to {out}: the run on {held}, frontier.parquet and trials.parquet; ctxlab eval {out} "
        f"replays all of the data{more}"
    )


def _note_run(found: TuningResults, spec: Spec) -> None:
    """Note how the run was counted, what is not in its figures, and how to go on."""
    from ctxlab.cli.notices import note_counting_model, note_unlogged_tokens
    from ctxlab.cli.render.leaderboard import short_strategy

    recordings = found.results.manifest["recordings"]
    note_counting_model(recordings, spec.model)
    note_unlogged_tokens(recordings, spec.reserve)
    if not found.heldout_clusters:
        print_note(
            "warning: nothing is held out, so the figures are those of what was chosen for them"
        )
    if (winner := found.winner(spec.min_recall)) is not None:
        strategy, limit = winner
        data = " ".join(f"'{path}'" if " " in path else path for path in spec.data)
        size = f"{limit:.0f}" if limit > 1 else f"{limit:g}"
        model = f" -m {spec.model}" if spec.model else ""
        print_note(
            f"go on with: ctxlab eval {data}{model} -l {size} -s full -s '{short_strategy(strategy)}'"
        )


def _repeatable_spec(found: TuningResults, spec: Spec) -> dict[str, object]:
    """The experiment whose results are saved, with a folder from which its data is found anywhere."""
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
