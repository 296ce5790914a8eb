"""Filter recordings by conditions, and draw reproducible random samples of them."""

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

Condition: TypeAlias = Callable[[Recording], bool]
"""A function that returns True for the recordings to keep."""

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
    """Parse a condition such as ``messages>=50``, ``tokens>=20k`` or ``model=claude*``.

    A condition compares a property of a recording with a value. The properties ``messages``,
    ``requests``, ``tokens``, ``compactions`` and ``probes`` are numbers, and the operators ``>=``,
    ``<=``, ``>``, ``<``, ``=`` and ``!=`` can be used. ``tokens`` is the size of the whole
    recording, counted with the tokenizer of GPT-5. The properties ``model``, ``id``, ``cluster``
    and ``format`` are strings, and the operators ``=`` and ``!=`` can be used. In the value of a
    string, ``*`` matches any characters.

    Parameters
    ----------
    text : str
        The condition to parse.

    Returns
    -------
    Callable
        A function that takes a recording and returns True if the recording meets the condition.

    Raises
    ------
    SpecError
        If ``text`` is not a valid condition.

    Examples
    --------
    >>> parse_condition("requests > 0")(Recording("a", ()))
    False
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        wanted = "a condition such as messages>=50 or model=claude*"
        raise SpecError(f"where: expected {wanted}, got {text!r}")
    name, sign, wanted = found.groups()
    if name in _TEXT_PROPERTIES:
        if sign not in ("=", "==", "!="):
            raise SpecError(f"where: expected = or != after {name}, got {sign!r} in {text!r}")
        property_text, is_equal = _TEXT_PROPERTIES[name], sign != "!="
        # Only * is a wildcard, because brackets and question marks are common in ids.
        pattern = re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
        return lambda recording: bool(pattern.fullmatch(property_text(recording))) is is_equal
    if name not in _NUMBER_PROPERTIES:
        known = [*_NUMBER_PROPERTIES, *_TEXT_PROPERTIES]
        raise SpecError(f"where: {UnknownName('property', name, known)}")
    size, compare = _NUMBER_PROPERTIES[name], _COMPARISONS[sign]
    bound = _parse_number(wanted, text)
    return lambda recording: bool(compare(size(recording), bound))


def sample_recordings(recordings: Iterable[Recording], size: int, seed: int) -> Iterator[Recording]:
    """Draw a random sample of recordings and keep their order.

    Each recording gets a pseudorandom rank that depends only on its id and the seed, and the
    recordings with the highest ranks are drawn. The sample therefore does not depend on the order
    of reading. Adding a recording replaces at most one recording of the sample. At most ``size``
    recordings are kept in memory.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings to draw from.
    size : int
        Number of recordings to draw, at least 1.
    seed : int
        Seed of the random ranks.

    Yields
    ------
    Recording
        The recordings of the sample, in their original order. All recordings are yielded if there
        are at most ``size``.

    Raises
    ------
    SpecError
        If ``size`` is less than 1.
    """
    if size < 1:
        raise SpecError(f"sample: expected 1 or more recordings, got {size}")
    sample: list[tuple[int, int, Recording]] = []
    for place, recording in enumerate(recordings):
        key = f"{seed}\0{recording.id}".encode(errors="surrogatepass")
        rank = -int.from_bytes(blake2b(key, digest_size=16).digest())
        entry = (rank, place, recording)
        if len(sample) < size:
            heapq.heappush(sample, entry)
        elif rank > sample[0][0]:
            heapq.heapreplace(sample, entry)
    yield from (recording for _, _, recording in sorted(sample, key=lambda entry: entry[1]))


def _parse_number(text: str, condition: str) -> float:
    found = parse_quantity(text)
    if found is None or found[1]:
        raise SpecError(
            f"where: expected a number such as 50, 20k or 1.5M, got {text!r} in {condition!r}"
        )
    return found[0]
