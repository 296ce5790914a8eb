"""Tests of plain lists of messages in the format of any API, and of their errors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from samples import SAMPLES, files_of, packed

from ctxlab.errors import ReadError
from ctxlab.formats import load, write
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations

HERE = Path(__file__).parent / "samples"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def sample(name: str) -> Recording:
    (recording,) = load(HERE / name)
    return recording


def calls(recording: Recording) -> list[tuple[str, str, str]]:
    return [
        (call.id, call.name, call.arguments)
        for message in recording.messages
        for call in message.tool_calls
    ]


def answered(recording: Recording) -> list[str | None]:
    return [message.tool_call_id for message in recording.messages if message.role == "tool"]


def reasoning(recording: Recording) -> list[str]:
    return [message.reasoning for message in recording.messages if message.reasoning]


def test_rows_of_anthropic_messages_go_to_its_reader() -> None:
    found = sample("anthropic.rows.jsonl")
    assert found.format == "anthropic"
    assert calls(found) == [("toolu_1", "read", '{"path":"a.txt"}')]
    assert answered(found) == ["toolu_1"]
    assert reasoning(found) == ["I have to read it."]
    assert found.messages[3] == Message("user", "Be short.")


def test_a_call_in_the_content_and_in_tool_calls_is_one_call_and_is_told() -> None:
    found = sample("messages.mixed.jsonl")
    assert [id for id, _, _ in calls(found)] == ["c1", "c2"]
    assert answered(found) == ["c1", "c2"]
    assert found.skipped == {
        "tool call in the content that tool_calls holds too": 2,
        "block of type hologram": 1,
    }


def test_a_call_of_the_content_alone_stands_beside_those_of_tool_calls(
    read: Callable[..., list[Recording]],
) -> None:
    part = {"type": "tool_call", "name": "ls", "arguments": {"path": "b"}}
    known = {"id": "c1", "function": {"name": "ls", "arguments": '{"path":"a"}'}}
    (found,) = read({"role": "assistant", "content": [part], "tool_calls": [known]})
    assert calls(found) == [("c1", "ls", '{"path":"a"}'), ("", "ls", '{"path":"b"}')]


def test_goose_keeps_pairs_and_pictures_and_counts_its_notices() -> None:
    found = sample("messages.goose.jsonl")
    assert [name for _, name, _ in calls(found)] == [
        "developer__shell",
        "unknown",
        "screen__capture",
    ]
    assert answered(found) == ["g1", "g2", "g3"]
    assert reasoning(found) == ["List it."]
    assert found.messages[2].content == "a.txt\none line"
    assert found.messages[3].extra["is_error"]
    assert found.messages[5].content == (PICTURE,)
    assert found.messages[0].time == 1750000000
    assert found.meta["description"] == "Notes listed"
    assert found.skipped == {"row about the session (1)": 1, "block of type systemNotification": 1}


def test_an_exported_goose_session_holds_its_messages_as_conversation() -> None:
    found = sample("messages.goose-export.json")
    assert (calls(found)[0][0], answered(found)) == ("g1", ["g1"])
    assert (found.meta["name"], len(found.messages)) == ("Notes", 4)


def test_kimi_thinks_in_parts_and_its_control_rows_are_counted() -> None:
    found = sample("messages.kimi.jsonl")
    assert found.messages[0] == Message("system", "You are Kimi.")
    assert calls(found) == [("Shell:0", "Shell", '{"command": "ls"}')]
    assert reasoning(found) == ["List it.", "Done."]
    assert sum(found.skipped.values()) == 4
    assert {why.split(" (")[0] for why in found.skipped} == {
        "row of role _checkpoint",
        "row of role _usage",
    }


def test_bedrock_blocks_are_read_with_and_without_a_request_body() -> None:
    bare, body = sample("messages.bedrock.jsonl"), sample("messages.bedrock-body.json")
    assert body.messages == (Message("system", "You are terse."), *bare.messages)
    assert bare.messages[0].content == ({"type": "text", "text": "What is here?"}, PICTURE)
    assert calls(bare) == [("tooluse_1", "ls", '{"path":"."}')]
    assert bare.messages[2] == Message("tool", 'a.txt\n{"files":1}', tool_call_id="tooluse_1")
    assert reasoning(bare) == ["List it."]
    assert body.model == "anthropic.claude-sonnet-4-20250514-v1:0"
    assert [tool["function"]["name"] for tool in body.tools] == ["ls"]
    assert not bare.skipped


def test_a_bedrock_log_gives_its_answers_their_usage(read: Callable[..., list[Recording]]) -> None:
    request = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    message = {"role": "assistant", "content": [{"text": "ho"}]}
    usage = {"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 4}
    (found,) = read(
        {"request": request, "response": {"output": {"message": message}, "usage": usage}}
    )
    assert found.messages[1].text == "ho"
    assert found.messages[1].usage is not None
    assert (found.messages[1].usage.total_input, found.messages[1].usage.output) == (9, 1)


def test_a_ui_message_is_split_into_its_steps() -> None:
    found = sample("messages.vercel-ui.json")
    roles = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [message.role for message in found.messages] == roles
    assert [(id, name) for id, name, _ in calls(found)] == [
        ("v1", "ls"),
        ("v2", "count"),
        ("v3", "rm"),
    ]
    assert found.messages[0].content == ({"type": "text", "text": "What is here?"}, PICTURE)
    assert found.messages[2].content == '{"files":["a.txt"]}'
    assert [m.text for m in found.messages if m.extra] == ["no such tool", "Not allowed."]
    assert reasoning(found) == ["List it."]
    assert found.skipped == {"block of type source-url": 1, "block of type data-note": 1}


def test_a_ui_message_of_version_4_says_its_calls_once() -> None:
    found = sample("messages.vercel-v4.jsonl")
    assert calls(found) == [("v1", "ls", '{"path":"."}')]
    assert [m.text for m in found.messages] == ["What is here?", "", "a.txt", "One file."]


def test_model_messages_of_the_vercel_sdk_hold_calls_and_results_as_parts() -> None:
    found = sample("messages.vercel-model.json")
    assert [id for id, _, _ in calls(found)] == answered(found) == ["v1", "v2", "v3"]
    assert found.messages[4].extra == {"is_error": True}
    assert found.messages[6].content == ({"type": "text", "text": "a picture"}, PICTURE)


def test_rows_of_mostly_unknown_parts_are_refused_by_what_they_look_like(
    write_lines: Callable[..., Path],
) -> None:
    path = write_lines(
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {}}}]},
    )
    with pytest.raises(
        ReadError, match=r"2 of 3 have unknown types: functionCall .* Google Gemini"
    ) as caught:
        list(load(path))
    assert "open an issue" in str(caught.value)
    assert caught.value.path == path


def test_blocks_without_a_type_are_named_by_their_keys(write_lines: Callable[..., Path]) -> None:
    path = write_lines(
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"tool_name": "ls", "arguments": {}}]},
        {"role": "user", "content": [{"id": "c", "tool_result": "[]"}]},
    )
    with pytest.raises(ReadError, match=r"none \(keys arguments, tool_name\).* Goose .* of 2024"):
        list(load(path))


def test_calls_that_no_reader_reads_are_refused_however_few_they_are(
    write_lines: Callable[..., Path],
) -> None:
    said = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "ho"}]},
    ]
    call = {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]}
    with pytest.raises(ReadError, match="1 of 41 have unknown types: functionCall"):
        list(load(write_lines(*said * 20, call)))


def test_a_result_part_without_an_id_has_that_of_its_row(
    read: Callable[..., list[Recording]],
) -> None:
    part = {"type": "tool_result", "content": "a.txt"}
    (found,) = read({"role": "tool", "tool_call_id": "c1", "content": [part]})
    assert found.messages == (Message("tool", "a.txt", tool_call_id="c1"),)


def test_a_refused_file_of_a_folder_is_left_out_with_its_reason(
    write_lines: Callable[..., Path],
) -> None:
    write_lines({"role": "user", "content": "hi"}, name="good.jsonl")
    path = write_lines({"role": "user", "content": [{"type": "hologram"}]}, name="odd.jsonl")
    told: list[tuple[Any, str]] = []
    (found,) = load(
        path.parent, on_error="skip", on_skip=lambda place, why: told.append((place, why))
    )
    assert found.id == "good"
    ((place, why),) = told
    assert place == path
    assert "1 of 1 have unknown types: hologram (1)" in why


def test_blocks_that_come_late_in_a_native_file_are_read_all_the_same(
    read: Callable[..., list[Recording]],
) -> None:
    plain = [{"role": "user", "content": f"line {number}"} for number in range(60)]
    late = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls"}]}
    odd = {"role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": "hi"}]}
    (found,) = read(*plain, late, odd)
    assert (found.format, calls(found)) == ("native", [("t1", "ls", "{}")])
    assert found.messages[-1].text == "hi"
    assert found.skipped == {"block of type hologram": 1}


def test_tool_blocks_below_a_meta_line_are_calls(read: Callable[..., list[Recording]]) -> None:
    meta = {"type": "meta", "format": "ctxlab", "version": 1, "id": "a"}
    row = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "ls"}}]}
    (found,) = read(meta, row)
    assert found.messages[0].tool_calls == (ToolCall("t1", "ls"),)


def test_a_folder_of_strands_messages_is_one_conversation_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "session_a" / "agents" / "agent_b" / "messages"
    folder.mkdir(parents=True)
    for line in (HERE / "strands.jsonl").read_text().splitlines():
        number = json.loads(line)["message_id"] * 5
        row = json.loads(line) | {"message_id": number}
        (folder / f"message_{number}.json").write_text(json.dumps(row, indent=2))
    (found,) = load(tmp_path)
    assert found.id == "session_a/agents/agent_b/messages"
    assert [message.role for message in found.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [message.text for message in found.messages][2:] == ["Redacted.", "One file."]
    assert found.messages[0].content == ({"type": "text", "text": "What is here?"}, PICTURE)
    assert found.skipped == {"message that was redacted": 1}


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize(
    "path", [p for p in SAMPLES if "session" not in p.name], ids=lambda path: path.name
)
def test_what_was_read_is_written_natively_and_read_again_as_it_was(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, path.name), Path(folder, "second.jsonl")
        first.write_bytes(packed(files_of(path)))
        before = list(load(first))
        write(before, second)
        after = [
            msgspec.structs.replace(now, format=then.format, source=then.source)
            for now, then in zip(load(second), before, strict=True)
        ]
    assert after == before


def test_the_samples_are_conversations_that_a_provider_takes() -> None:
    for path in sorted(HERE.glob("messages.*")):
        for recording in load(path):
            assert not list(find_violations(recording.messages)), path.name
