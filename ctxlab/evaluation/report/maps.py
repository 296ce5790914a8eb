"""Context maps of a sample of recordings, for a report.

The recordings of a run are read again from the files that its manifest names, and replayed through a few
strategies. Recordings that are gone or were changed since the run are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import CtxlabError
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.grid import ExperimentGrid, measure_metrics
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.replay import Replay
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, message_text
from ctxlab.strategies import models_used, parse_strategy
from ctxlab.strategies.registry import is_builtin
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.profiles import TokenProfile

MAX_MESSAGES = 5_000
"maximum number of messages of a recording with a context map"
NO_FAR_NEEDS = f"No reply needs anything from more than {FAR_TOKENS:,} tokens earlier"
"beginning of a sentence about recordings without far needs"
_TEXT_BUDGET = 2_500_000
"maximum number of characters of all texts in a report"
_TEXT_LENGTHS = (8000, 4000, 2000, 1000, 400, 150)
"lengths to which each text is cut until all fit"
_ORIGINS = {"user": "the user", "tool": "a tool", "assistant": "the agent", "system": "the prompt"}


class MapRequest(NamedTuple):
    """Recording and configuration of a context map."""

    recording: str
    "name of the recording in the run"
    strategy: str
    "strategy in text form"
    limit: float
    "limit in tokens, or as a share of each recording's length"
    row: int
    "number of the configuration in the report"


@dataclass
class ContextMaps:
    """Context maps of a sample of recordings, as data for the front end."""

    maps: list[dict[str, Any]] = field(default_factory=list)
    "one entry per recording and configuration"
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    "messages of each recording: label, tokens, and the text if it was asked for"
    left_out: list[str] = field(default_factory=list)
    "sentences about recordings and strategies without a map"


def make_context_maps(
    manifest: Mapping[str, Any],
    wanted: Sequence[MapRequest],
    recordings: Iterable[Recording] = (),
    with_text: bool = False,
    progress: bool | None = None,
) -> ContextMaps:
    """Replay the recordings of a run through some of its configurations, and describe each replay.

    Parameters
    ----------
    manifest : mapping
        Manifest of the run.
    wanted : sequence of MapRequest
        Recordings and configurations.
    recordings : iterable of Recording, optional
        Recordings in memory. Others are read from the sources that the manifest names.
    with_text : bool, default False
        True to include texts of messages and the names of needs.
    progress : bool, optional
        Whether to show a progress bar. None shows it in a notebook and on a terminal.

    Returns
    -------
    ContextMaps
        Maps, messages, and what was left out.
    """
    found = ContextMaps()
    entries = {entry["recording"]: entry for entry in manifest["recordings"]}
    known = {recording_digest(each): each for each in recordings}
    texts: dict[str, list[str]] = {}
    by_name = groupby(sorted(wanted, key=lambda each: each.recording), lambda each: each.recording)
    chosen = [(name, list(asked)) for name, asked in by_name]
    for name, asked in track(chosen, "replaying", show=progress):
        recording = known.get(entries[name]["digest"]) or _read_again(entries[name])
        if recording is None:
            found.left_out.append(f"{name} has no map, because its file is missing or was changed.")
        elif len(recording.messages) > MAX_MESSAGES:
            found.left_out.append(
                f"{name} has no map, because it has over {MAX_MESSAGES:,} messages."
            )
        else:
            prepared = None
            for each in asked:
                grid = _make_grid(manifest["spec"], each, found.left_out)
                if grid is None:
                    continue
                prepared = prepared or grid.prepare_recording(recording)
                found.maps.append(_make_map(grid, prepared, each, with_text))
            if prepared is not None:
                found.messages[name] = _describe_messages(prepared)
                texts[name] = [message_text(message) for message in recording.messages]
    if with_text:
        _add_texts(found.messages, texts)
    return found


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


def _make_grid(
    spec: Mapping[str, Any], wanted: MapRequest, left_out: list[str]
) -> ExperimentGrid | None:
    """Return the experiment with one configuration; None if its strategy cannot be replayed here."""
    why = ""
    if not is_builtin(wanted.strategy):
        why = "a report imports no strategies from other packages"
    elif models_used(parse_strategy(wanted.strategy)):
        why = "it calls a model"
    if why:
        said = f"{wanted.strategy} has no map, because {why}."
        if said not in left_out:
            left_out.append(said)
        return None
    costs = CostSettings(
        spec["cache_ttl"], spec["fixed"], spec["fixed_in_limit"], spec["reasoning"]
    )
    profiles = msgspec.convert(spec["profiles"], list[TokenProfile])
    return ExperimentGrid.from_arguments(
        wanted.strategy,
        wanted.limit,
        spec["model"],
        spec["reserve"],
        "recall",
        profiles,
        costs=costs,
    )


def _make_map(
    grid: ExperimentGrid, prepared: PreparedRecording, wanted: MapRequest, with_text: bool
) -> dict[str, Any]:
    budget = prepared.make_budget(wanted.limit, grid.reserve)
    replay = Replay(prepared, replay_trace(prepared, grid.strategies[0], budget))
    last = prepared.request_positions[-1]
    usd = measure_metrics([METRICS["cost"]], prepared, [replay.trace])["cost_usd"][0]
    rows = replay.needs
    held = rows.loc[rows["tier"] == "held", "request"]
    missed = rows[rows["tier"] != "held"].to_dict("records")
    return {
        "recording": wanted.recording,
        "row": wanted.row,
        "requests": len(prepared.request_positions),
        "messages": last,
        "limit": budget.limit,
        "tokens": [int(each) for each in replay.trace.tokens],
        "usd": None if np.isnan(usd).any() else [float(f"{each:.4g}") for each in usd],
        "compactions": [int(each) for each in replay.compactions["request"]],
        "states": [_run_lengths(column) for column in replay.states[:, :last].T],
        "held": np.bincount(held, minlength=len(usd)).tolist(),
        "needs": [_describe_need(need, with_text) for need in missed],
        "summary": _summarize(rows[rows["far"]]["tier"].value_counts()),
    }


def _run_lengths(values: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    lengths = np.diff(starts, append=len(values))
    return [(int(values[i]), int(n)) for i, n in zip(starts, lengths, strict=True)]


def _describe_need(need: Mapping[Any, Any], with_text: bool) -> dict[str, Any]:
    origin = _ORIGINS.get(need["origin"], need["origin"])
    what = f"{need['kind']} for {need['tool']}, first said by {origin}"
    named = {"entity": need["entity"]} if with_text else {}
    return {
        "request": int(need["request"]),
        "last": int(need["last"]),
        "gap": int(need["gap"]),
        "far": bool(need["far"]),
        "tier": need["tier"],
        "what": need["entity"] if with_text else what,
        **named,
    }


def _summarize(far: pd.Series[int]) -> str:
    """Return how many far needs are in each tier, as a sentence."""
    if far.empty:
        return f"{NO_FAR_NEEDS}."
    tiers = [f"{far.get(tier, 0):,} {tier}" for tier in ("held", "named", "pointer", "lost")]
    return f"Far needs of this recording: {', '.join(tiers)}."


def _describe_messages(prepared: PreparedRecording) -> list[dict[str, Any]]:
    entries = prepared.history.entries
    names = {call.id: call.name for m in prepared.recording.messages for call in m.tool_calls}
    return [{"label": _label(entry.message, names), "tokens": entry.tokens} for entry in entries]


def _label(message: Message, names: Mapping[str, str]) -> str:
    tool = message.name or names.get(message.tool_call_id or "", "")
    if message.role == "tool":
        return f"tool result of {tool}" if tool else "tool result"
    called = ", ".join(dict.fromkeys(call.name for call in message.tool_calls))
    return f"{message.role}, calls {called}" if called else message.role


def _add_texts(
    messages: Mapping[str, Sequence[dict[str, Any]]], texts: Mapping[str, Sequence[str]]
) -> None:
    """Add the texts to the messages, cut so that all together stay within ``_TEXT_BUDGET``."""

    def total(length: int) -> int:
        return sum(min(len(text), length) for each in texts.values() for text in each)

    length = next((n for n in _TEXT_LENGTHS if total(n) <= _TEXT_BUDGET), _TEXT_LENGTHS[-1])
    for name, described in messages.items():
        for message, text in zip(described, texts[name], strict=True):
            cut = len(text) - length
            message["text"] = text if cut <= 0 else f"{text[:length]}\n[{cut:,} characters more]"


def iter_lost(maps: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the far needs that were lost, with the recording and the configuration of their map.

    Parameters
    ----------
    maps : iterable of mapping
        Maps of ``ContextMaps``.

    Yields
    ------
    dict
        Need with the keys ``recording`` and ``row``.
    """
    for each in maps:
        for need in each["needs"]:
            if need["far"] and need["tier"] == "lost":
                yield {**need, "recording": each["recording"], "row": each["row"]}
