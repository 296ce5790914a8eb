"""Whatever a file holds, a reader reads it or raises an error of ctxlab's own."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import CtxlabError
from ctxlab.formats import FORMATS, OnError, load

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "é"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "r", "time": 1.5},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x", "extra": {"a": [1]}},
]
USAGE = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
BLOCKS = [
    {"type": "thinking", "thinking": "hm"},
    {"type": "text", "text": "a"},
    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
]
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]},
    {"type": "image", "source": {"media_type": "image/png", "data": "AA=="}},
]
META: dict[str, Any] = {
    "type": "meta",
    "format": "ctxlab",
    "version": 1,
    "id": "a",
    "skipped": {"x": 1},
}

# Per format: the values of its lines; a file of one value has one line.
SAMPLES: dict[str, list[Any]] = {
    "native": [
        META | {"tools": [{"a": 1}], "probes": [{"id": "p", "question": "q", "evidence": [1]}]},
        *CHAT,
    ],
    "tau-bench": [
        [
            {"task_id": 1, "trial": 0, "reward": 1.0, "info": {"task": {}}, "traj": CHAT},
            {"task_id": 1, "trial": 1, "reward": 0.0, "info": {"task": {}}, "traj": CHAT},
        ]
    ],
    "mini-swe-agent": [
        {
            "info": {"config": {"model": {"model_name": "m"}}, "mini_version": "2"},
            "messages": [
                *CHAT,
                CHAT[2] | {"extra": {"response": {"usage": USAGE}, "timestamp": 1.0}},
            ],
            "trajectory_format": "mini-swe-agent-1.1",
            "instance_id": "i",
        }
    ],
    "claude-code": [
        {"type": "summary", "leafUuid": "x"},
        {
            "type": "assistant",
            "uuid": "u1",
            "sessionId": "s",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": {"id": "m1", "model": "m", "content": BLOCKS, "usage": {"input_tokens": 1}},
        },
        {"type": "user", "uuid": "u2", "sessionId": "s", "message": {"content": RESULTS}},
        {
            "type": "system",
            "subtype": "microcompact_boundary",
            "uuid": "u3",
            "microcompactMetadata": {"preTokens": 5, "compactedToolIds": ["c"]},
        },
        {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}},
        {"type": "user", "uuid": "u4", "isCompactSummary": True, "message": {"content": "short"}},
        {
            "type": "user",
            "uuid": "u5",
            "parentUuid": "u4",
            "isSidechain": True,
            "message": {"content": "a"},
        },
    ],
}
JUNK: list[Any] = [None, True, -1, 10**30, 1e308, "", "\ud800", "x" * 300, [], {}, [[]], {"a": {}}]
POLICIES: tuple[OnError, ...] = ("raise", "skip")
NOISE = [b"", b"\x00", b"\xff\xfe", b'"', b"{", b"]", b"\n", b",", b"[" * 2000, b"NaN", b"\\u12"]


def test_every_format_has_a_sample() -> None:
    assert list(SAMPLES) == list(FORMATS)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sample_itself_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(written(SAMPLES[name]))
    recordings = list(load(path))
    assert recordings
    assert {recording.format for recording in recordings} == {name}


@pytest.mark.parametrize("name", SAMPLES)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_odd_values_raise_nothing_but_errors_of_ctxlab(name: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = copy.deepcopy(SAMPLES[name])
    for _ in range(chance.randint(1, 3)):
        spoil(rows, chance)
    try_to_read(written(rows), name)


@pytest.mark.parametrize("name", SAMPLES)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_odd_bytes_raise_nothing_but_errors_of_ctxlab(name: str, seed: int) -> None:
    chance = random.Random(seed)
    content = written(SAMPLES[name])
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(content) + 1)
        stop = start + chance.choice([0, 0, 1, 5, len(content)])
        content = content[:start] + chance.choice(NOISE) + content[stop:]
    try_to_read(content, name)


@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_errors_of_ctxlab(content: bytes) -> None:
    for name in (None, *FORMATS):
        try_to_read(content, name)


def written(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def spoil(value: Any, chance: random.Random) -> None:
    """Puts junk in the place of a value somewhere inside, or takes the value away."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = chance.choice(list(keys))
        inner = value[key]
        if isinstance(inner, (dict, list)) and chance.random() < 0.85:
            value = inner
            continue
        if chance.random() < 0.2:
            del value[key]
        else:
            value[key] = chance.choice(JUNK)
        return


def try_to_read(content: bytes, name: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.jsonl")
        path.write_bytes(content)
        for format in {None, name}:
            for on_error in POLICIES:
                with suppress(CtxlabError):
                    for recording in load(path, format=format, on_error=on_error):
                        assert recording.id
