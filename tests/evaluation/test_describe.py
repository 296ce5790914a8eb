"""Tests of the description of recordings."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image
from running import a_recording

import ctxlab
from ctxlab.evaluation.describe import iter_descriptions
from ctxlab.evaluation.description_table import description_notes
from ctxlab.formats import load
from ctxlab.messages.types import Compaction, Message, Recording, ToolCall, Usage
from ctxlab.tokens.calibration import calibrate
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter
from ctxlab.tokens.images import count_image_tokens
from ctxlab.tokens.profiles import BUILT_IN_PROFILES

CHAT = (Message("user", "hi"), Message("assistant", "ho"))


def test_a_recording_is_counted_as_the_model_that_it_was_made_with() -> None:
    claude = Recording("a", CHAT, model="claude-opus-4-5")
    unknown = Recording("b", CHAT)
    frame = ctxlab.describe([claude, unknown], workers=1).recordings
    assert list(frame["counted_as"]) == ["claude-opus-4-5", DEFAULT_MODEL]
    assert frame["tokens"][0] == TokenCounter("claude-opus-4-5").count_request(CHAT)
    assert ctxlab.describe([claude], "gpt-5", workers=1)[0]["counted_as"] == "gpt-5"


def test_the_largest_results_are_named_with_their_tools() -> None:
    (facts,) = iter_descriptions([a_recording(0)], workers=1)
    largest = facts["largest"]
    assert [each["tokens"] for each in largest] == sorted(
        (each["tokens"] for each in largest), reverse=True
    )
    assert largest[0]["tokens"] == facts["largest_result"]
    assert {each["tool"] for each in largest} == {"read_file"}
    assert a_recording(0).messages[largest[0]["message"]].role == "tool"


def test_hidden_reasoning_stands_in_a_figure_of_its_own() -> None:
    said = Message("assistant", "ho", reasoning="I think that " * 20)
    billed = Message("assistant", "ho", usage=Usage(input=9, output=80, reasoning=70))
    (plain,) = iter_descriptions([Recording("a", CHAT)], workers=1)
    (thought,) = iter_descriptions([Recording("a", (CHAT[0], said))], workers=1)
    (told,) = iter_descriptions([Recording("a", (CHAT[0], billed))], workers=1)
    assert plain["tokens"] == thought["tokens"] == told["tokens"]
    assert plain["reasoning_tokens"] == 0
    assert thought["reasoning_tokens"] > 40
    assert told["reasoning_tokens"] == 70


def test_compactions_and_broken_rules_are_told() -> None:
    orphan = Message("tool", "x", tool_call_id="c")
    recording = Recording(
        "a",
        (CHAT[0], orphan, CHAT[1]),
        compactions=(Compaction(2, trigger="auto", tokens_before=9),),
    )
    (facts,) = iter_descriptions([recording], workers=1)
    assert facts["compactions"] == [
        {"before": 2, "kind": "summary", "trigger": "auto", "tokens": 9}
    ]
    assert facts["faults"] == {"orphaned_result": 1}
    assert facts["billed"] is None


def test_the_profile_of_the_project_counts(tmp_path: Path) -> None:
    messages = [CHAT[0]]
    for turn in range(40):
        usage = Usage(input=5000 + 10 * sum(len(m.text) for m in messages))
        messages.append(Message("assistant", "word " * (turn % 7 + 1), usage=usage))
    recording = Recording("a", tuple(messages), model="claude-opus-4-5")
    found = calibrate([recording], "claude-opus-4-5")
    found.save(tmp_path)
    (ours,) = iter_descriptions([recording], project=tmp_path, workers=1)
    (built_in,) = iter_descriptions([recording], workers=1)
    assert ours["tokens"] > 5 * built_in["tokens"]
    assert ours["billed"]["error"] < 0.01
    assert found.profile != BUILT_IN_PROFILES["anthropic"]


def test_real_sessions_have_bills_beside_their_counts(recorded: Path) -> None:
    folder = recorded / "claude-code-entireio"
    if not folder.is_dir():
        pytest.skip("no sessions of Claude Code beside the others")
    every = list(iter_descriptions(load(folder, on_error="skip")))
    assert all(facts["billed"] for facts in every)
    assert sum(len(facts["compactions"]) for facts in every) == 8
    calm = [f["billed"] for f in every if not f["billed"]["unsaid"] and not f["compactions"]]
    assert calm
    for bill in calm:
        assert abs(bill["counted"] - bill["billed"]) < 0.05 * bill["billed"]


def test_images_are_counted_and_shown_as_images() -> None:
    file = io.BytesIO()
    Image.new("RGB", (1280, 800)).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    shot = ({"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "done"})
    messages = (
        Message("user", "Look."),
        Message("assistant", None, (ToolCall("c1", "take_screenshot"),)),
        Message("tool", shot, tool_call_id="c1"),
        Message("assistant", "Done."),
    )
    recording = Recording("r", messages, model="claude-opus-4-8")
    found = ctxlab.describe([recording], workers=1)
    row = found.recordings.iloc[0]
    assert row["images"] == 1
    assert row["image_tokens"] == count_image_tokens(shot[0], row["counted_as"]) > 1000
    assert f"1 image with {row['image_tokens']:,} tokens" in " ".join(
        description_notes(list(found))
    )
    text = ctxlab.replay(recording, "full", 100_000).sent(1).table["text"]
    assert text.iloc[2] == "[image, 1,280 × 800 pixels] done"
