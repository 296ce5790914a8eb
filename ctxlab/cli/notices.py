"""What is remarked of a run goes to standard error: whom it asks, what it took, what it leaves out."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import print_note

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

__all__ = [
    "note_changed_recordings",
    "note_counting_model",
    "note_missing_metrics",
    "note_strategy_calls",
    "note_strategy_models",
    "note_suspect_recordings",
    "note_unlogged_tokens",
]


def note_strategy_models(spec: Spec) -> None:
    """Nobody should be surprised by a bill, or by a key that is missing."""
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    names = ", ".join(spec.strategy_models)
    if spec.calls == "replay":
        print_note(
            f"the answers of {names} are those kept in {DEFAULT_CACHE_FOLDER}; nothing is asked"
        )
    else:
        kept = (
            "all are asked anew" if spec.calls == "record" else "what is there is not asked again"
        )
        print_note(
            f"strategies ask {names}; the answers are kept in {DEFAULT_CACHE_FOLDER}, and {kept}"
        )
    if unpriced := [name for name in spec.strategy_models if _is_unpriced(name)]:
        verb = "has" if len(unpriced) == 1 else "have"
        print_note(
            f"{', '.join(unpriced)} {verb} no known price: costs that include it are shown as –"
        )


def _is_unpriced(model: str) -> bool:
    from ctxlab.tokens.models import find_model

    known = find_model(model)
    # What an embedding costs is known where it is asked for: models here are those that chat.
    return not known.prices.known and "under embedding" not in (known.warning or "")


def note_strategy_calls(manifest: dict[str, Any]) -> None:
    """What the strategies' own calls took, model by model, and that what is kept costs nothing."""
    from ctxlab.cli.render.format import format_count
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    for model, took in manifest["calls"].items():
        calls, cached, usd = took["calls"], took["cached"], took["usd"]
        said = f"asked {model} {pluralize(calls, 'time')}"
        if cached == calls:
            print_note(
                f"{said}: all answers came from {DEFAULT_CACHE_FOLDER}, and nothing was billed"
            )
            continue
        price = "at no known price" if usd is None else f"${usd:,.{2 if usd >= 1 else 4}f}"
        new = f"{format_count(took['tokens'])} tokens, {price}"
        print_note(f"{said} ({pluralize(cached, 'answer')} from {DEFAULT_CACHE_FOLDER}): {new}")


def note_counting_model(recordings: list[dict[str, Any]], model: str | None) -> None:
    """Say by which models recordings were counted and priced, unless all are of the one named."""
    from ctxlab.tokens.model_choice import explain_models

    if model is None:
        print_note(f"{explain_models(recordings)}; --model NAME takes one for all")
    elif any(recording["model"] not in (None, model) for recording in recordings):
        print_note(explain_models(recordings, model))


def note_missing_metrics(spec: Spec, results: Results) -> None:
    """What was to be measured by name, and of which these recordings hold nothing."""
    from ctxlab.evaluation.metrics import METRICS

    named = spec.metrics if set(spec.metrics) < set(METRICS) else ()
    for metric, column, why in (
        ("probes", "questions", "no recording holds a question: LoCoMo and LongMemEval do, and so do "
         "native recordings with probes"),
        ("canaries", "canaries", "no recording holds a canary: ctxlab canaries plants them, and "
         "--write keeps what it planted"),
    ):  # fmt: skip
        if metric in named and not results.requests[column].any():
            print_note(why)


def note_unlogged_tokens(recordings: list[dict[str, Any]], reserve: int) -> None:
    """What was billed beyond the log takes room in every real window."""
    from ctxlab.cli.render.format import format_count

    known = [recording["unlogged"] for recording in recordings if recording["unlogged"] is not None]
    middle = median(known) if known else 0
    if middle > max(1000, reserve):
        tokens = format_count(middle)
        print_note(
            f"about {tokens} tokens of each billed request are in no log (system prompt, tool "
            f"definitions) and in no figure here: --reserve {tokens} keeps room for them"
        )


def note_suspect_recordings(recordings: list[dict[str, Any]]) -> None:
    """Warn of recordings whose tool calls were probably not read."""
    warned = [(each["recording"], each["warning"]) for each in recordings if each.get("warning")]
    for name, warning in warned[:3]:
        print_note(f"warning: {name} was probably not read in full: {warning}; see ctxlab describe")
    if len(warned) > 3:
        print_note(f"warning: so were {len(warned) - 3:,} more recordings")


def note_changed_recordings(run: Path, recordings: list[dict[str, Any]]) -> None:
    """A repeated run says whether it saw the conversations that the saved one saw."""
    from ctxlab.evaluation.results import MANIFEST_FILE

    manifest = run / MANIFEST_FILE if run.is_dir() else run
    before = parse_json(manifest.read_bytes()).get("recordings", [])
    known, seen = ({r["recording"]: r["digest"] for r in some} for some in (before, recordings))
    if known == seen:
        print_note(f"the {len(seen)} recordings are those of {run}")
    else:
        changed = sum(seen.get(id) != digest for id, digest in known.items())
        new = len(seen.keys() - known.keys())
        print_note(
            f"warning: the recordings are not those of {run}: of its {len(known)}, {changed} "
            f"changed or are gone, and {new} are new"
        )
