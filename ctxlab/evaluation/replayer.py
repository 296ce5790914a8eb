"""Replay recordings of a run again, one at a time, under the settings of the run.

Results contain figures and no messages. To show what a request contained, its recording is read again,
from memory or from the file that the results name, and replayed through one configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ctxlab.errors import CannotReplay, CtxlabError
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.grid import ExperimentGrid
from ctxlab.evaluation.replay import Replay
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.messages.types import Recording
from ctxlab.strategies import Strategy, models_used, parse_strategy
from ctxlab.strategies.registry import is_builtin
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.profiles import TokenProfile

MAX_MESSAGES = 5_000
"maximum number of messages of a recording that is replayed to be shown"
_PREPARED, _REPLAYS = 3, 12
"maximum numbers of recordings and of replays that are kept in memory"


class RunReplayer:
    """Replays recordings of a run through its configurations, and keeps the last ones in memory.

    Parameters
    ----------
    results : Results
        Results of the run.
    recordings : iterable of Recording, optional
        Recordings in memory. Others are read from the files that the results name.
    strategies : sequence of Strategy, optional
        Strategies of the run that are no part of ctxlab. No module is imported because a manifest
        names it, so such a strategy can be replayed only if it is passed here.

    Raises
    ------
    CannotReplay
        By each method, if a recording is missing or was changed since the run, is too long, or if a
        strategy is unknown or calls a model.
    """

    def __init__(
        self,
        results: Results,
        recordings: Iterable[Recording] = (),
        strategies: Sequence[Strategy] = (),
    ) -> None:
        self._spec = results.manifest["spec"]
        self._entries = results.recordings
        self._places = {entry["recording"]: i for i, entry in enumerate(self._entries)}
        self._in_memory = {recording_digest(each): each for each in recordings}
        self._own = {repr(each): each for each in strategies}
        # The caches belong to the object, so they end with it.
        self.prepare = lru_cache(_PREPARED)(self._prepare)
        self.replay = lru_cache(_REPLAYS)(self._replay)

    def _prepare(self, name: str) -> PreparedRecording:
        """Read a recording and count its tokens.

        Parameters
        ----------
        name : str
            Name of the recording in the run.

        Returns
        -------
        PreparedRecording
            Recording, counted with the model and the calibration of the run.
        """
        entry = self._entries[self._places[name]]
        recording = self._in_memory.get(entry["digest"]) or _read_again(entry)
        if recording is None:
            raise CannotReplay("its file is missing or was changed since the run")
        if len(recording.messages) > MAX_MESSAGES:
            raise CannotReplay(f"it has over {MAX_MESSAGES:,} messages")
        return self._grid("full()", 1.0).prepare_recording(recording)

    def _replay(self, name: str, strategy: str, limit: float) -> Replay:
        """Replay a recording through one configuration.

        Parameters
        ----------
        name : str
            Name of the recording in the run.
        strategy : str
            Strategy in text form.
        limit : float
            Limit in tokens, or as a share of each recording's length.

        Returns
        -------
        Replay
            Replay with its tables.
        """
        grid = self._grid(strategy, limit)
        prepared = self.prepare(name)
        budget = prepared.make_budget(limit, grid.reserve)
        return Replay(prepared, replay_trace(prepared, grid.strategies[0], budget))

    def _grid(self, strategy: str, limit: float) -> ExperimentGrid:
        """Return the experiment of the run with one configuration."""
        own = self._own.get(strategy)
        if own is None and not is_builtin(strategy):
            raise CannotReplay(
                "it is not part of ctxlab, and nothing is imported because a run names it"
            )
        if models_used(own or parse_strategy(strategy)):
            raise CannotReplay("it calls a model")
        spec = self._spec
        costs = CostSettings(
            spec["cache_ttl"], spec["fixed"], spec["fixed_in_limit"], spec["reasoning"]
        )
        profiles = msgspec.convert(spec["profiles"], list[TokenProfile])
        return ExperimentGrid.from_arguments(
            own or strategy, limit, spec["model"], spec["reserve"], "recall", profiles, costs=costs
        )


def _read_again(entry: Mapping[str, Any]) -> Recording | None:
    """Read a recording from its source; None if the source has no recording with this content."""
    if not entry["source"]:
        return None
    try:
        for recording in load(entry["source"], format=entry["format"], on_error="skip"):
            if recording_digest(recording) == entry["digest"]:
                return recording
    except (CtxlabError, OSError):
        pass
    return None
