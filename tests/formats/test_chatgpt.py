"""Tests of ChatGPT's data export: a tree of messages, of which the current branch is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording

Load = Callable[..., list[Recording]]


def text(*parts: Any) -> dict[str, Any]:
    return {"content_type": "text", "parts": list(parts)}


def message(role: str, content: Any, name: str | None = None, **values: Any) -> dict[str, Any]:
    content = text(content) if isinstance(content, str) else content
    return {"author": {"role": role, "name": name}, "content": content, "recipient": "all"} | values


def asked(value: Any, **values: Any) -> dict[str, Any]:
    return message("user", value, **values)


def said(value: Any, **values: Any) -> dict[str, Any]:
    return message("assistant", value, **values)


def called(tool: str, value: str) -> dict[str, Any]:
    return said({"content_type": "code", "text": value}, recipient=tool)


def result(name: str | None, value: str) -> dict[str, Any]:
    return message("tool", {"content_type": "execution_output", "text": value}, name)


def tree(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation in which each message follows the one before."""
    nodes: dict[str, Any] = {"n0": {"id": "n0", "message": None, "parent": None}}
    for number, row in enumerate(rows, start=1):
        nodes[f"n{number}"] = {"message": row, "parent": f"n{number - 1}"}
    return {"conversation_id": "c1", "mapping": nodes, "current_node": f"n{len(rows)}"}


@pytest.fixture
def export(tmp_path: Path) -> Load:
    """Return a function that writes conversations to a file and loads it."""

    def load_export(*conversations: Any, **options: Any) -> list[Recording]:
        path = tmp_path / "conversations.json"
        path.write_text(json.dumps(list(conversations)))
        return list(load(path, **options))

    return load_export


def test_the_branch_of_the_current_node_is_read_and_the_others_are_counted(export: Load) -> None:
    whole = tree(asked("hi"), said("Hello!"), asked("How?"), said("Well."))
    whole["mapping"] |= {
        "b1": {"message": asked("Who?"), "parent": "n2"},
        "b2": {"message": said("Me."), "parent": "b1"},
    }
    (found,) = export(whole)
    assert [m.text for m in found.messages] == ["hi", "Hello!", "How?", "Well."]
    assert found.skipped == {"message of another branch": 2}
    (found,) = export(whole | {"current_node": "b2"})
    assert [m.text for m in found.messages] == ["hi", "Hello!", "Who?", "Me."]


@pytest.mark.parametrize("current", [{}, {"current_node": None}, {"current_node": "lost"}])
def test_without_a_current_node_the_branch_with_the_newest_leaf_is_read(
    export: Load, current: dict[str, Any]
) -> None:
    whole = tree(asked("hi"), said("Old.", create_time=7))
    whole["mapping"]["b1"] = {"message": said("New.", create_time=9), "parent": "n1"}
    whole["mapping"]["b2"] = {"message": said("Undated."), "parent": "n1"}
    del whole["current_node"]
    (found,) = export(whole | current)
    assert [m.text for m in found.messages] == ["hi", "New."]


def test_conversations_are_recordings_with_their_own_id_and_model(export: Load) -> None:
    one = tree(asked("hi"), said("Hello!", metadata={"model_slug": "gpt-5"}, create_time=17.5))
    two = tree(asked("hi"), said("Hello!")) | {"conversation_id": "c2", "title": "Greeting"}
    found = export(one, two | {"default_model_slug": "gpt-4o"})
    assert [(r.id, r.model) for r in found] == [
        ("conversations/c1", "gpt-5"),
        ("conversations/c2", "gpt-4o"),
    ]
    assert found[0].messages[1].time == 17.5
    assert found[1].meta == {"session": "c2", "title": "Greeting"}


def test_a_single_conversation_or_an_object_with_all_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(tree(asked("hi")), indent=1))
    assert [r.id for r in load(path)] == ["chat"]
    path.write_text(json.dumps({"conversations": [tree(asked("hi")), tree(asked("ho"))]}))
    assert [r.messages[0].text for r in load(path)] == ["hi", "ho"]


def test_a_message_to_a_tool_is_a_call_that_the_messages_of_the_tool_answer(export: Load) -> None:
    (found,) = export(
        tree(
            *(asked("Plot it."), said("I look."), called("python", "print(1)")),
            *(result("python", "1"), result("python", "2")),
            *(called("web.run", '{"q": "x"}'), result("web", "y"), said("Done.")),
        )
    )
    _, first, one, second, two, last = found.messages
    assert first.content == "I look."
    assert [(c.id, c.name, c.arguments) for c in first.tool_calls] == [
        ("n3", "python", '{"input":"print(1)"}')
    ]
    assert (one.tool_call_id, one.name, one.content) == ("n3", "python", "1\n2")
    assert second.tool_calls[0].arguments == '{"q":"x"}'
    assert (two.tool_call_id, two.content, last.content) == ("n6", "y", "Done.")


def test_a_result_under_another_name_answers_the_only_call_that_waits(export: Load) -> None:
    (found,) = export(tree(asked("hi"), called("plugin.find", "{}"), result("a8km", "y")))
    assert found.messages[2].tool_call_id == "n2"


def test_a_result_without_a_call_is_a_user_message(export: Load) -> None:
    (found,) = export(tree(asked("Sum it up."), result("file_search", "Rain."), said("Rain.")))
    expected = Message("user", "Rain.", name="file_search", extra={"role": "tool"})
    assert found.messages[1] == expected


def test_the_pages_that_a_search_found_are_the_result_if_the_message_is_empty(
    export: Load,
) -> None:
    pages = [{"title": "Rye", "url": "https://example.com", "snippet": "Dear."}, {"title": "Oat"}]
    metadata = {"search_result_groups": [{"entries": pages}]}
    found = message("tool", text(""), "web.run", metadata=metadata)
    (recording,) = export(tree(asked("hi"), called("web.run", "{}"), found))
    assert recording.messages[2].content == "Rye\nhttps://example.com\nDear.\n\nOat"
    assert recording.skipped == {}


def test_a_call_whose_results_are_empty_has_an_empty_result(export: Load) -> None:
    rows = [called("python", "x"), result("python", ""), result("python", ""), said("Done.")]
    (found,) = export(tree(asked("hi"), *rows))
    assert [(m.role, m.content) for m in found.messages[2:]] == [
        ("tool", ""),
        ("assistant", "Done."),
    ]
    assert found.skipped == {"empty message": 2}


def test_an_answer_ends_where_its_turn_ends(export: Load) -> None:
    rows = [asked("hi"), said("a"), said("b", end_turn=True), said("c")]
    (found,) = export(tree(*rows))
    assert [m.text for m in found.messages] == ["hi", "a\nb", "c"]


def test_thoughts_are_the_reasoning_of_the_next_answer(export: Load) -> None:
    thoughts = [{"summary": "Start", "content": "I think."}, {"summary": "More", "content": ""}]
    recap = {"content_type": "reasoning_recap", "content": "Thought for 3s"}
    rows = [said({"content_type": "thoughts", "thoughts": thoughts}), said(recap), said("Yes.")]
    (found,) = export(tree(asked("hi"), *rows))
    assert found.messages[1].reasoning == "Start\nI think.\nMore"
    assert found.messages[1].content == "Yes."
    assert found.skipped == {"content of type reasoning_recap": 1}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (text("a", "", "b"), "a\nb"),
        ({"content_type": "code", "text": "x = 1"}, "x = 1"),
        (
            {
                "content_type": "user_editable_context",
                "user_profile": "Ada",
                "user_instructions": "Be brief.",
            },
            "Ada\nBe brief.",
        ),
        (
            {"content_type": "model_editable_context", "model_set_context": "Likes tea."},
            "Likes tea.",
        ),
        ({"content_type": "tether_quote", "title": "T", "url": "u", "text": "x"}, "T\nu\nx"),
        ({"content_type": "tether_browsing_display", "result": "x", "summary": ""}, "x"),
        ({"content_type": "system_error", "name": "Timeout", "text": "x"}, "Timeout\nx"),
        (
            {
                "content_type": "multimodal_text",
                "parts": [{"content_type": "audio_transcription", "text": "x"}],
            },
            "x",
        ),
    ],
)
def test_each_content_type_has_its_text(export: Load, content: Any, expected: str) -> None:
    (found,) = export(tree(asked(content), said("Hm.")))
    assert found.messages[0].content == expected
    assert found.skipped == {}


def test_images_are_references_and_other_files_are_counted(export: Load) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
    speech = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_3"}
    files = [{"id": "file_1", "name": "a.png"}, {"id": "file_2", "name": "a.pdf"}]
    content = {"content_type": "multimodal_text", "parts": [image, "See?", speech]}
    (found,) = export(tree(asked(content, metadata={"attachments": files})))
    assert found.messages[0].content == (
        {"type": "image_url", "image_url": {"url": "sediment://file_1"}},
        {"type": "text", "text": "See?"},
    )
    assert found.skipped == {"attached file": 1, "part of type audio_asset_pointer": 1}


def test_what_is_left_out_is_counted(export: Load) -> None:
    unknown = {"content_type": "hologram", "text": "x"}
    (found,) = export(
        tree(message("system", ""), asked(unknown), message("critic", "No."), said(""))
    )
    assert [m.content for m in found.messages] == ["x"]
    assert found.skipped == {
        "empty message": 2,
        "content of type hologram, kept as its text": 1,
        "message of role critic": 1,
    }


def test_a_malformed_message_is_named(export: Load) -> None:
    broken = tree(asked("hi"), message("user", 7))
    with pytest.raises(ReadError, match="element 1: message n2: content must be an object"):
        export(tree(asked("hi")), broken)
    one, two = export(tree(asked("hi")), broken, on_error="skip")
    assert len(one.messages) == len(two.messages) == 1
