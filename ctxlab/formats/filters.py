"""Of many recordings some are chosen: by what they are, or a sample that another day draws again."""

from __future__ import annotations

import heapq
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TypeAlias

from ctxlab._utils.humanize import parse_quantity
from ctxlab.errors import SpecError, UnknownName
from ctxlab.messages.types import Recording
from ctxlab.tokens.counter import TokenCounter

__all__ = ["Condition", "parse_condition", "sample_recordings"]

Condition: TypeAlias = Callable[[Recording], bool]

_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|!=|==|=|>|<)\s*(.*?)\s*")
_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
          "=": operator.eq, "==": operator.eq, "!=": operator.ne}  # fmt: skip
_NUMBER_PROPERTIES: dict[str, Callable[[Recording], int]] = {
    "messages": lambda recording: len(recording.messages),
    "requests": lambda recording: len(recording.request_positions),
    "tokens": lambda recording: TokenCounter().count_request(recording.messages, recording.tools),
    "compactions": lambda recording: len(recording.compactions),
    "probes": lambda recording: len(recording.probes),
}
_TEXT_PROPERTIES: dict[str, Callable[[Recording], str]] = {
    "model": lambda recording: recording.model or "",
    "id": lambda recording: recording.id,
    "cluster": lambda recording: recording.cluster or recording.id,
    "format": lambda recording: recording.format or "",
}


def parse_condition(text: str) -> Condition:
    """What a text asks of a recording: ``messages>=50``, ``tokens>=20k``, ``model=claude*``.

    ``messages``, ``requests``, ``tokens`` (as GPT-5 counts the whole recording), ``compactions``
    and ``probes`` are compared with ``>= <= > < = !=``; ``model``, ``id``, ``cluster`` and
    ``format`` with ``=`` and ``!=``, where ``*`` stands for anything. Raises ``SpecError``.

    >>> parse_condition("requests > 0")(Recording("a", ()))
    False
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise SpecError(f"where: {text!r} is no condition; write messages>=50 or model=claude*")
    name, sign, wanted = found.groups()
    if name in _TEXT_PROPERTIES:
        if sign not in ("=", "==", "!="):
            raise SpecError(f"where: {name} is a text: compare it with = or !=, not {sign}")
        property_text, is_equal = _TEXT_PROPERTIES[name], sign != "!="
        # Only * stands for anything: brackets and question marks are common in ids.
        pattern = re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
        return lambda recording: (
            (pattern.fullmatch(property_text(recording)) is not None) is is_equal
        )
    if name not in _NUMBER_PROPERTIES:
        raise SpecError(
            f"where: {UnknownName('property', name, [*_NUMBER_PROPERTIES, *_TEXT_PROPERTIES])}"
        )
    size, compare = _NUMBER_PROPERTIES[name], _COMPARISONS[sign]
    bound = _parse_number(wanted, text)
    return lambda recording: bool(compare(size(recording), bound))


def sample_recordings(
    recordings: Iterable[Recording], count: int, seed: int = 0
) -> Iterator[Recording]:
    """A random sample of ``count`` recordings, in their order; ``count`` of them are held at a time.

    A recording is drawn by its id and the seed alone: the same data gives the same sample however
    it is read, and data that was added changes it little.
    """
    if count < 1:
        raise SpecError(f"sample: draw at least one recording, not {count}")
    sample: list[tuple[int, int, Recording]] = []
    for place, recording in enumerate(recordings):
        key = f"{seed}\0{recording.id}".encode(errors="surrogatepass")
        rank = -int.from_bytes(blake2b(key, digest_size=16).digest())
        entry = (rank, place, recording)
        if len(sample) < count:
            heapq.heappush(sample, entry)
        elif rank > sample[0][0]:
            heapq.heapreplace(sample, entry)
    yield from (recording for _, _, recording in sorted(sample, key=lambda entry: entry[1]))


def _parse_number(text: str, condition: str) -> float:
    found = parse_quantity(text)
    if found is None or found[1]:
        raise SpecError(f"where: {condition!r} compares with a number, such as 50, 20k or 1.5M")
    return found[0]
