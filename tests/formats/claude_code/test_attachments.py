"""Tests of the attachments of Claude Code: which ones are messages, and with which text."""

from __future__ import annotations

from typing import Any

import pytest
from claude_rows import Read, Row, call, result, said, shape, text, user

from ctxlab.errors import ReadError


def attachment(kind: str, uuid: str = "", **fields: Any) -> Row:
    row = {"type": "attachment", "sessionId": "s", "attachment": {"type": kind} | fields}
    return row | {"uuid": uuid} if uuid else row


def content(read: Read, kind: str, **fields: Any) -> str:
    """Return the text of an attachment, without the tags around it."""
    (recording,) = read(user("hi"), attachment(kind, **fields))
    said = recording.messages[1].text
    assert said.startswith("<system-reminder>\n")
    assert said.endswith("\n</system-reminder>")
    return "\n".join(said.split("\n")[1:-1])


def test_an_attachment_is_a_marked_message_at_its_position(read: Read) -> None:
    row = attachment("skill_listing", content="- fly: how to fly")
    row["timestamp"] = "1970-01-01T00:00:05Z"
    (recording,) = read(user("hi"), row, said("m1", text("a")))
    assert [message.role for message in recording.messages] == ["user", "user", "assistant"]
    message = recording.messages[1]
    assert message.extra == {"meta": True, "attachment": "skill_listing"}
    assert "- fly: how to fly" in message.text
    assert message.time == 5.0


def test_an_attachment_between_a_call_and_its_result_comes_after_the_result(read: Read) -> None:
    listing = attachment("skill_listing", content="- fly")
    (recording,) = read(user("hi"), said("m1", call("c")), listing, user([result("c")]))
    assert [message.role for message in recording.messages] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize(
    ("kind", "fields", "lines"),
    [
        (
            "edited_text_file",
            {"filename": "a.py", "snippet": "1\tx"},
            ["file a.py was changed", "1\tx"],
        ),
        ("directory", {"path": "src", "content": "a.py"}, ["directory src", "a.py"]),
        (
            "nested_memory",
            {
                "path": "src/RULES.md",
                "content": {"content": "Be kind", "rawContent": "---\nBe kind"},
            },
            ["instructions in src/RULES.md", "Be kind"],
        ),
        (
            "relevant_memories",
            {"memories": [{"path": "m.md", "content": "likes tea"}]},
            ["memory m.md", "likes tea"],
        ),
        (
            "invoked_skills",
            {"skills": [{"name": "fly", "content": "Flap"}]},
            ["skill fly", "Flap"],
        ),
        (
            "deferred_tools_delta",
            {"addedNames": ["Fly"], "addedLines": [], "removedNames": ["Walk"]},
            ["tools added:", "Fly", "tools removed:", "Walk"],
        ),
        (
            "agent_listing_delta",
            {"addedTypes": ["scout"], "addedLines": ["- scout: looks"], "removedTypes": []},
            ["agents added:", "- scout: looks"],
        ),
        (
            "mcp_instructions_delta",
            {"addedNames": ["maps"], "addedBlocks": ["## maps\nAsk it"], "removedNames": []},
            ["MCP servers added:", "## maps", "Ask it"],
        ),
        (
            "task_reminder",
            {"content": [{"id": "1", "subject": "Fly", "status": "completed"}], "itemCount": 1},
            ["task_reminder", "#1. [completed] Fly"],
        ),
        ("todo_reminder", {"content": [], "itemCount": 0}, ["todo_reminder"]),
        ("todo", {"content": [{"content": "Fly"}]}, ["todo", "[pending] Fly"]),
        (
            "plan_mode",
            {"reminderType": "full", "isSubAgent": False, "planFilePath": "p.md"},
            ["plan_mode", "reminderType: full", "planFilePath: p.md"],
        ),
        (
            "diagnostics",
            {
                "files": [
                    {
                        "uri": "a.go",
                        "diagnostics": [
                            {
                                "message": "unused",
                                "severity": "Error",
                                "range": {"start": {"line": 4, "character": 1}},
                            },
                            {"message": "odd"},
                        ],
                    }
                ]
            },
            ["diagnostics of a.go", "4:1 Error: unused", ": odd"],
        ),
        (
            "mcp_resource",
            {"uri": "r:1", "content": {"contents": [{"text": "data"}]}},
            ["resource r:1", "data"],
        ),
        (
            "hook_success",
            {
                "hookName": "SessionStart:startup",
                "hookEvent": "SessionStart",
                "content": "Be brief",
            },
            ["SessionStart:startup hook: Be brief"],
        ),
        (
            "hook_additional_context",
            {"hookEvent": "PostToolUse", "content": ["The index is old"]},
            ["PostToolUse hook:", "The index is old"],
        ),
        (
            "hook_blocking_error",
            {"hookEvent": "Stop", "blockingError": {"blockingError": "Tests fail"}},
            ["Stop hook blocked: Tests fail"],
        ),
        (
            "hook_stopped_continuation",
            {"hookEvent": "Stop", "message": "Enough"},
            ["Stop hook stopped: Enough"],
        ),
        (
            "async_hook_response",
            {"response": {"hookSpecificOutput": {"additionalContext": "Built"}}},
            ["Built"],
        ),
        (
            "instructions",
            {"files": [{"path": "R.md", "content": "x"}]},
            ["instructions in R.md", "x"],
        ),
        ("session_context", {"context": {"gitStatus": "clean"}}, ["gitStatus: clean"]),
        ("model", {"text": "You are m."}, ["You are m."]),
    ],
)
def test_an_attachment_without_the_text_that_was_sent_is_built_from_its_data(
    read: Read, kind: str, fields: Row, lines: list[str]
) -> None:
    assert content(read, kind, **fields).split("\n") == lines


def test_an_attached_file_has_its_name_and_numbered_lines(read: Read) -> None:
    file = {"filePath": "a.py", "content": "x\ny", "startLine": 7}
    found = content(read, "file", filename="a.py", content={"type": "text", "file": file})
    assert found == "file a.py\n7\tx\n8\ty"


def test_an_attached_image_is_an_image_part(read: Read) -> None:
    image = {"type": "image", "file": {"base64": "A=", "type": "image/png"}}
    (recording,) = read(user("hi"), attachment("file", filename="a.png", content=image))
    assert recording.messages[1].content == (
        {"type": "text", "text": "<system-reminder>\nfile a.png\n</system-reminder>"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}},
    )


def test_the_pages_of_an_attached_document_are_left_out_and_counted(read: Read) -> None:
    document = {"type": "pdf", "file": {"base64": "A="}}
    (recording,) = read(user("hi"), attachment("file", filename="a.pdf", content=document))
    assert recording.messages[1].text == "<system-reminder>\nfile a.pdf\n</system-reminder>"
    assert recording.skipped == {"content of a file of type pdf": 1}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("command_permissions", {"allowedTools": ["Bash"]}),
        ("hook_system_message", {"content": "Welcome"}),
        ("hook_success", {"hookEvent": "SessionStart", "content": "", "stdout": "{}"}),
        ("hook_success", {"hookEvent": "PostToolUse", "content": "done"}),
        ("hook_non_blocking_error", {"hookEvent": "Stop", "stderr": "oops"}),
        ("edited_text_file", {"filename": "a.py", "snippet": ""}),
        ("deferred_tools_delta", {"addedNames": [], "removedNames": []}),
        ("of_tomorrow", {"content": "?"}),
    ],
)
def test_an_attachment_that_the_model_did_not_receive_is_counted(
    read: Read, kind: str, fields: Row
) -> None:
    (recording,) = read(user("hi"), attachment(kind, **fields))
    assert len(recording.messages) == 1
    assert recording.skipped == {f"row of type attachment/{kind}": 1}


def test_the_text_that_was_sent_is_used_if_it_is_recorded(read: Read) -> None:
    sent = {"rendered": [{"content": "It is"}, {"content": [text("Friday.")]}]}
    rows = [attachment("date", date="Friday") | sent, attachment("of_tomorrow") | sent]
    first, second = read(user("hi"), *rows)[0].messages[1:]
    assert first.content == second.content == "It is\nFriday."
    assert second.extra["attachment"] == "of_tomorrow"


def test_a_queued_prompt_has_the_text_that_was_sent(read: Read) -> None:
    row = attachment("queued_command", prompt="wait") | {"rendered": [{"content": "Typed: wait"}]}
    (recording,) = read(user("hi"), row)
    assert [*shape(recording)] == ["user:hi", "user:Typed: wait"]
    assert recording.messages[1].extra == {}


def test_an_attachment_with_the_text_of_a_user_row_is_read_once(read: Read) -> None:
    sent = {"rendered": [{"content": "Be brief"}]}
    rows = [user("Be brief", isMeta=True), attachment("date") | sent, said("m1", text("a"))]
    (recording,) = read(*rows, attachment("date") | sent)
    assert [*shape(recording)] == ["user:Be brief", "assistant:a", "user:Be brief"]
    assert recording.skipped == {"attachment of type date that repeats a user row": 1}


def test_equal_attachments_of_two_prompts_are_two_messages(read: Read) -> None:
    hook = attachment("hook_additional_context", hookEvent="UserPromptSubmit", content=["Be kind"])
    (recording,) = read(user("hi"), hook, user("wait"), hook)
    assert len(recording.messages) == 4


def test_a_prompt_snapshot_is_the_system_prompt_and_the_tools(read: Read) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    fly = {
        "name": "Fly",
        "description": "Flies.",
        "schema": {"name": "Fly", "input_schema": schema},
    }
    old = attachment("prompt_snapshot", systemPrompt=["old"], tools=[fly, {"name": "Walk"}, 7])
    new = attachment("prompt_snapshot", systemPrompt=["You help.", "Be kind."])
    (recording,) = read(user("hi"), old, said("m1", text("a")), new)
    assert [*shape(recording)] == ["system:You help.\n\nBe kind.", "user:hi", "assistant:a"]
    assert [tool["function"] for tool in recording.tools] == [
        {"name": "Fly", "description": "Flies.", "parameters": schema},
        {"name": "Walk", "parameters": {"type": "object"}},
    ]


def test_a_compaction_counts_the_system_prompt(read: Read) -> None:
    summary = user("In short", isCompactSummary=True)
    snapshot = attachment("prompt_snapshot", systemPrompt=["You help."])
    (recording,) = read(snapshot, user("hi"), said("m1", text("a")), summary, user("go on"))
    assert [mark.position for mark in recording.compactions] == [3]


def test_a_kept_segment_contains_its_attachments(read: Read) -> None:
    kept = {"preservedSegment": {"headUuid": "a", "tailUuid": "c"}}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": kept}
    rows = [user("hi", uuid="a"), attachment("date_change", "b", newDate="2026-01-02")]
    (recording,) = read(*rows, said("m1", text("a"), uuid="c"), boundary)
    assert recording.compactions[0].kept == (0, 1, 2)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (attachment("date") | {"rendered": [{"content": 7}]}, "content must be a string or a list"),
        (attachment("date") | {"rendered": [{"content": [{"type": "text"}]}]}, "text of a block"),
    ],
)
def test_a_broken_attachment_says_where_and_why(read: Read, row: Row, reason: str) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        read(user("hi"), row)
    assert caught.value.line == 2
