"""Choose whose tokenizer, prices and rules apply to a recording.

Where no model is named, each recording is counted and priced by the model that it was made with, so that
figures are those of the bill. A recording that names no model is counted and priced as
``DEFAULT_MODEL``; the cost of a model whose price nobody knows is not known. ``explain_models`` says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxlab._utils.humanize import pluralize
from ctxlab.messages.types import Recording
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter, get_counter
from ctxlab.tokens.models import find_model_without_warning
from ctxlab.tokens.profiles import (
    BUILT_IN_PROFILES,
    UNCALIBRATED,
    TokenProfile,
    find_profile,
    profile_key,
)

__all__ = ["ModelChoice", "explain_models"]

_MAX_NAMED = 3
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
    >>> ModelChoice().model_name_for(Recording("b", ()))
    'gpt-5'
    """

    model: str | None = None
    profiles: tuple[TokenProfile, ...] | None = None
    project: Path | None = Path()

    @classmethod
    def from_options(
        cls,
        model: str | None,
        profile: TokenProfile | Iterable[TokenProfile] | None,
        project: str | Path = "",
    ) -> ModelChoice:
        """From what a caller writes: one profile, several, or none; an empty model is none."""
        if isinstance(profile, TokenProfile):
            profile = (profile,)
        profiles = None if profile is None else tuple(profile)
        return cls(model or None, profiles, Path(project))

    def model_name_for(self, recording: Recording) -> str:
        """The model by which a recording is counted and priced."""
        return self.model or recording.model or DEFAULT_MODEL

    def counter_for(self, recording: Recording) -> TokenCounter:
        """The counter of a recording."""
        return self._counter(self.model_name_for(recording))

    def profiles_for(self, names: Iterable[str]) -> list[TokenProfile]:
        """The profiles by which models count, those that change nothing left out."""
        found = dict.fromkeys(map(self.profile_for, names))
        return [each for each in found if each != UNCALIBRATED]

    def accuracy_note_for(self, name: str) -> str:
        """How far the counts of a model can be trusted, as a sentence."""
        return self._counter(name).accuracy_note

    def profile_for(self, name: str) -> TokenProfile:
        """How a model counts."""
        if self.profiles is None:
            # Looked for each time: a calibration may have been stored since.
            return find_profile(name, self.project)
        key = profile_key(name)
        matching = (each for each in self.profiles if each.family in ("", key))
        return next(matching, BUILT_IN_PROFILES.get(key, UNCALIBRATED))

    def _counter(self, name: str) -> TokenCounter:
        return get_counter(name, self.profile_for(name))


def explain_models(recordings: Sequence[Mapping[str, Any]], chosen_model: str | None = None) -> str:
    """Say in a sentence by which models recordings were counted and priced.

    Parameters
    ----------
    recordings : sequence of mappings
        Facts of each recording: ``model`` that it was made with, ``counted_as``.
    chosen_model : str, optional
        The model that the caller named for all of them.

    Returns
    -------
    str
        One sentence, without a full stop.

    Examples
    --------
    >>> claude, gpt, mine = (
    ...     {"model": name, "counted_as": name} for name in ("claude-opus-4-5", "gpt-4o", "mine")
    ... )
    >>> nameless = {"model": None, "counted_as": "gpt-5"}
    >>> explain_models([claude, claude])
    'counted and priced as claude-opus-4-5, by which 2 recordings were made'
    >>> explain_models([claude, gpt, claude, nameless])
    'counted and priced by their own models: claude-opus-4-5 (2), gpt-4o (1); as gpt-5: \
1 recording that names no model'
    >>> explain_models([claude, mine])
    'counted and priced by their own models: claude-opus-4-5 (1), mine (1); no price is known for \
mine, so that the cost of all recordings is not known'
    >>> explain_models([claude], "gpt-5")
    'counted and priced as gpt-5; recorded with claude-opus-4-5 (1)'
    """
    made = _count_names(each["model"] for each in recordings if each["model"])
    nameless = sum(not each["model"] for each in recordings)
    parts = []
    if chosen_model is not None:
        others = {name: count for name, count in made.items() if name != chosen_model}
        parts.append(f"counted and priced as {chosen_model}")
        if others:
            parts.append(f"recorded with {_format_counts(others)}")
    elif not made:
        verb = "names" if nameless == 1 else "name"
        parts.append(
            f"counted and priced as {DEFAULT_MODEL}, since {pluralize(nameless, 'recording')} {verb} "
            "no model"
        )
    elif len(made) == 1 and not nameless:
        (name, count), *_ = made.items()
        verb = "was" if count == 1 else "were"
        parts.append(
            f"counted and priced as {name}, by which {pluralize(count, 'recording')} {verb} made"
        )
    else:
        parts.append(f"counted and priced by their own models: {_format_counts(made)}")
        if nameless:
            that = "that names" if nameless == 1 else "that name"
            who = f"{pluralize(nameless, 'recording')} {that} no model"
            parts.append(f"as {DEFAULT_MODEL}: {who}")
    used = dict.fromkeys(each["counted_as"] for each in recordings)
    unpriced = [name for name in used if not find_model_without_warning(name).prices.known]
    if unpriced:
        shown = ", ".join(unpriced[:_MAX_NAMED]) + (
            " and others" if len(unpriced) > _MAX_NAMED else ""
        )
        whose = "the cost of all recordings" if len(unpriced) < len(used) else "the cost"
        parts.append(f"no price is known for {shown}, so that {whose} is not known")
    return "; ".join(parts)


def _count_names(names: Iterable[str]) -> dict[str, int]:
    """Each name and how often it stands there, the most frequent first."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _format_counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_NAMED]]
    more = len(counts) - _MAX_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
