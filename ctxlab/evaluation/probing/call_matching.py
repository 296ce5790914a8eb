"""Compare a model's tool calls with the recorded ones: by name, by arguments, and by both.

The order of calls within a message is ignored, because all of them are made at once. A recorded call
is paired with at most one call of the model. The number of pairs is divided by the number of recorded
calls or of the model's calls, whichever is larger, so that missing and extra calls both lower the
agreement. In the usual case of one recorded call and one call of the model, the shares of
``CallMatch`` are 0 or 1, except ``leaves`` and ``entities``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import iter_leaves, parse_json
from ctxlab.messages.entities import contains_entity, find_entities_in_value
from ctxlab.messages.types import ToolCall

_Leaves = Counter[tuple[str, Hashable]]


class CallMatch(NamedTuple):
    """Agreement of a model's tool calls with the recorded ones, as shares from 0 to 1."""

    name: float
    "share of calls that call the same tool"
    arguments: float
    "share of calls with equal arguments, even if the tools differ"
    both: float
    "share of calls that call the same tool with equal arguments"
    leaves: float
    "share of argument values that are equal and at the same JSON path in a call of the same tool"
    entities: float
    """share of the paths, ids, numbers and other entities in the recorded arguments that occur in the
    model's arguments; nan if the recorded arguments contain no entity"""


def match_calls(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> CallMatch:
    """Compare recorded tool calls with the tool calls of a model.

    Arguments are compared in the same way as by ``same_arguments``. If both sequences are empty, the
    agreement is 1. The shares satisfy ``both <= leaves <= name`` and ``both <= arguments``.

    Parameters
    ----------
    recorded : sequence of ToolCall
        Recorded calls of one message.
    predicted : sequence of ToolCall
        Calls that the model made instead.

    Returns
    -------
    CallMatch
        Shares of agreement by name, arguments, both, argument values, and entities.

    Examples
    --------
    >>> read = ToolCall("c1", "read", '{"path": "a.py", "limit": 10}')
    >>> match_calls([read], [ToolCall("x", "read", '{"limit": 10.0, "path": " a.py"}')])
    CallMatch(name=1.0, arguments=1.0, both=1.0, leaves=1.0, entities=1.0)
    >>> match_calls([read], [ToolCall("x", "read", '{"limit": 20, "path": "a.py"}')])
    CallMatch(name=1.0, arguments=0.0, both=0.0, leaves=0.5, entities=1.0)
    >>> match_calls([read], [])
    CallMatch(name=0.0, arguments=0.0, both=0.0, leaves=0.0, entities=0.0)
    """
    most = max(len(recorded), len(predicted))
    entities = _entity_share(recorded, predicted)
    if not most:
        return CallMatch(1.0, 1.0, 1.0, 1.0, entities)
    names, others = ([call.name for call in calls] for calls in (recorded, predicted))
    ours, theirs = ([_normalize_arguments(c) for c in calls] for calls in (recorded, predicted))
    both = _count_common(zip(names, ours, strict=True), zip(others, theirs, strict=True))
    return CallMatch(
        _count_common(names, others) / most,
        _count_common(ours, theirs) / most,
        both / most,
        _leaf_share(recorded, predicted) / most,
        entities,
    )


def same_arguments(one: str, other: str) -> bool:
    """Check if two JSON strings contain the same arguments of a tool call.

    The order of keys and whitespace around strings are ignored, and ``1`` equals ``1.0``. All other
    differences count, such as those of upper and lower case, of ``./a`` and ``a``, or of a null and a
    missing key. Strings that are not valid JSON are compared as they are. An empty string equals ``{}``.

    Parameters
    ----------
    one, other : str
        Arguments as JSON.

    Returns
    -------
    bool
        True if the arguments are equal in this sense.

    Examples
    --------
    >>> same_arguments('{"a": 1, "b": "x"}', '{"b": "x ", "a": 1.0}'), same_arguments("", "{}")
    (True, True)
    >>> same_arguments('{"path": "./a"}', '{"path": "a"}'), same_arguments("[1]", "[true]")
    (False, False)
    """
    ours, theirs = (_normalize_arguments(ToolCall("", "", text)) for text in (one, other))
    return ours == theirs


def _count_common(ours: Iterable[Hashable], theirs: Iterable[Hashable]) -> int:
    """Count the elements that two collections have in common, including duplicates."""
    return (Counter(ours) & Counter(theirs)).total()


def _leaf_share(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> float:
    """Pair the most similar calls of the same tool, and return the sum of their similarities.

    The similarity of a pair is the share of argument values that agree, from 0 to 1.
    """
    ours, theirs = (
        [(_count_leaves(call), _normalize_arguments(call)) for call in calls]
        for calls in (recorded, predicted)
    )
    pairs = sorted(
        (-_leaf_similarity(ours[i], theirs[j]), i, j)
        for i, j in product(range(len(recorded)), range(len(predicted)))
        if recorded[i].name == predicted[j].name
    )
    left, right, total = set(range(len(recorded))), set(range(len(predicted))), 0.0
    for share, i, j in pairs:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            total -= share
    return total


def _leaf_similarity(one: tuple[_Leaves, Hashable], other: tuple[_Leaves, Hashable]) -> float:
    """Return the share of argument values that two calls have in common; 1 for equal arguments."""
    if one[1] == other[1]:
        return 1.0
    most = max(one[0].total(), other[0].total())
    return (one[0] & other[0]).total() / most if most else 0.0


def _entity_share(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> float:
    values = (leaf for call in recorded for _, leaf in call.argument_leaves())
    named = {entity.text for value in values for entity in find_entities_in_value(value)}
    if not named:
        return math.nan
    leaves = (leaf for call in predicted for _, leaf in call.argument_leaves())
    text = "\n".join(str(leaf) for leaf in leaves if leaf is not None)
    return sum(contains_entity(text, each) for each in named) / len(named)


def _count_leaves(call: ToolCall) -> _Leaves:
    return Counter((path, _freeze(leaf)) for path, leaf in iter_leaves(_parse_arguments(call)))


def _normalize_arguments(call: ToolCall) -> Hashable:
    try:
        return _freeze(_parse_arguments(call))
    except RecursionError:  # The value is nested too deeply, so compare the strings.
        return call.arguments.strip()


def _parse_arguments(call: ToolCall) -> Any:
    text = call.arguments.strip()
    try:
        return parse_json(text) if text else {}
    except ValueError:
        return text


def _freeze(value: Any) -> Hashable:
    """Convert a JSON value to a hashable value.

    Two values that count as the same argument are converted to equal values.
    """
    if isinstance(value, dict):
        return "object", frozenset((key, _freeze(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return "list", tuple(map(_freeze, value))
    if isinstance(value, str):
        return "text", value.strip()
    if isinstance(value, bool) or value is None:
        return "word", value
    return "number", value
