"""Two sets of tool calls agree as far as their calls can be paired: by name, by arguments, by both.

Calls of one message are made at once, so their order says nothing. Each call is paired with one of the
other side at most, and what is paired is divided by the larger number of calls: neither a call too many
nor one that is missing goes unseen. With one call on each side, which is the usual case, every figure
but ``leaves`` and ``entities`` is 0 or 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import iter_leaves, parse_json
from ctxlab.messages.entities import contains_entity, find_entities_in_value
from ctxlab.messages.types import ToolCall

__all__ = ["CallMatch", "match_calls", "same_arguments"]

_Leaves = Counter[tuple[str, Hashable]]


class CallMatch(NamedTuple):
    """How far the calls that a model makes are those that were recorded; shares from 0 to 1."""

    name: float
    "calls of the same tool"
    arguments: float
    "calls with equal arguments, whatever the tool"
    both: float
    "calls of the same tool with equal arguments"
    leaves: float
    "of the values in the arguments, those that are equal and in the same place in a call of the tool"
    entities: float
    "paths, ids, numbers … in the recorded arguments that the model's name too; nan: there are none"


def match_calls(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> CallMatch:
    """Compares recorded calls with those of a model; no call on either side is agreement too.

    Arguments are equal by ``same_arguments``. ``both <= leaves <= name``, and ``both <= arguments``.

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
    ours, theirs = (
        [_normalize_arguments(call) for call in recorded],
        [_normalize_arguments(call) for call in predicted],
    )
    names = [call.name for call in recorded], [call.name for call in predicted]
    return CallMatch(
        _count_common(*names) / most,
        _count_common(ours, theirs) / most,
        _count_common(zip(names[0], ours, strict=True), zip(names[1], theirs, strict=True)) / most,
        _leaf_share(recorded, predicted) / most,
        entities,
    )


def same_arguments(one: str, other: str) -> bool:
    """Whether two texts stand for the same arguments, read strictly.

    The order of keys, ``1`` and ``1.0``, and white space around a value make no difference. All else
    does: the case of letters, ``./a`` and ``a``, a value that is null and one that is not there. Text
    that is no JSON is compared as text; none at all is ``{}``.

    >>> same_arguments('{"a": 1, "b": "x"}', '{"b": "x ", "a": 1.0}'), same_arguments("", "{}")
    (True, True)
    >>> same_arguments('{"path": "./a"}', '{"path": "a"}'), same_arguments("[1]", "[true]")
    (False, False)
    """
    return _normalize_arguments(ToolCall("", "", one)) == _normalize_arguments(
        ToolCall("", "", other)
    )


def _count_common(ours: Iterable[Hashable], theirs: Iterable[Hashable]) -> int:
    """How many of the one can be paired with an equal one of the other."""
    return (Counter(ours) & Counter(theirs)).total()


def _leaf_share(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> float:
    """The shares of equal leaves of the pairs, the most alike paired first."""
    found = [(_count_leaves(call), _normalize_arguments(call)) for call in recorded]
    others = [(_count_leaves(call), _normalize_arguments(call)) for call in predicted]
    pairs = sorted(
        (
            -1.0 if found[i][1] == others[j][1] else -_leaf_similarity(found[i][0], others[j][0]),
            i,
            j,
        )
        for i in range(len(recorded))
        for j in range(len(predicted))
        if recorded[i].name == predicted[j].name
    )
    left, right, total = set(range(len(recorded))), set(range(len(predicted))), 0.0
    for share, i, j in pairs:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            total -= share
    return total


def _leaf_similarity(one: _Leaves, other: _Leaves) -> float:
    most = max(one.total(), other.total())
    return (one & other).total() / most if most else 0.0


def _entity_share(recorded: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> float:
    named = {
        entity.text
        for call in recorded
        for _, leaf in call.argument_leaves()
        for entity in find_entities_in_value(leaf)
    }
    if not named:
        return math.nan
    text = "\n".join(
        str(leaf) for call in predicted for _, leaf in call.argument_leaves() if leaf is not None
    )
    return sum(contains_entity(text, each) for each in named) / len(named)


def _count_leaves(call: ToolCall) -> _Leaves:
    return Counter((path, _freeze(leaf)) for path, leaf in iter_leaves(_parse_arguments(call)))


def _normalize_arguments(call: ToolCall) -> Hashable:
    try:
        return _freeze(_parse_arguments(call))
    except RecursionError:  # too deep to be gone through: as it is written
        return call.arguments.strip()


def _parse_arguments(call: ToolCall) -> Any:
    text = call.arguments.strip()
    try:
        return parse_json(text) if text else {}
    except ValueError:
        return text


def _freeze(value: Any) -> Hashable:
    """A value that is equal to another where the two mean the same; each kind by itself."""
    if isinstance(value, dict):
        return "object", frozenset((key, _freeze(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return "list", tuple(map(_freeze, value))
    if isinstance(value, str):
        return "text", value.strip()
    if isinstance(value, bool) or value is None:
        return "word", value
    return "number", value
