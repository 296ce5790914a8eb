"""Tests that bundled recordings equal the generated ones and have the properties on their cards."""

from __future__ import annotations

import base64
import io
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, message_text
from ctxlab.messages.validation import find_violations
from ctxlab.serve.desktop.tools import TOOLS
from ctxlab.tokens.images import count_image_tokens, is_image_part

ROOT = Path(__file__).resolve().parent.parent
DATASETS = ROOT / "datasets"
NAMES = ("coding-agent", "support-desk", "long-chat", "desktop-agent")
FAR = 16_000  # characters, about 4,000 tokens


def images(recording: Recording) -> list[dict[str, Any]]:
    contents = [m.content for m in recording.messages if isinstance(m.content, tuple)]
    return [part for content in contents for part in content if is_image_part(part)]


@cache
def recordings(name: str) -> tuple[Recording, ...]:
    files = sorted((DATASETS / name).glob("*.jsonl"))
    return tuple(recording for file in files for recording in load(file))


ALL = [pytest.param(r, id=r.id) for name in NAMES for r in recordings(name)]


def far_uses(messages: tuple[Message, ...]) -> Iterator[str]:
    """Yield argument values with a digit, ``/`` or ``_`` that were last mentioned long before."""
    texts: list[str] = []
    for message in messages:
        for call in message.tool_calls:
            for _, value in call.argument_leaves():
                if isinstance(value, str) and re.search(r"[\d/_]", value):
                    gap = distance(texts, value)
                    if gap is not None and gap > FAR:
                        yield value
        texts.append(message_text(message))


def distance(texts: list[str], value: str) -> int | None:
    behind = 0
    for text in reversed(texts):
        at = text.rfind(value)
        if at >= 0:
            return behind + len(text) - at
        behind += len(text)
    return None


@pytest.mark.datasets
def test_recordings_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONHASHSEED": "4711"}
    command = [sys.executable, "-m", "datasets.make", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    for name in NAMES:
        made = {p.name: p.read_bytes() for p in (tmp_path / name).glob("*.jsonl")}
        kept = {p.name: p.read_bytes() for p in (DATASETS / name).glob("*.jsonl")}
        assert made.keys() == kept.keys()
        assert [n for n in made if made[n] != kept[n]] == []


def test_all_recordings_together_stay_below_five_megabytes() -> None:
    assert sum(p.stat().st_size for p in DATASETS.glob("*/*.jsonl")) < 5_000_000


@pytest.mark.parametrize("recording", ALL)
def test_a_provider_would_accept_every_request(recording: Recording) -> None:
    assert find_violations(recording.messages) == []
    for position in recording.request_positions:
        assert find_violations(recording.messages[:position]) == []
    ids = [call.id for message in recording.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids))
    assert recording.messages[-1].role == "assistant"
    assert not recording.messages[-1].tool_calls


@pytest.mark.parametrize("recording", ALL)
def test_a_recording_says_what_it_is(recording: Recording) -> None:
    assert recording.model is None  # nobody was asked
    assert recording.cluster
    assert {"dataset", "licence", "seed", "task"} <= recording.meta.keys()
    times = [message.time for message in recording.messages]
    assert None not in times
    assert times == sorted(times, key=float)  # type: ignore[arg-type]
    called = {call.name for message in recording.messages for call in message.tool_calls}
    assert called <= {tool["function"]["name"] for tool in recording.tools}


@pytest.mark.parametrize(("name", "least"), [("coding-agent", 30), ("support-desk", 10)])
def test_facts_are_used_again_far_later(name: str, least: int) -> None:
    for recording in recordings(name):
        assert len(list(far_uses(recording.messages))) >= least, recording.id


def test_every_recording_is_longer_than_eight_thousand_tokens() -> None:
    for name in NAMES:
        for recording in recordings(name):
            texts = sum(len(message_text(message)) for message in recording.messages)
            shown = sum(count_image_tokens(part, "gpt-5") for part in images(recording))
            assert texts / 4.5 + shown > 8_000


def test_trials_of_one_task_share_a_cluster() -> None:
    for name, clusters in (("coding-agent", 6), ("support-desk", 12), ("long-chat", 5)):
        assert len({recording.cluster for recording in recordings(name)}) == clusters


@pytest.mark.parametrize("recording", [p for p in ALL if p.values[0].probes])  # type: ignore[union-attr]
def test_evidence_holds_the_answer_literally(recording: Recording) -> None:
    assert 25 <= len(recording.probes) <= 40
    assert {p.category for p in recording.probes} == {"single", "multi", "temporal", "update"}
    for probe in recording.probes:
        last = recording.messages[probe.evidence[-1]]
        assert any(answer in last.text for answer in probe.answers), probe.id
        if probe.position is not None:
            assert max(probe.evidence) < probe.position < len(recording.messages)
            assert recording.messages[probe.position].role == "user"
        if probe.category == "multi":
            assert len(probe.evidence) > 1


@pytest.mark.parametrize("recording", [p for p in ALL if p.values[0].probes])  # type: ignore[union-attr]
def test_a_question_is_asked_once_and_has_one_answer(recording: Recording) -> None:
    questions = [probe.question for probe in recording.probes]
    assert len(questions) == len(set(questions))
    assert all(len(probe.answers) == 1 for probe in recording.probes)


def test_the_desktop_agent_sees_the_whole_screen() -> None:
    (recording,) = recordings("desktop-agent")
    seen = [
        Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2])))
        for part in images(recording)
    ]
    assert len(seen) == 30
    assert {(image.format, image.mode, image.size) for image in seen} == {("PNG", "1", (640, 400))}
    assert all(0.05 < image.histogram()[0] / (640 * 400) < 0.2 for image in seen)  # black text


def test_the_desktop_agent_has_the_tools_of_the_desktop_server() -> None:
    (recording,) = recordings("desktop-agent")
    for tool in recording.tools:
        defined = tool["function"]
        schema = TOOLS[defined["name"]].json_schema()
        del schema["properties"]["self"]
        assert defined["parameters"]["properties"].keys() == schema["properties"].keys()
        for name, parameter in defined["parameters"]["properties"].items():
            kept = {key: schema["properties"][name].get(key) for key in parameter}
            assert parameter == kept


@pytest.mark.parametrize("name", NAMES)
def test_the_table_in_the_readme_is_true(name: str) -> None:
    lengths = [len(recording.messages) for recording in recordings(name)]
    size = sum(p.stat().st_size for p in (DATASETS / name).glob("*.jsonl"))
    row = next(
        line
        for line in (DATASETS / "README.md").read_text("utf-8").splitlines()
        if f"[{name}]" in line
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == str(len(lengths))
    assert cells[2] == f"{statistics.median(lengths):g}/{max(lengths)}"
    assert cells[5] == f"{size / 1e6:.2f} MB"
