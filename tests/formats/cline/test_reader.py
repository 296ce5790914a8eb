"""Tests of the Cline format: histories, calls as XML, usage and compactions of a task folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Cleared, Summary, described
from reading import shape

from ctxlab import replay
from ctxlab.errors import ReadError
from ctxlab.formats import FORMATS, FileHead, detect_format, load
from ctxlab.messages.types import Recording, Usage
from ctxlab.strategies import recorded

Row = dict[str, Any]
Read = Callable[..., Recording]

ENVIRONMENT = "<environment_details>\n# Current Mode\nACT MODE\n</environment_details>"
HISTORY, UI = "api_conversation_history.json", "ui_messages.json"


def text(said: str) -> Row:
    return {"type": "text", "text": said}


def user(*content: Any, **keys: Any) -> Row:
    blocks = [text(each) if isinstance(each, str) else each for each in content]
    return {"role": "user", "content": blocks, **keys}


def task(said: str = "go", **keys: Any) -> Row:
    return user(f"<task>\n{said}\n</task>", ENVIRONMENT, **keys)


def answer(*content: Any, **keys: Any) -> Row:
    return user(*content, **keys) | {"role": "assistant"}


def call(id: str, name: str = "read_file", **input: Any) -> Row:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, said: Any = "ok", **keys: Any) -> Row:
    return {"type": "tool_result", "tool_use_id": id, "content": said, **keys}


def xml(path: str = "a", tool: str = "read_file") -> str:
    return f"<{tool}>\n<path>{path}</path>\n</{tool}>"


def header(path: str = "a", tool: str = "read_file") -> str:
    return f"[{tool} for '{path}'] Result:"


def request(ts: int, index: int | None = None, model: Any = None, **counts: Any) -> Row:
    row = {"ts": ts, "type": "say", "say": "api_req_started", "text": json.dumps(counts)}
    row |= {} if index is None else {"conversationHistoryIndex": index}
    return row | ({} if model is None else {"modelInfo": model})


def say(ts: int, index: int, deleted: list[int] | None = None, **keys: Any) -> Row:
    row = {"ts": ts, "type": "say", "say": "text", "conversationHistoryIndex": index, **keys}
    return row if deleted is None else row | {"conversationHistoryDeletedRange": deleted}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a task folder: its history, and other files by name."""

    def writing(history: Any, **others: Any) -> Path:
        folder = tmp_path / "task"
        folder.mkdir(exist_ok=True)
        (folder / HISTORY).write_text(json.dumps(history))
        for name, content in others.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    return writing


@pytest.fixture
def read(write: Callable[..., Path]) -> Read:
    """Return a function that reads the history given as rows, with the other files of its folder."""

    def reading(*rows: Any, **others: Any) -> Recording:
        (recording,) = load(write(list(rows), **others))
        return recording

    return reading


def test_a_call_in_xml_is_paired_with_the_text_of_its_result(read: Read) -> None:
    recording = read(
        task(),
        answer(f"I look.\n\n{xml()}"),
        user(header(), "content of a", ENVIRONMENT),
        answer(xml("b")),
        user(f"{header('b')}\ncontent of b", ENVIRONMENT),
    )
    assert [*shape(recording)][1:] == [
        "a:I look.+xml-1",
        f"t:{header()}\ncontent of a=xml-1",
        f"u:{ENVIRONMENT}",
        "a:+xml-2",
        f"t:{header('b')}\ncontent of b=xml-2",
        f"u:{ENVIRONMENT}",
    ]
    made = recording.messages[1].tool_calls[0]
    assert (made.name, made.parse_arguments()) == ("read_file", {"path": "a"})
    assert recording.messages[2].name == "read_file"


def test_a_header_may_have_several_lines_and_other_words(read: Read) -> None:
    command = "<execute_command><command>\nls\npwd\n</command></execute_command>"
    mode = "<switch_mode><mode_slug>ask</mode_slug></switch_mode>"
    recording = read(
        task(),
        answer(command),
        user("[execute_command for 'ls\npwd'] Result:", "a.py"),
        answer(mode),
        user("[switch_mode to 'ask' because: no reason] Result:\nswitched"),
    )
    assert [m.role for m in recording.messages][1:] == ["assistant", "tool", "assistant", "tool"]


def test_a_parameter_of_a_written_file_may_contain_its_closing_tag(read: Read) -> None:
    content = "\n  <a></content>\n\n"
    said = f"<write_to_file><path>p</path><content>{content}</content></write_to_file>"
    recording = read(task(), answer(said), user(header("p", "write_to_file"), "saved"))
    arguments = recording.messages[1].tool_calls[0].parse_arguments()
    assert arguments == {"path": "p", "content": "  <a></content>\n"}


def test_a_call_with_text_outside_of_its_parameters_keeps_its_whole_text(read: Read) -> None:
    recording = read(
        task(), answer("<list_files>src</list_files>"), user("[list_files] Result:", "")
    )
    assert recording.messages[1].tool_calls[0].arguments == "src"


def test_a_call_without_a_result_stays_in_the_text(read: Read) -> None:
    said = f"{xml('a')}\n{xml('b')}\n\n[Response interrupted by a tool use result.]"
    recording = read(task(), answer(said), user(header("a"), "A"), answer(xml("c")), user("stop"))
    first, second = recording.messages[1], recording.messages[3]
    assert [each.arguments for each in first.tool_calls] == ['{"path":"a"}']
    assert first.text == f"{xml('b')}\n\n[Response interrupted by a tool use result.]"
    assert (second.text, second.tool_calls) == (xml("c"), ())


def test_the_last_call_needs_no_result(read: Read) -> None:
    said = "<attempt_completion><result>done</result></attempt_completion>"
    recording = read(task(), answer(said))
    assert recording.messages[1].tool_calls[0].name == "attempt_completion"


def test_a_tag_in_a_sentence_is_no_call(read: Read) -> None:
    said = "The <read_file> tool shows the <b>file</b>."
    recording = read(task(), answer(said))
    assert (recording.messages[1].text, recording.messages[1].tool_calls) == (said, ())


def test_a_result_without_a_call_stays_in_the_user_message(read: Read) -> None:
    recording = read(task(), answer("hm"), user(f"{header()}\nA", ENVIRONMENT))
    assert [*shape(recording)][2] == f"u:{header()}\nA\n{ENVIRONMENT}"


def test_images_after_a_result_belong_to_it_and_feedback_does_not(read: Read) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A="}}
    said = "<browser_action><action>launch</action></browser_action>"
    shown = user("[browser_action for 'launch'] Result:", "page", image, "nice", ENVIRONMENT)
    recording = read(task(), answer(said), shown)
    content = recording.messages[2].content
    assert isinstance(content, tuple)
    assert [part["type"] for part in content] == ["text", "text", "image_url"]
    assert recording.messages[3].text == f"nice\n{ENVIRONMENT}"


def test_native_calls_keep_their_ids_and_errors(read: Read) -> None:
    said = answer("I look.", call("t1", path="a") | {"call_id": "other"}, ts=9500)
    recording = read(task(), said, user(result("t1", "no", is_error=True), ENVIRONMENT))
    assert [*shape(recording)][1:3] == ["a:I look.+t1", "t:no=t1"]
    assert recording.messages[1].time == 9.5
    assert recording.messages[2].extra == {"is_error": True}


def test_a_native_call_may_be_answered_by_text(read: Read) -> None:
    calls = [call("t1", "read_file"), call("t2", "use_subagents"), call("t3", "read_file")]
    sent = [f"{header('a')}\nA", f"{header('b')}\nB", "[subagents] Result:\nC", ENVIRONMENT]
    recording = read(task(), answer(*calls), user(*sent))
    assert {m.tool_call_id: m.text[-1] for m in recording.messages if m.role == "tool"} == {
        "t1": "A",
        "t3": "B",
        "t2": "C",
    }
    assert recording.messages[-1].text == ENVIRONMENT


def test_xml_beside_native_calls_is_text(read: Read) -> None:
    recording = read(task(), answer(xml(), call("t1")), user(result("t1")))
    assert [*shape(recording)][1] == f"a:{xml()}+t1"


def test_reasoning_is_read_in_every_form(read: Read) -> None:
    recording = read(
        task(),
        answer({"type": "thinking", "thinking": "1"}, "a"),
        answer({"type": "reasoning", "text": "2", "summary": []}, "b"),
        answer("c", reasoning_content="3"),
        answer("d", reasoning_details=[{"type": "reasoning.text", "text": "4"}]),
        {"type": "reasoning", "encrypted_content": "x", "summary": [{"type": "s", "text": "5"}]},
        answer("e"),
        {"role": "assistant", "type": "reasoning", "encrypted_content": "x", "summary": []},
        answer({"type": "reasoning", "encrypted_content": "x", "summary": []}, "f"),
    )
    said = [(m.text, m.reasoning) for m in recording.messages[1:]]
    assert said == [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", None)]
    assert recording.skipped == {"encrypted reasoning": 2}


def test_what_is_left_out_is_counted(read: Read) -> None:
    recording = read(
        task(),
        answer("a", {"type": "thoughtSignature", "thoughtSignature": "x"}),
        answer(),
        answer("b", metadata={"displayOnly": True}),
    )
    assert recording.skipped == {
        "block of type thoughtSignature": 1,
        "message without content": 1,
        "message that was only displayed": 1,
    }


def test_an_answer_has_the_model_and_metrics_of_its_row(read: Read) -> None:
    model = {"modelId": "m", "providerId": "anthropic"}
    metrics = {"tokens": {"prompt": 10, "completion": 2, "cached": 300}, "cost": 0.5}
    recording = read(task(), answer("a", modelInfo=model, metrics=metrics))
    said = recording.messages[1]
    assert said.usage == Usage(input=10, cache_read=300, output=2)
    assert (said.extra, recording.model) == ({"cost": 0.5}, "m")


def test_some_providers_count_cached_tokens_as_input(read: Read) -> None:
    model = {"modelId": "m", "providerId": "openai"}
    metrics = {"tokens": {"prompt": 310, "completion": 2, "cached": 300}}
    recording = read(task(), answer("a", modelInfo=model, metrics=metrics))
    assert recording.messages[1].usage == Usage(input=10, cache_read=300, output=2)


def test_a_request_belongs_to_the_answer_after_its_place_in_the_history(read: Read) -> None:
    log = [
        request(1000, -1, tokensIn=1, tokensOut=2, cacheReads=30, cacheWrites=4, cost=0.5),
        request(2000, 1, {"modelId": "m", "providerId": "openai"}, tokensIn=50, cacheReads=40),
        request(3000, 3),
        request(4000, 9, tokensIn=1),
        {"ts": 5000, "type": "say", "say": "subagent_usage", "text": "{}"},
    ]
    history = [task(), answer("a"), user("b"), answer("c"), user("d"), answer("e")]
    recording = read(*history, ui_messages=log)
    first, second, third = recording.messages[1::2]
    assert first.usage == Usage(input=1, cache_read=30, cache_write=4, output=2)
    assert (first.extra, first.time) == ({"cost": 0.5}, 1.0)
    assert (second.usage, third.usage) == (Usage(input=10, cache_read=40), None)
    assert recording.model == "m"
    assert recording.skipped == {"billed request without an answer": 1, "usage of subagents": 1}


def test_a_request_without_a_place_belongs_to_the_answer_after_its_time(read: Read) -> None:
    log = [
        request(1000, apiProtocol="anthropic", tokensIn=5, cacheReads=30),
        request(3000, apiProtocol="openai", tokensIn=50, cacheReads=30),
        request(1_761_955_100_000, apiProtocol="anthropic", tokensIn=50, cacheReads=30),
        request(1_761_955_300_000, apiProtocol="anthropic", tokensIn=50, cacheReads=30),
    ]
    times = (2000, 4000, 1_761_955_100_001, 1_761_955_300_001)
    rows = [each for ts in times for each in (user("x", ts=ts - 1), answer("y", ts=ts))]
    recording = read(task(ts=0), *rows, ui_messages=log)
    inputs = [m.usage.input for m in recording.messages if m.usage]
    assert inputs == [5, 20, 50, 20]


def test_requests_without_place_or_time_are_in_the_order_of_the_answers(read: Read) -> None:
    log = [request(1000, tokensIn=1), request(2000), request(3000, tokensIn=3)]
    recording = read(task(), answer("a"), user("b"), answer("c"), answer("d"), ui_messages=log)
    used = [m.usage for m in recording.messages if m.role == "assistant"]
    assert used == [Usage(input=1), None, Usage(input=3)]


def test_the_model_is_taken_from_the_metadata_or_the_environment(read: Read) -> None:
    used = [{"ts": 1000, "model_id": "early"}, {"ts": 3000, "model_id": "late"}]
    metadata = {"files_in_context": [], "model_usage": used}
    metadata["environment_history"] = [{"ts": 1, "cline_version": "3.39.2"}]
    history = [task(ts=1), answer("a", ts=2000), user("b", ts=3500), answer("c", ts=4000)]
    recording = read(*history, task_metadata=metadata)
    assert recording.meta == {"models": {"early": 1, "late": 1}, "version": "3.39.2"}
    other = user("<environment_details>\n<model>x/y</model>\n</environment_details>", ts=1)
    assert read(other, answer("a")).model == "x/y"


def test_the_task_and_its_parents_are_the_cluster(read: Read) -> None:
    item = {"id": "t2", "rootTaskId": "t0", "parentTaskId": "t1", "ts": 1, "task": "x"}
    item |= {"tokensIn": 1, "tokensOut": 1, "mode": "code", "workspace": "w"}
    recording = read(task(), answer("a"), history_item=item)
    assert recording.cluster == "t0"
    assert recording.meta == {"task": "t2", "parent": "t1", "mode": "code", "folder": "w"}


def test_a_deleted_range_is_a_compaction_before_the_next_answer(read: Read) -> None:
    log = [
        request(1, -1),
        request(2, 3),
        say(3, 4, [2, 3]),
        say(4, 5, [2, 3]),
    ]
    history = [task(), answer("a"), user("b"), answer("c"), user("d"), answer("e")]
    recording = read(*history, ui_messages=log)
    assert described(recording) == (Summary(5, kept=(0, 1, 4)),)


def test_changes_of_the_range_that_no_answer_saw_are_one_compaction(read: Read) -> None:
    log = [request(1, -1), say(3, 4, [2, 2]), say(4, 5, [2, 4])]
    history = [task(), answer("a"), user("b"), answer("c"), user("d"), user("e"), answer("f")]
    recording = read(*history, ui_messages=log)
    assert described(recording) == (Summary(6, kept=(0, 1, 5)),)


def test_an_answer_whose_results_were_deleted_is_not_kept(read: Read) -> None:
    rows = [task(), answer(xml()), user(header(), "A"), answer(xml("b")), user(header("b"), "B")]
    recording = read(*rows, answer("end"), ui_messages=[request(1, -1), say(2, 4, [2, 2])])
    assert [m.role for m in recording.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert described(recording) == (Summary(5, kept=(0, 3, 4)),)


def edit(index: int, kind: int, block: int, ts: int, said: str) -> list[Any]:
    return [index, [kind, [[block, [[ts, "text", [said], []]]]]]]


def test_a_result_that_a_note_replaced_is_cleared_before_the_next_request(read: Read) -> None:
    rows = [task(), answer(xml()), user(header(), "A"), answer(xml()), user(header(), "A")]
    log = [request(1000, -1), request(2000, 1), request(3000, 3), request(4000, 5)]
    recording = read(
        *rows,
        answer("c"),
        user("d"),
        answer("e"),
        ui_messages=log,
        context_history=[edit(2, 2, 1, 3000, "see below"), edit(4, 4, 1, 3000, "other")],
    )
    assert described(recording) == (Cleared(7, ("xml-1",)),)
    assert recording.skipped == {"file content replaced within a message": 1}


def test_the_note_about_removed_messages_replaces_the_first_answer(read: Read) -> None:
    history = [task(), answer("a"), user("b"), answer("c"), user("d"), answer("e")]
    log = [request(1, -1), say(3, 4, [2, 3])]
    recording = read(*history, ui_messages=log, context_history=[edit(1, 0, 0, 2, "removed")])
    assert described(recording) == (Summary(5, summary="removed", kept=(0, 4)),)


CONDENSED = [
    task(ts=1000),
    answer(call("t1"), ts=2000, condenseParent="k"),
    user(result("t1"), ts=3000, condenseParent="k"),
    answer("in short", ts=3999, isSummary=True, condenseId="k"),
    answer(call("t2"), ts=4000),
    user(result("t2"), ts=5000),
    answer("b", ts=6000),
    user("c", ts=7000),
    answer("d", ts=8000),
]


def test_a_summary_takes_effect_after_the_three_rows_that_were_kept(read: Read) -> None:
    recording = read(*CONDENSED)
    assert [*shape(recording)][1:5] == ["a:+t1", "t:ok=t1", "a:+t2", "t:ok=t2"]
    assert described(recording) == (Summary(6, summary="in short", kept=(0, 3, 4, 5)),)


def test_the_log_of_the_user_interface_has_the_time_and_size_of_a_summary(read: Read) -> None:
    about = {"condenseId": "k", "prevContextTokens": 900, "summary": "in short"}
    log = [{"ts": 7500, "type": "say", "say": "condense_context", "contextCondense": about}]
    (compaction,) = read(*CONDENSED, ui_messages=log).compactions
    assert (compaction.position, compaction.tokens_before) == (7, 900)
    assert compaction.kept == (0, 3, 4, 5, 6)


def test_a_summary_of_all_rows_takes_effect_at_once_and_replaces_the_one_before(read: Read) -> None:
    recording = read(
        task(condenseParent="k"),
        answer("a", condenseParent="k"),
        user("one", isSummary=True, condenseId="k", condenseParent="l"),
        user("b", condenseParent="l"),
        answer("c", condenseParent="l"),
        user("two", isSummary=True, condenseId="l"),
        user("d"),
    )
    assert described(recording) == (Summary(2, summary="one"), Summary(4, summary="two"))


def test_a_truncation_keeps_as_many_rows_as_it_hides_and_shows_its_marker(read: Read) -> None:
    recording = read(
        task(),
        answer("a", truncationParent="t"),
        user("b", truncationParent="t"),
        user("2 hidden", isTruncationMarker=True, truncationId="t"),
        answer("c"),
        user("d"),
        answer("e"),
    )
    assert [m.text for m in recording.messages[1:]] == ["a", "b", "c", "d", "e"]
    assert described(recording) == (Summary(5, summary="2 hidden", kept=(0, 3, 4)),)


def test_a_marker_among_earlier_rows_is_shown_only_after_its_own_truncation(read: Read) -> None:
    rows = [
        task(ts=1000),
        answer("a", ts=2000, condenseParent="k"),
        user("one", ts=2999, isSummary=True, condenseId="k"),
        user("b", ts=3000, truncationParent="t"),
        user("two", ts=3999, isTruncationMarker=True, truncationId="t"),
        answer("c", ts=4000),
        user("d", ts=5000),
        answer("e", ts=6000),
    ]
    about = [{"condenseId": "k"}, {"truncationId": "t", "prevContextTokens": 90}]
    log = [
        {"ts": 3500, "type": "say", "say": "condense_context", "contextCondense": about[0]},
        {"ts": 5500, "type": "say", "say": "x", "contextTruncation": about[1]},
    ]
    assert described(read(*rows, ui_messages=log)) == (
        Summary(3, summary="one", kept=(0, 2)),
        Summary(5, summary="one\n\ntwo", kept=(0, 3, 4), tokens_before=90),
    )


def test_a_tag_of_a_summary_that_was_removed_hides_nothing(read: Read) -> None:
    recording = read(task(condenseParent="gone"), answer("a", condenseParent="gone"))
    assert (len(recording.messages), recording.compactions) == (2, ())


def test_the_recorded_compactions_can_be_replayed(read: Read) -> None:
    context = replay(read(*CONDENSED), recorded(), 9000).trace.context
    assert [entry.message.text for entry in context.entries][1:3] == ["in short", ""]


def test_a_session_of_the_sdk_has_its_system_prompt_and_usage(tmp_path: Path) -> None:
    metrics = {
        "inputTokens": 500,
        "outputTokens": 9,
        "cacheReadTokens": 400,
        "cacheWriteTokens": 50,
    }
    said = answer("a", metrics=metrics, modelInfo={"id": "m", "provider": "p"}, ts=2000)
    wrapper = {"version": 1, "agent": "subagent", "sessionId": "s", "messages": [user("hi"), said]}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(wrapper | {"system_prompt": "be brief"}))
    (recording,) = load(path)
    assert [*shape(recording)] == ["s:be brief", "u:hi", "a:a"]
    assert recording.messages[2].usage == Usage(input=50, cache_read=400, cache_write=50, output=9)
    assert (recording.model, recording.cluster) == ("m", "s")
    assert recording.meta == {"session": "s", "agent": "subagent"}


def test_a_summary_of_the_sdk_replaces_the_rows_before_it(tmp_path: Path) -> None:
    about = {"kind": "compaction_summary", "tokensBefore": 900, "generatedAt": 5000}
    rows = [user("a", ts=1000), answer("b", ts=2000), user("short", metadata=about)]
    rows += [user("c", ts=3000), answer("d", ts=4000), user("e", ts=6000)]
    path = tmp_path / "s.json"
    wrapper = {"version": 1, "agent": "lead", "sessionId": "s", "messages": rows}
    path.write_text(json.dumps(wrapper))
    (recording,) = load(path)
    assert described(recording) == (Summary(4, summary="short", kept=(2, 3), tokens_before=900),)


def test_histories_in_one_folder_are_separate_recordings(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps([task(name), answer("a")]))
    (tmp_path / UI).write_text(json.dumps([request(1, -1, tokensIn=1)]))
    recordings = list(load(tmp_path))
    assert [recording.id for recording in recordings] == ["one", "two"]
    assert recordings[0].skipped == {"ui file beside several histories": 1}


def test_a_list_of_messages_without_the_marks_of_a_product_is_read_by_anthropic(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([user("hi", ts=1), answer(call("t1"), ts=2), user(result("t1"))]))
    assert detect_format(path) is FORMATS["anthropic"]
    path.write_text(json.dumps([task(), answer(call("t1")), user(result("t1"))]))
    assert detect_format(path) is FORMATS["cline"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (3, "a message must be an object, got int"),
        ({"role": "robot", "content": "a"}, "expected the role user, assistant or tool"),
        ({"role": "user", "content": 3}, "content must be a string or a list of objects"),
        ({"role": "user", "content": [3]}, "a content block must be an object"),
    ],
)
def test_a_malformed_message_is_reported_with_its_number(
    write: Callable[..., Path], row: Any, reason: str
) -> None:
    path = write([task(), row, answer("a")]) / HISTORY
    with pytest.raises(ReadError, match=f"message 1: .*{reason}|element 1: .*{reason}"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert len(recording.messages) == 2
    assert sum(recording.skipped.values()) == 1


def test_a_malformed_file_beside_the_history_is_reported(write: Callable[..., Path]) -> None:
    folder = write([task(), answer("a")])
    (folder / UI).write_text('[{"ts": 1, "type": "say"}, 3]')
    with pytest.raises(ReadError, match=rf"{UI}.*element 1"):
        list(load(folder))
    (recording,) = load(folder, on_error="skip")
    assert len(recording.messages) == 2


def test_the_log_of_the_user_interface_alone_is_no_conversation(write: Callable[..., Path]) -> None:
    folder = write([task()], ui_messages=[request(1, -1, tokensIn=1)])
    with pytest.raises(ReadError, match="contains no cline conversation"):
        list(load(folder / UI))


def test_no_real_file_of_another_product_is_claimed(data: Path) -> None:
    sniff = FORMATS["cline"].sniff
    paths = (path for path in sorted(data.rglob("*")) if path.is_file())
    assert not [path for path in paths if sniff(FileHead.from_file(path))]
