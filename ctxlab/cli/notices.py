"""Notes about a run on standard error: models it calls, what they cost, what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import one_line, print_note

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec


def note_strategy_models(spec: Spec) -> None:
    """Note which models the strategies call, before they are billed.

    Parameters
    ----------
    spec : Spec
        The experiment.
    """
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    if not spec.strategy_models:
        return
    names = ", ".join(spec.strategy_models)
    if spec.calls == "replay":
        print_note(f"answers of {names} are read from {DEFAULT_CACHE_FOLDER}; no model is called")
    else:
        kept = "answers that are already there are reused"
        kept = "every call is made again" if spec.calls == "record" else kept
        stored = f"answers are stored in {DEFAULT_CACHE_FOLDER}, and {kept}"
        print_note(f"strategies call {names}; {stored}")
    if unpriced := [name for name in spec.strategy_models if _is_unpriced(name)]:
        verb = "has" if len(unpriced) == 1 else "have"
        said = f"{verb} no known price; costs that include it are shown as –"
        print_note(f"{', '.join(unpriced)} {said}")


def _is_unpriced(model: str) -> bool:
    from ctxlab.tokens.models import find_model

    known = find_model(model)
    # The price table here lists chat models only; embedding models are priced by their own client.
    return not known.prices.known and "with mode embedding" not in (known.warning or "")


def note_run(results: Results, model: str | None) -> None:
    """Note what the strategies' own model calls took, and which models recordings were counted for.

    Parameters
    ----------
    results : Results
        The results of the run.
    model : str, optional
        The model that was named for all recordings.
    """
    from ctxlab.cli.render.format import format_count
    from ctxlab.llm import DEFAULT_CACHE_FOLDER
    from ctxlab.tokens.model_choice import explain_models

    for name, took in results.manifest["calls"].items():
        calls, cached, usd = took["calls"], took["cached"], took["usd"]
        said = f"called {name} {pluralize(calls, 'time')}"
        if cached == calls:
            print_note(f"{said}: all answers came from {DEFAULT_CACHE_FOLDER}; nothing was billed")
            continue
        price = "price unknown" if usd is None else f"${usd:,.{2 if usd >= 1 else 4}f}"
        new = f"{format_count(took['tokens'])} tokens, {price}"
        print_note(f"{said} ({pluralize(cached, 'answer')} from {DEFAULT_CACHE_FOLDER}): {new}")
    recordings = results.manifest["recordings"]
    if model is None:
        print_note(f"{explain_models(recordings)}; --model NAME uses one model for all")
    elif any(recording["model"] not in (None, model) for recording in recordings):
        print_note(explain_models(recordings, model))


def note_missing_metrics(spec: Spec, results: Results) -> None:
    """Note metrics that were asked for by name but have no data in these recordings.

    Parameters
    ----------
    spec : Spec
        The experiment.
    results : Results
        Its results.
    """
    from ctxlab.evaluation.metrics import METRICS

    named = spec.metrics if set(spec.metrics) < set(METRICS) else ()
    for metric, column, why in (
        ("probes", "questions", "no recording contains probes, so they were not measured; LoCoMo, "
         "LongMemEval and native recordings with probes have them"),
        ("canaries", "canaries", "no recording contains canaries, so they were not measured; plant "
         "some with ctxlab canaries --write DIR"),
    ):  # fmt: skip
        if metric in named and not results.requests[column].any():
            print_note(why)


def note_unlogged_tokens(recordings: list[dict[str, Any]], reserve: int) -> None:
    """Note how many billed tokens are missing from the logs, since real windows must fit them.

    Parameters
    ----------
    recordings : list of dict
        The recordings of a manifest.
    reserve : int
        Tokens that are already kept free.
    """
    from ctxlab.cli.render.format import format_count

    known = [recording["unlogged"] for recording in recordings if recording["unlogged"] is not None]
    middle = median(known) if known else 0
    if middle > max(1000, reserve):
        tokens = format_count(middle)
        print_note(
            f"about {tokens} tokens of each billed request (system prompt, tool definitions) are "
            f"missing from the logs and from all figures; --reserve {tokens} keeps room for them"
        )


def suspect_warnings(recordings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield warnings about recordings whose tool calls were probably not read.

    Parameters
    ----------
    recordings : sequence of mapping
        The recordings of a manifest, or descriptions.

    Yields
    ------
    str
        A sentence about each of the first three, and one about all others.
    """
    warned = [each for each in recordings if each.get("warning")]
    for each in warned[:3]:
        yield (
            f"warning: {one_line(each['recording'])} was probably not read in full: "
            f"{one_line(each['warning'])}; name its format with --format, or open an issue"
        )
    if len(warned) > 3:
        yield f"warning: the same applies to {len(warned) - 3:,} more recordings"


def note_changed_recordings(run: Path, recordings: list[dict[str, Any]]) -> None:
    """Note whether a repeated run used the same recordings as the saved run.

    Parameters
    ----------
    run : Path
        Folder or manifest file of the saved run.
    recordings : list of dict
        The recordings of the new run's manifest.
    """
    from ctxlab.evaluation.results import MANIFEST_FILE

    manifest = run / MANIFEST_FILE if run.is_dir() else run
    before = parse_json(manifest.read_bytes()).get("recordings", [])
    known, seen = ({r["recording"]: r["digest"] for r in some} for some in (before, recordings))
    if known == seen:
        print_note(f"the {len(seen)} recordings are the same as in {run}")
    else:
        changed = sum(seen.get(id) != digest for id, digest in known.items())
        new = len(seen.keys() - known.keys())
        print_note(
            f"warning: the recordings differ from those of {run}: of its {len(known)}, {changed} "
            f"changed or are gone; {new} are new"
        )
