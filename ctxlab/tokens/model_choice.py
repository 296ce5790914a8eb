"""Choose the model whose tokenizer, prices and rules apply to a recording.

The caller can name one model for all recordings. Otherwise each recording is counted and priced as
the model with which it was recorded, so that the numbers match the bill. A recording that names no
model is counted and priced as ``DEFAULT_MODEL``. If the price of the model is unknown, the cost is
unknown too. ``explain_models`` describes the choice in a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxlab._utils.humanize import pluralize
from ctxlab.messages.types import Recording
from ctxlab.tokens.count_cache import find_count_cache
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter, get_counter
from ctxlab.tokens.models import find_model_without_warning
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile, find_profile, profile_key

_MAX_NAMED = 3
"maximum number of models that a sentence names; further models are only counted"


@dataclass(frozen=True)
class ModelChoice:
    """Choice of the model and of the token profile for each recording.

    Examples
    --------
    >>> claude = Recording("a", (), model="claude-opus-4-5")
    >>> ModelChoice().counter_for(claude), ModelChoice("gpt-4o").counter_for(claude)
    (TokenCounter('claude-opus-4-5', calibrated), TokenCounter('gpt-4o', exact))
    >>> ModelChoice().model_name_for(Recording("b", ()))
    'gpt-5'
    """

    model: str | None = None
    "model for all recordings; None uses the model of each recording"
    profiles: tuple[TokenProfile, ...] | None = None
    """profiles to use instead of those stored in ``project``. A profile without a family applies to
    all models. If no profile applies to a model, the built-in one of its family is used. With None,
    the profiles stored in ``project`` and the built-in ones are used."""
    project: Path | None = Path()
    "folder of the project whose stored profiles are used; None uses built-in profiles only"

    @classmethod
    def from_options(
        cls,
        model: str | None,
        profile: TokenProfile | Iterable[TokenProfile] | None,
        project: str | Path = "",
    ) -> ModelChoice:
        """Create a choice from the arguments ``model`` and ``profile`` of a public function.

        Parameters
        ----------
        model : str or None
            Model for all recordings. If it is None or empty, the model of each recording is used.
        profile : TokenProfile, iterable of TokenProfile or None
            Profiles to use instead of those stored in ``project``, each for the models of its
            family, or for all models if it has no family. For other models, built-in profiles are
            used. None uses the stored and built-in profiles.
        project : str or Path, optional
            Folder of the project whose stored profiles are used.

        Returns
        -------
        ModelChoice
            Choice with these settings.
        """
        if isinstance(profile, TokenProfile):
            profile = (profile,)
        profiles = None if profile is None else tuple(profile)
        return cls(model or None, profiles, Path(project))

    def model_name_for(self, recording: Recording) -> str:
        """Return the name of the model that is used to count and price a recording.

        Parameters
        ----------
        recording : Recording
            Recording to count.

        Returns
        -------
        str
            ``model`` if it is set; otherwise the recording's model, or ``DEFAULT_MODEL`` if the
            recording names none.
        """
        return self.model or recording.model or DEFAULT_MODEL

    def counter_for(self, recording: Recording) -> TokenCounter:
        """Return the token counter for a recording.

        Parameters
        ----------
        recording : Recording
            Recording to count.

        Returns
        -------
        TokenCounter
            Counter for the model of ``model_name_for`` with its profile. It stores counts on disk, if
            there is a cache (see ``find_count_cache``).
        """
        return self._counter(self.model_name_for(recording))

    def profiles_for(self, names: Iterable[str]) -> list[TokenProfile]:
        """Return the token profiles of several models, each profile once.

        Parameters
        ----------
        names : iterable of str
            Names of the models.

        Returns
        -------
        list of TokenProfile
            Profiles of the models. Models without a profile are left out.
        """
        found = dict.fromkeys(map(self.profile_for, names))
        return [each for each in found if each != UNCALIBRATED]

    def accuracy_note_for(self, name: str) -> str:
        """Return a sentence on the accuracy of a model's token counts.

        Parameters
        ----------
        name : str
            Name of the model.

        Returns
        -------
        str
            Sentence without a full stop.
        """
        return self._counter(name).accuracy_note

    def profile_for(self, name: str) -> TokenProfile:
        """Return the profile that converts a model's token counts to billed tokens.

        Parameters
        ----------
        name : str
            Name of the model.

        Returns
        -------
        TokenProfile
            Profile of the model's family; ``UNCALIBRATED`` if there is none.
        """
        if self.profiles is None:
            # Not cached, because a profile may have been stored since the last call.
            return find_profile(name, self.project)
        key = profile_key(name)
        matching = (each for each in self.profiles if each.family in ("", key))
        return next(matching, find_profile(name))

    def _counter(self, name: str) -> TokenCounter:
        return get_counter(name, self.profile_for(name), find_count_cache())


def explain_models(recordings: Sequence[Mapping[str, Any]], chosen_model: str | None = None) -> str:
    """Return a sentence that names the models used to count and price recordings.

    Parameters
    ----------
    recordings : sequence of mapping
        For each recording, a mapping with two keys: ``model``, the recorded model or None; and
        ``counted_as``, the model that was used to count it.
    chosen_model : str, optional
        Model that the caller chose for all recordings.

    Returns
    -------
    str
        Sentence without a full stop.

    Examples
    --------
    >>> claude, gpt, mine = (
    ...     {"model": name, "counted_as": name} for name in ("claude-opus-4-5", "gpt-4o", "mine")
    ... )
    >>> nameless = {"model": None, "counted_as": "gpt-5"}
    >>> explain_models([claude, claude])
    'counted and priced as claude-opus-4-5, the model of 2 recordings'
    >>> explain_models([claude, gpt, claude, nameless])
    'counted and priced by their own models: claude-opus-4-5 (2), gpt-4o (1); as gpt-5: \
1 recording that names no model'
    >>> explain_models([claude, mine])
    'counted and priced by their own models: claude-opus-4-5 (1), mine (1); no price is known for \
mine, so the cost of all recordings is unknown'
    >>> explain_models([claude], "gpt-5")
    'counted and priced as gpt-5; recorded with claude-opus-4-5 (1)'
    """
    made = dict(Counter(each["model"] for each in recordings if each["model"]).most_common())
    nameless = sum(not each["model"] for each in recordings)
    unnamed = f"{pluralize(nameless, 'recording')} {'names' if nameless == 1 else 'name'} no model"
    parts = []
    if chosen_model is not None:
        parts.append(f"counted and priced as {chosen_model}")
        made.pop(chosen_model, None)
        if made:
            parts.append(f"recorded with {_format_counts(made)}")
    elif not made:
        parts.append(f"counted and priced as {DEFAULT_MODEL}, since {unnamed}")
    elif len(made) == 1 and not nameless:
        [(name, count)] = made.items()
        parts.append(f"counted and priced as {name}, the model of {pluralize(count, 'recording')}")
    else:
        parts.append(f"counted and priced by their own models: {_format_counts(made)}")
        if nameless:
            parts.append(f"as {DEFAULT_MODEL}: {unnamed.replace(' name', ' that name')}")
    used = dict.fromkeys(each["counted_as"] for each in recordings)
    unpriced = [name for name in used if not find_model_without_warning(name).prices.known]
    if unpriced:
        shown = ", ".join(unpriced[:_MAX_NAMED])
        shown += " and others" if len(unpriced) > _MAX_NAMED else ""
        whose = "the cost of all recordings" if len(unpriced) < len(used) else "the cost"
        parts.append(f"no price is known for {shown}, so {whose} is unknown")
    return "; ".join(parts)


def _format_counts(counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_NAMED])
    more = len(counts) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
