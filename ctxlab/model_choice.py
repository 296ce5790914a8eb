"""Choose whose tokenizer, prices and rules apply to a recording.

Where no model is named, each recording is counted and priced by the model that it was made with, so that
figures are those of the bill. A recording that names no model is counted and priced as
``DEFAULT_MODEL``, and one of a model that nobody knows is priced so; ``explain_models`` says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ctxlab.conversation import Recording
from ctxlab.models import Model, find_model, known_model
from ctxlab.profiles import BUILT_IN, UNCALIBRATED, Profile, find_profile, key_of
from ctxlab.quantity import many
from ctxlab.tokens import DEFAULT_MODEL, TokenCounter

__all__ = ["ModelChoice", "explain_models"]

_NAMED = 3
"models that a sentence names; the others are counted"


@dataclass(frozen=True)
class ModelChoice:
    """The model of every recording, or each recording's own.

    Parameters
    ----------
    model : str, optional
        Applies to every recording. None: each recording's own.
    profiles : tuple of Profile, optional
        How families of models count; one without a family applies to every model. Families that are
        not among them count by the built-in profile. None: the calibration that ``project`` stores,
        else the built-in one.
    project : Path, optional
        Folder whose calibration is looked for; the current one.

    Examples
    --------
    >>> claude = Recording("a", (), model="claude-opus-4-5")
    >>> ModelChoice().counter_for(claude), ModelChoice("gpt-4o").counter_for(claude)
    (TokenCounter('claude-opus-4-5', calibrated), TokenCounter('gpt-4o', exact))
    >>> ModelChoice().model_for(Recording("b", ())).name
    'gpt-5'
    """

    model: str | None = None
    profiles: tuple[Profile, ...] | None = None
    project: Path | None = Path()

    @classmethod
    def of(cls, model: str | None, profile: Profile | Iterable[Profile] | None) -> ModelChoice:
        """From what a caller writes: one profile, several, or none."""
        if profile is None or isinstance(profile, Profile):
            return cls(model, None if profile is None else (profile,))
        return cls(model, tuple(profile))

    def counter_for(self, recording: Recording) -> TokenCounter:
        """The counter of a recording; recordings of one model share it."""
        return self._counter(self._counted_as(recording))

    def names_for(self, recording: Recording) -> tuple[str, str]:
        """By which models a recording is counted, and priced."""
        return self._counted_as(recording), self.model_for(recording).name

    def note_of(self, name: str) -> str:
        """How far the counts of a model can be trusted, as a sentence."""
        return self._counter(name).note

    def model_for(self, recording: Recording) -> Model:
        """The prices, cache and rules of a recording: its own model's, where that is known."""
        if self.model is not None:
            return find_model(self.model)
        known = known_model(recording.model) if recording.model else None
        return known or find_model(DEFAULT_MODEL)

    def profile_for(self, name: str) -> Profile:
        """How a model counts."""
        if self.profiles is None:
            # Looked for each time: a calibration may have been stored since.
            return find_profile(name, self.project)
        key = key_of(name)
        given = (each for each in self.profiles if each.family in ("", key))
        return next(given, BUILT_IN.get(key, UNCALIBRATED))

    def _counted_as(self, recording: Recording) -> str:
        return self.model or recording.model or DEFAULT_MODEL

    def _counter(self, name: str) -> TokenCounter:
        return _counter(name, self.profile_for(name))


@lru_cache(maxsize=16)
def _counter(name: str, profile: Profile) -> TokenCounter:
    return TokenCounter(name, profile)


def explain_models(recordings: Sequence[Mapping[str, Any]], named: str | None = None) -> str:
    """Say in a sentence by which models recordings were counted and priced, and why.

    Parameters
    ----------
    recordings : sequence of mappings
        Facts of each recording: ``model`` that it was made with, ``counted_as``, ``priced_as``.
    named : str, optional
        The model that the caller named for all of them.

    Returns
    -------
    str
        One sentence, without a full stop.

    Examples
    --------
    >>> claude = dict.fromkeys(("model", "counted_as", "priced_as"), "claude-opus-4-5")
    >>> gpt = dict.fromkeys(("model", "counted_as", "priced_as"), "gpt-4o")
    >>> unknown = {"model": "mine", "counted_as": "mine", "priced_as": "gpt-5"}
    >>> nameless = {"model": None, "counted_as": "gpt-5", "priced_as": "gpt-5"}
    >>> explain_models([claude, claude])
    'counted and priced as claude-opus-4-5, the model of all recordings'
    >>> explain_models([claude, gpt, claude, nameless])
    'each recording is counted and priced as its own model: claude-opus-4-5 (2), gpt-4o (1); \
1 recording names no model: counted and priced as gpt-5'
    >>> explain_models([unknown])
    'no known model is called mine (1): priced as gpt-5'
    >>> explain_models([claude], "gpt-5")
    'counted and priced as gpt-5; recorded with claude-opus-4-5 (1)'
    """
    made = _tally(each["model"] for each in recordings if each["model"] is not None)
    if named is not None:
        others = {name: count for name, count in made.items() if name != named}
        recorded = f"; recorded with {_listed(others)}" if others else ""
        return f"counted and priced as {named}{recorded}"
    strange = _tally(
        each["model"] for each in recordings if each["model"] not in (None, each["priced_as"])
    )
    own = {name: count for name, count in made.items() if name not in strange}
    nameless = sum(each["model"] is None for each in recordings)
    parts = []
    if len(own) == 1 and not strange and not nameless:
        parts.append(f"counted and priced as {next(iter(own))}, the model of all recordings")
    elif own:
        parts.append(f"each recording is counted and priced as its own model: {_listed(own)}")
    if strange:
        parts.append(f"no known model is called {_listed(strange)}: priced as {DEFAULT_MODEL}")
    if nameless:
        verb = "names" if nameless == 1 else "name"
        who = f"{many(nameless, 'recording')} {verb} no model"
        parts.append(f"{who}: counted and priced as {DEFAULT_MODEL}")
    return "; ".join(parts)


def _tally(names: Iterable[str]) -> dict[str, int]:
    """Each name and how often it stands there, the most frequent first."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name} ({count:,})" for name, count in [*counts.items()][:_NAMED]]
    more = len(counts) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
