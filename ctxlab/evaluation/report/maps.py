"""Context maps of a sample of recordings, for a report.

Recordings and strategies that cannot be replayed again are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from ctxlab._utils.progress import track
from ctxlab.errors import CannotReplay
from ctxlab.evaluation.frontend.replay_map import describe_messages, describe_replay
from ctxlab.evaluation.replayer import RunReplayer
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Recording
from ctxlab.tokens.images import shown_text

_TEXT_BUDGET = 2_500_000
"maximum number of characters of all texts in a report"
_TEXT_LENGTHS = (8000, 4000, 2000, 1000, 400, 150)
"lengths to which each text is cut until all fit"


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
    results: Results,
    wanted: Sequence[MapRequest],
    recordings: Iterable[Recording] = (),
    with_text: bool = False,
    progress: bool | None = None,
) -> ContextMaps:
    """Replay the recordings of a run through some of its configurations, and describe each replay.

    Parameters
    ----------
    results : Results
        Results of the run.
    wanted : sequence of MapRequest
        Recordings and configurations.
    recordings : iterable of Recording, optional
        Recordings in memory. Others are read from the sources that the results name.
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
    replayer = RunReplayer(results, recordings)
    texts: dict[str, list[str]] = {}
    by_name = groupby(sorted(wanted, key=lambda each: each.recording), lambda each: each.recording)
    chosen = [(name, list(asked)) for name, asked in by_name]
    for name, asked in track(chosen, "replaying", show=progress):
        try:
            prepared = replayer.prepare(name)
        except CannotReplay as error:
            found.left_out.append(f"{name} has no map, because {error}.")
            continue
        for each in asked:
            try:
                replay = replayer.replay(name, each.strategy, each.limit)
            except CannotReplay as error:
                said = f"{each.strategy} has no map, because {error}."
                if said not in found.left_out:
                    found.left_out.append(said)
                continue
            described = describe_replay(replay, with_text)
            found.maps.append({"recording": name, "row": each.row, **described})
            if name not in found.messages:
                found.messages[name] = describe_messages(prepared)
                texts[name] = [shown_text(message) for message in prepared.recording.messages]
    if with_text:
        _add_texts(found.messages, texts)
    return found


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
