"""What is remarked of a run goes to standard error: whom it asks, what it took, what it leaves out."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import many
from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import note

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

__all__ = [
    "say_of_which_model",
    "say_what_is_doubtful",
    "say_what_is_missing",
    "say_what_is_unlogged",
    "say_what_was_asked",
    "say_whether_same",
    "say_who_is_asked",
]


def say_who_is_asked(spec: Spec) -> None:
    """Nobody should be surprised by a bill, or by a key that is missing."""
    from ctxlab.llm import CALLS

    names = ", ".join(spec.asked)
    if spec.calls == "replay":
        note(f"the answers of {names} are those kept in {CALLS}; nothing is asked")
    else:
        kept = (
            "all are asked anew" if spec.calls == "record" else "what is there is not asked again"
        )
        note(f"strategies ask {names}; the answers are kept in {CALLS}, and {kept}")
    if unpriced := [name for name in spec.asked if _is_unpriced(name)]:
        verb = "has" if len(unpriced) == 1 else "have"
        note(f"{', '.join(unpriced)} {verb} no known price: costs that include it are shown as –")


def _is_unpriced(model: str) -> bool:
    from ctxlab.tokens.models import find_model

    known = find_model(model)
    # What an embedding costs is known where it is asked for: models here are those that chat.
    return not known.prices.known and "under embedding" not in (known.warning or "")


def say_what_was_asked(manifest: dict[str, Any]) -> None:
    """What the strategies' own calls took, model by model, and that what is kept costs nothing."""
    from ctxlab.cli.render.format import compact
    from ctxlab.llm import CALLS

    for model, took in manifest["calls"].items():
        calls, cached, usd = took["calls"], took["cached"], took["usd"]
        said = f"asked {model} {many(calls, 'time')}"
        if cached == calls:
            note(f"{said}: all answers came from {CALLS}, and nothing was billed")
            continue
        price = "at no known price" if usd is None else f"${usd:,.{2 if usd >= 1 else 4}f}"
        new = f"{compact(took['tokens'])} tokens, {price}"
        note(f"{said} ({many(cached, 'answer')} from {CALLS}): {new}")


def say_of_which_model(recordings: list[dict[str, Any]], named: str | None) -> None:
    """Say by which models recordings were counted and priced, unless all are of the one named."""
    from ctxlab.tokens.model_choice import explain_models

    if named is None:
        note(f"{explain_models(recordings)}; --model NAME takes one for all")
    elif any(recording["model"] not in (None, named) for recording in recordings):
        note(explain_models(recordings, named))


def say_what_is_missing(spec: Spec, found: Results) -> None:
    """What was to be measured by name, and of which these recordings hold nothing."""
    from ctxlab.evaluation.metrics import METRICS

    named = spec.metrics if set(spec.metrics) < set(METRICS) else ()
    for metric, column, why in (
        ("probes", "questions", "no recording holds a question: LoCoMo and LongMemEval do, and so do "
         "native recordings with probes"),
        ("canaries", "canaries", "no recording holds a canary: ctxlab canaries plants them, and "
         "--write keeps what it planted"),
    ):  # fmt: skip
        if metric in named and not found.requests[column].any():
            note(why)


def say_what_is_unlogged(recordings: list[dict[str, Any]], reserve: int) -> None:
    """What was billed beyond the log takes room in every real window."""
    from ctxlab.cli.render.format import compact

    known = [recording["unlogged"] for recording in recordings if recording["unlogged"] is not None]
    middle = median(known) if known else 0
    if middle > max(1000, reserve):
        note(
            f"about {compact(middle)} tokens of each billed request are in no log (system prompt, tool "
            f"definitions) and in no figure here: --reserve {compact(middle)} keeps room for them"
        )


def say_what_is_doubtful(recordings: list[dict[str, Any]]) -> None:
    """Warn of recordings whose tool calls were probably not read."""
    warned = [(each["recording"], each["warning"]) for each in recordings if each.get("warning")]
    for name, warning in warned[:3]:
        note(f"warning: {name} was probably not read in full: {warning}; see ctxlab describe")
    if len(warned) > 3:
        note(f"warning: so were {len(warned) - 3:,} more recordings")


def say_whether_same(run: Path, now: list[dict[str, Any]]) -> None:
    """A repeated run says whether it saw the conversations that the saved one saw."""
    from ctxlab.evaluation.results import MANIFEST

    manifest = run / MANIFEST if run.is_dir() else run
    before = parse_json(manifest.read_bytes()).get("recordings", [])
    known, seen = ({r["recording"]: r["digest"] for r in some} for some in (before, now))
    if known == seen:
        note(f"the {len(seen)} recordings are those of {run}")
    else:
        changed = sum(seen.get(id) != digest for id, digest in known.items())
        new = len(seen.keys() - known.keys())
        note(
            f"warning: the recordings are not those of {run}: of its {len(known)}, {changed} "
            f"changed or are gone, and {new} are new"
        )
