"""Print notes about a run to standard error: model calls, costs and missing data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import print_note

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec


def note_strategy_models(spec: Spec) -> None:
    """Print which models the strategies call, before any call is made.

    Parameters
    ----------
    spec : Spec
        Experiment that will be run.
    """
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    if not spec.strategy_models:
        return
    names = ", ".join(spec.strategy_models)
    if spec.calls == "replay":
        print_note(f"answers of {names} are read from {DEFAULT_CACHE_FOLDER}; no model is called")
    else:
        kept = "stored answers are reused"
        kept = "stored answers are not reused" if spec.calls == "record" else kept
        stored = f"answers are stored in {DEFAULT_CACHE_FOLDER}; {kept}"
        print_note(f"strategies call {names}; {stored}")
    if unpriced := [name for name in spec.strategy_models if _is_unpriced(name)]:
        verb = "has" if len(unpriced) == 1 else "have"
        said = f"{verb} no known price; costs that depend on it are shown as –"
        print_note(f"{', '.join(unpriced)} {said}")


def _is_unpriced(model: str) -> bool:
    from ctxlab.tokens.models import find_model

    known = find_model(model)
    # The price table lists only chat models. Prices of embedding models come from their own client.
    return not known.prices.known and "with mode embedding" not in (known.warning or "")


def note_run(results: Results, model: str | None) -> None:
    """Print the number and cost of model calls, and the models used for token counts and prices.

    Parameters
    ----------
    results : Results
        Results of the run.
    model : str, optional
        Model that the user chose for all recordings. None means that the tokens of each recording
        were counted and priced for the model that the recording names.
    """
    from ctxlab._utils.numbers import format_count, format_dollars
    from ctxlab.llm import DEFAULT_CACHE_FOLDER
    from ctxlab.tokens.model_choice import explain_models

    for name, took in results.manifest["calls"].items():
        calls, cached, usd = took["calls"], took["cached"], took["usd"]
        said = f"called {name} {pluralize(calls, 'time')}"
        if cached == calls:
            print_note(f"{said}: all answers came from {DEFAULT_CACHE_FOLDER}; nothing was billed")
            continue
        price = "price unknown" if usd is None else format_dollars(usd)
        new = f"{format_count(took['tokens'])} tokens, {price}"
        print_note(f"{said} ({pluralize(cached, 'answer')} from {DEFAULT_CACHE_FOLDER}): {new}")
    recordings = results.recordings
    if model is None:
        print_note(f"{explain_models(recordings)}; to use one model for all, set --model NAME")
    elif any(recording["model"] not in (None, model) for recording in recordings):
        print_note(explain_models(recordings, model))


def note_missing_metrics(spec: Spec, results: Results) -> None:
    """Print which metrics were selected by name but not measured, because the data is missing.

    Parameters
    ----------
    spec : Spec
        Experiment that was replayed.
    results : Results
        Results of the replay.
    """
    from ctxlab.evaluation.metrics import DEFAULT_METRICS

    named = () if {*spec.metrics} >= {*DEFAULT_METRICS} else spec.metrics
    for metric, column, why in (
        ("probes", "questions", "the metric probes was not measured: no recording contains probes; "
         "use LoCoMo, LongMemEval or native recordings with probes"),
        ("canaries", "canaries", "the metric canaries was not measured: no recording contains "
         "canaries; insert canaries with ctxlab canaries --write DIR"),
    ):  # fmt: skip
        if metric in named and not results.read_runs([column])[column].any():
            print_note(why)


def note_unlogged_tokens(recordings: Sequence[dict[str, Any]], reserve: int) -> None:
    """Print how many billed tokens per request are missing from the logs (median over recordings).

    The context window of the agent must have room for these tokens, so the note recommends a larger
    reserve. The note is printed only if the median exceeds both 1,000 tokens and the reserve.

    Parameters
    ----------
    recordings : sequence of dict
        One dict per recording, from ``Results.recordings``.
    reserve : int
        Number of tokens that the run kept free for the reply.
    """
    from ctxlab._utils.numbers import format_count

    known = [recording["unlogged"] for recording in recordings if recording["unlogged"] is not None]
    middle = median(known) if known else 0
    if middle > max(1000, reserve):
        tokens = format_count(middle)
        print_note(
            f"about {tokens} tokens of each billed request (system prompt, tool definitions) are "
            f"missing from the logs and from all results except the cost; leave room for them with "
            f"--reserve {tokens}"
        )


def note_changed_recordings(run: Path, recordings: Sequence[dict[str, Any]]) -> None:
    """Print whether a repeated run used the same recordings as the saved run.

    Parameters
    ----------
    run : Path
        Folder or manifest file of the saved run.
    recordings : sequence of dict
        One dict per recording, from ``Results.recordings`` of the repeated run.
    """
    from ctxlab.evaluation.recording_table import read_entries
    from ctxlab.evaluation.run_files import MANIFEST_FILE

    manifest = run / MANIFEST_FILE if run.is_dir() else run
    before = read_entries(manifest.parent, parse_json(manifest.read_bytes()))
    known, seen = ({r["recording"]: r["digest"] for r in some} for some in (before, recordings))
    if known == seen:
        print_note(f"the {len(seen)} recordings are the same as in {run}")
    else:
        changed = sum(seen.get(id) != digest for id, digest in known.items())
        new = len(seen.keys() - known.keys())
        print_note(
            f"warning: the recordings differ from those of {run}: {changed} of {len(known)} changed "
            f"or are missing, {new} are new"
        )
