"""Tests of OpenHands Agent SDK conversations: folders of events, and files with several events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Recording, ToolCall, Usage
from ctxlab.messages.validation import find_violations

Event = dict[str, Any]
WriteLines = Callable[..., Path]
Store = Callable[..., Path]


def event(number: int, kind: str, source: str = "agent", **fields: Any) -> Event:
    time = f"1970-01-01T00:00:{number:02d}"
    return {"id": f"e{number}", "timestamp": time, "source": source} | fields | {"kind": kind}


def text(said: str) -> Event:
    return {"cache_prompt": False, "type": "text", "text": said}


def message(number: int, role: str, said: str, **fields: Any) -> Event:
    source = "user" if role == "user" else "agent"
    sent = {"role": role, "content": [text(said)], "thinking_blocks": []}
    return event(number, "MessageEvent", source, llm_message=sent, extended_content=[]) | fields


def action(number: int, call: str, response: str, thought: str = "", **fields: Any) -> Event:
    logged = {"id": call, "name": "terminal", "arguments": '{"command":"ls"}'}
    blocks = [text(thought)] if thought else []
    done: Event = {
        "tool_name": "terminal",
        "tool_call_id": call,
        "tool_call": logged,
        "thought": blocks,
    }
    return event(number, "ActionEvent", llm_response_id=response, **done) | fields


def result(number: int, call: str, said: str, action: str | None = None, **seen: Any) -> Event:
    observation = {"content": [text(said)], "is_error": False} | seen
    link = {"tool_name": "terminal", "tool_call_id": call, "action_id": action}
    return event(number, "ObservationEvent", "environment", observation=observation, **link)


def condensation(number: int, *forgotten: str, **fields: Any) -> Event:
    told = {"summary": "so far", "summary_offset": 1, "llm_response_id": "rc"} | fields
    ids = list(forgotten)
    return event(number, "Condensation", "environment", forgotten_event_ids=ids, **told)


def used(response: str, sent: int, cached: int = 0) -> Event:
    counts = {"prompt_tokens": sent, "completion_tokens": 2, "cache_read_tokens": cached}
    return {"model": "some/model", "response_id": response, "cache_write_tokens": 0} | counts


def state(*usages: Event, **fields: Any) -> Event:
    metrics = {"accumulated_cost": 0.5, "token_usages": list(usages)}
    return {
        "id": "c-1",
        "agent": {"llm": {"model": "configured"}, "kind": "Agent"},
        "workspace": {"working_dir": "/w", "kind": "LocalWorkspace"},
        "execution_status": "finished",
        "stats": {"usage_to_metrics": {"agent": metrics}},
    } | fields


ASKED = message(1, "user", "q")
RUN = [ASKED, action(2, "c", "r1"), result(3, "c", "a.py", "e2"), message(4, "assistant", "one")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a function that writes a conversation folder, and returns the folder."""

    def store(events: list[Any], base: Any = None, folder: str = "conv") -> Path:
        here = tmp_path / "stored" / folder
        (here / "events").mkdir(parents=True)
        for number, each in enumerate(events):
            path = here / "events" / f"event-{number:05d}-abcdef0{number}.json"
            path.write_text(each if isinstance(each, str) else json.dumps(each))
        if base is not None:
            (here / "base_state.json").write_text(json.dumps(base))
        return here

    return store


@pytest.fixture
def read(store: Store) -> Callable[..., Recording]:
    def read(*events: Any, base: Any = None, **options: Any) -> Recording:
        (recording,) = load(store(list(events), base or state()), **options)
        return recording

    return read


def test_a_folder_of_events_is_one_recording(store: Store, tmp_path: Path) -> None:
    here = store(RUN, state(used("r1", 10, 4)))
    (here / "events" / ".eventlog-count-4.marker").touch()
    told: list[tuple[Any, str]] = []
    for path in (here, here / "events", tmp_path):
        (recording,) = load(path, on_skip=lambda *each: told.append(each))
        assert recording.format == "openhands-sdk"
        assert [m.role for m in recording.messages] == ["user", "assistant", "tool", "assistant"]
        assert (recording.cluster, recording.model) == ("conv", "some/model")
        assert recording.id in ("conv", "stored/conv")
        assert recording.skipped == {}
    assert {path.name for path, _ in told} == {"base_state.json"}
    assert all("together with the folder events" in reason for _, reason in told)


def test_the_state_has_usage_cost_and_configuration(read: Callable[..., Recording]) -> None:
    last = RUN[3] | {"llm_response_id": "r2"}
    base = state(used("r1", 10, 4), used("r2", 20), used("", 7))
    recording = read(*RUN[:3], last, base=base)
    assert recording.messages[1].usage == Usage(input=6, cache_read=4, output=2)
    assert recording.messages[3].usage == Usage(input=20, output=2)
    assert recording.meta == {
        "conversation": "c-1",
        "agent": "Agent",
        "status": "finished",
        "folder": "/w",
        "cost": 0.5,
    }


def test_cached_tokens_beyond_the_input_tokens_are_separate(
    read: Callable[..., Recording],
) -> None:
    recording = read(*RUN, base=state(used("r1", 10, 90)))
    assert recording.messages[1].usage == Usage(input=10, cache_read=90, output=2)


def test_events_are_ordered_by_the_number_in_the_file_name(store: Store) -> None:
    here = store(RUN, state())
    first = here / "events" / "event-00000-abcdef00.json"
    first.rename(here / "events" / "event-00009-abcdef00.json")
    last = here / "events" / "event-00003-abcdef03.json"
    last.rename(here / "events" / "event-100000-abcdef03.json")
    (recording,) = load(here)
    assert [message.text for message in recording.messages] == ["", "a.py", "q", "one"]


def test_the_usage_that_is_missing_is_reported(store: Store) -> None:
    (recording,) = load(store(RUN))
    assert recording.skipped == {"conversation without base_state.json, which has the usage": 1}


@pytest.mark.parametrize("shape", ["lines", "list", "page", "row"])
def test_a_file_with_all_events_is_one_recording(shape: str, tmp_path: Path) -> None:
    update: Event = {"key": "stats", "value": state(used("r1", 10))["stats"]}
    stats = event(5, "ConversationStateUpdateEvent", "environment", **update)
    events = [*RUN, stats]
    row = {"instance_id": "i-1", "history": events, "metrics": {"accumulated_cost": 0.5}}
    shapes: dict[str, Any] = {"list": events, "page": {"items": events}, "row": row}
    lines = "".join(json.dumps(each) + "\n" for each in events)
    path = tmp_path / "events.json"
    path.write_text(lines if shape == "lines" else json.dumps(shapes[shape]))
    known = detect_format(path)
    assert known is not None
    assert known.name == "openhands-sdk"
    (recording,) = load(path)
    assert [message.text for message in recording.messages] == ["q", "", "a.py", "one"]
    assert recording.messages[1].usage == Usage(input=10, output=2)
    assert recording.meta["cost"] == 0.5
    assert recording.cluster == ("i-1" if shape == "row" else None)


def test_the_system_prompt_names_the_tools(read: Callable[..., Recording]) -> None:
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    fetch = {"name": "fetch", "description": "Gets.", "inputSchema": schema}
    tools = [
        {"description": "Runs.", "kind": "FileEditorTool", "title": "other"},
        {"description": "Gets.", "mcp_tool": fetch, "kind": "MCPToolDefinition"},
    ]
    told = {"system_prompt": text("Be brief."), "dynamic_context": text("Host: here")}
    prompt = event(0, "SystemPromptEvent", tools=tools) | told
    recording = read(prompt, *RUN)
    assert recording.messages[0].role == "system"
    assert recording.messages[0].text == "Be brief.\nHost: here"
    assert [tool["function"] for tool in recording.tools] == [
        {"name": "file_editor", "description": "Runs."},
        {"name": "fetch", "description": "Gets.", "parameters": schema},
    ]


def test_actions_of_one_response_are_one_message(read: Callable[..., Recording]) -> None:
    events = [
        ASKED,
        action(2, "c1", "r1", "Look.", reasoning_content="Hm."),
        result(3, "c1", "one", "e2"),
        action(4, "c2", "r1"),
        result(5, "c2", "two", "e4"),
    ]
    recording = read(*events, base=state(used("r1", 10)))
    _, called, *results = recording.messages
    assert [call.id for call in called.tool_calls] == ["c1", "c2"]
    assert (called.text, called.reasoning) == ("Look.", "Hm.")
    assert called.usage == Usage(input=10, output=2)
    assert [(each.tool_call_id, each.text) for each in results] == [("c1", "one"), ("c2", "two")]
    assert find_violations(recording.messages) == []


def test_a_call_id_that_is_used_again_belongs_to_its_action(read: Callable[..., Recording]) -> None:
    events = [ASKED, action(2, "c", "r1"), action(3, "c", "r2")]
    recording = read(*events, result(4, "c", "first", "e2"), result(5, "c", "second", "e3"))
    assert [message.text for message in recording.messages] == ["q", "", "first", "", "second"]


def test_an_older_action_has_a_call_in_openais_format(read: Callable[..., Recording]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    recording = read(ASKED, action(2, "c", "r1", tool_call=call))
    assert recording.messages[1].tool_calls == (ToolCall("c", "bash", "{}"),)


def test_a_result_has_the_form_that_was_sent(read: Callable[..., Recording]) -> None:
    metadata = {"exit_code": 2, "working_dir": "/w", "prefix": "", "suffix": "[done]"}
    failed = result(3, "c", "no file", "e2", is_error=True, metadata=metadata)
    recording = read(ASKED, action(2, "c", "r1"), failed)
    assert recording.messages[2].text == (
        "[An error occurred during execution.]\nno file[done]\n"
        "[Current working directory: /w]\n[Command finished with exit code 2]"
    )
    assert recording.messages[2].extra == {"is_error": True}


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("AgentErrorEvent", {"error": "no such tool"}, "no such tool"),
        ("UserRejectObservation", {"rejection_reason": "no"}, "Action rejected: no"),
    ],
)
def test_errors_and_rejections_are_results(
    kind: str, fields: dict[str, str], said: str, read: Callable[..., Recording]
) -> None:
    refused = event(3, kind, "environment", tool_name="terminal", tool_call_id="c", **fields)
    told = read(ASKED, action(2, "c", "r1"), refused).messages[2]
    assert (told.role, told.text, told.tool_call_id) == ("tool", said, "c")
    assert told.extra == {"is_error": True}


def test_images_and_extensions_are_parts_of_a_message(read: Callable[..., Recording]) -> None:
    url = "data:image/png;base64,AA=="
    sent = {"role": "user", "content": [text("see"), {"type": "image", "image_urls": [url, url]}]}
    more = {"llm_message": sent, "extended_content": [text("rule")]}
    (first,) = read(message(1, "user", "") | more).messages
    assert isinstance(first.content, tuple)
    assert [part["type"] for part in first.content] == ["text", "image_url", "image_url", "text"]


def test_a_condensation_is_a_compaction(read: Callable[..., Recording]) -> None:
    request = event(5, "CondensationRequest", "environment", reason="context_limit")
    after = message(7, "user", "go on")
    recording = read(*RUN, request, condensation(6, "e2", "e4"), after, base=state(used("rc", 9)))
    # The result of a forgotten call is forgotten with it.
    assert described(recording) == (
        Summary(4, summary="so far", kept=(0,), trigger="context_limit"),
    )
    assert recording.skipped == {"usage of a condensation": 1}


def test_a_later_condensation_keeps_what_both_keep(read: Callable[..., Recording]) -> None:
    later = condensation(6, "e4", summary_offset=None)
    recording = read(*RUN[:3], condensation(8, "e2"), RUN[3], later, message(7, "user", "so?"))
    kept = [(each.position, each.kept, each.summary) for each in recording.compactions]
    assert kept == [(3, (0,), "so far"), (4, (0,), None)]
    assert recording.skipped == {"summary that was not sent to the model": 1}


@pytest.mark.parametrize("active_is_last", [True, False])
def test_only_the_active_branch_is_read(
    active_is_last: bool, read: Callable[..., Recording]
) -> None:
    left = message(5, "assistant", "left", parent_id="e3")
    active = message(6, "assistant", "active", parent_id="e3")
    ends = [left, active] if active_is_last else [active, left]
    recording = read(*RUN[:3], *ends, base=state(leaf_event_id="e6"))
    assert recording.messages[-1].text == "active"
    assert recording.skipped == {"event of another branch": 1}


def test_events_after_an_outdated_leaf_are_read(read: Callable[..., Recording]) -> None:
    last = RUN[3] | {"parent_id": "e3"}
    assert len(read(*RUN[:3], last, base=state(leaf_event_id="e2")).messages) == 4


def test_the_conversation_of_a_task_is_in_the_cluster_of_its_parent(
    store: Store, tmp_path: Path
) -> None:
    store(RUN, state())
    store(RUN, state(id="c-2"), folder="conv/subagents/child")
    parent, child = sorted(load(tmp_path), key=lambda each: each.id)
    assert (parent.id, child.id) == ("stored/conv", "stored/conv/subagents/child")
    assert parent.cluster == child.cluster == "conv"
    assert (parent.meta.get("parent"), child.meta["parent"]) == (None, "conv")


def test_other_events_are_counted_by_kind(read: Callable[..., Recording]) -> None:
    others = [event(8, "PauseEvent", "user"), event(9, "TokenEvent"), result(7, "x", "lost")]
    recording = read(*RUN, *others, result(6, "c", "again"), base=state(used("r9", 1)))
    assert recording.skipped == {
        "event of kind PauseEvent": 1,
        "event of kind TokenEvent": 1,
        "result without its call": 1,
        "second result of a call": 1,
        "usage of a call without a message": 1,
    }


def test_a_broken_event_is_named_by_its_file(store: Store) -> None:
    here = store([*RUN, message(5, "judge", "?"), RUN[3] | {"llm_message": 3}], state())
    with pytest.raises(ReadError, match=r"event-00004-.*event 4: .*'judge'"):
        list(load(here))
    (recording,) = load(here, on_error="skip")
    assert len(recording.messages) == 4
    assert sum(recording.skipped.values()) == 2


def test_a_long_event_is_recognised(store: Store) -> None:
    (recording,) = load(store([ASKED, message(2, "assistant", "x" * 400_000)], state()))
    assert len(recording.messages[1].text) == 400_000


def test_an_event_file_that_was_cut_off_is_named_or_counted(store: Store) -> None:
    here = store([*RUN, json.dumps(message(9, "user", "so?"))[:-30]], state())
    with pytest.raises(ReadError, match=r"event-00004-.*not JSON"):
        list(load(here))
    (recording,) = load(here, on_error="skip")
    assert len(recording.messages) == 4
    assert sum(recording.skipped.values()) == 1
