"""Hypothesis strategies for arbitrary recordings: any value in any field, any character.

Use ``any_recordings()`` to test code that must keep everything, such as writers. The recordings need
not be plausible or valid for a provider.
"""

from __future__ import annotations

import json

from generated import TOOLS
from hypothesis import strategies as st

from ctxlab.messages.types import (
    Compaction,
    Message,
    Probe,
    Recording,
    Substitute,
    ToolCall,
    Usage,
)

# All characters, including lone surrogates.
_texts = st.text(st.characters(exclude_categories=()), max_size=12)
_names = _texts.filter(bool)
_counts = st.integers(min_value=0, max_value=10**7)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _finite | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_objects = st.dictionaries(_texts, _json_values, max_size=3)
_rare = st.just({}) | st.just({"is_error": True}) | _objects
_parts = st.builds(lambda text: {"type": "text", "text": text}, _texts) | st.sampled_from(
    [
        *({"type": "image_url", "image_url": {"url": url}} for url in ("https://ex.org/a", "a b")),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        *({"type": "text"}, {"type": "input_audio", "input_audio": {}}, {"text": "?"}, {}),
    ]
)
_arguments = _texts | _objects.map(lambda value: json.dumps(value, separators=(",", ":")))
_calls = st.builds(ToolCall, st.sampled_from(["c1", "c2", "a.b", ""]) | _texts, _texts, _arguments)
_messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "assistant", "tool"]),
    content=st.none() | _texts | st.lists(_parts, max_size=3).map(tuple),
    tool_calls=st.lists(_calls, max_size=2).map(tuple),
    tool_call_id=st.none() | _texts,
    name=st.none() | _texts,
    reasoning=st.none() | _names,
    usage=st.none() | st.builds(Usage, _counts, _counts, _counts, _counts),
    time=st.none() | _finite | _counts,
    file=st.none() | _texts,
    extra=_rare,
)
_positions = st.lists(_counts, max_size=3).map(tuple)
_probes = st.builds(
    Probe, _texts, _texts, st.lists(_texts).map(tuple), _positions, st.none() | _counts
)
# msgspec converts the integer times of nested messages to floats.
_sent = _messages.map(
    lambda message: message.replace(time=None if message.time is None else float(message.time))
)
_items = st.integers(0, 9) | st.builds(Substitute, _sent, st.none() | st.integers(0, 9))
_compactions = st.builds(
    Compaction,
    st.integers(10, 10**7),
    st.lists(_items, max_size=3).map(tuple),
    st.sampled_from(["summary", "clear"]),
    hidden_tokens=_counts,
)


def any_recordings() -> st.SearchStrategy[Recording]:
    """Recordings with arbitrary values in all fields."""
    return st.builds(
        Recording,
        id=_names,
        messages=st.lists(_messages, max_size=4).map(tuple),
        tools=st.lists(_objects | st.sampled_from(TOOLS), max_size=2).map(tuple),
        model=st.none() | _names,
        probes=st.lists(_probes, max_size=2).map(tuple),
        compactions=st.lists(_compactions, max_size=2).map(tuple),
        cluster=st.none() | _names,
        meta=_objects,
        skipped=st.dictionaries(_texts, _counts, max_size=2),
    )


any_texts, any_objects, any_messages = _texts, _objects, _messages
"""Strategies for the strings, JSON objects and messages of these recordings."""
