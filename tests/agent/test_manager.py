"""Tests of the live context manager, which must send the same requests as a replay."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from generated import TOOLS, conversations, limits, with_times
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS, run

from ctxlab import ContextManager, build_messages, count_tokens
from ctxlab.agent.loop import DEFAULT_STRATEGY
from ctxlab.agent.manager import StatelessWarning
from ctxlab.context.turns import GET_TURN_TOOL
from ctxlab.errors import ModelRequestRejected, SpecError
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm import CachedClient, FaultTolerantClient, LiteLLMClient, ScriptedClient
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.base import walk_strategies
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import ModelWarning

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASKING = "rolling_summary(model='gpt-4o') | panic()"
LIVE = [
    spec
    for spec in SPECS
    if all(each.supports_live for each in walk_strategies(parse_strategy(spec)))
]


@given(messages=with_times(conversations()), limit=limits(), spec=st.sampled_from(LIVE))
def test_what_is_sent_live_is_what_a_replay_sends(
    messages: tuple[Message, ...], limit: int, spec: str, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(Recording("r", messages, TOOLS), counter)
    trace, requests = run(prepared, spec, prepared.make_budget(limit))
    clock = iter(prepared.request_times).__next__
    manager = ContextManager(spec, "gpt-4o", tools=TOOLS, limit=limit, reserve=0, clock=clock)
    position = 0
    for tokens, sent in zip(trace.tokens, requests, strict=True):
        manager.extend(messages[position : sent.position])
        position = sent.position
        assert manager.request() == [m.to_dict() for m in sent.messages]
        assert manager.tokens == tokens
    assert manager.events == trace.context.events


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_a_framework_that_hands_over_everything_each_time_gets_the_same(
    messages: tuple[Message, ...], limit: int, spec: str
) -> None:
    wire = [m.to_dict() for m in messages]
    live, synced = (ContextManager(spec, "gpt-4o", limit=limit, reserve=0) for _ in range(2))
    for end, message in enumerate(wire, 1):
        live.append(message)
        if message["role"] in ("user", "tool"):
            synced.sync(json.loads(json.dumps(wire[:end])))
            assert synced.request() == live.request()
    assert len(synced.history) <= len(live.history)


def test_a_conversation_that_was_edited_begins_anew() -> None:
    manager = ContextManager("rolling_summary() | panic()", "gpt-4o", limit=500, reserve=0)
    talk = [{"role": "user", "content": f"{i} " + "word " * 40} for i in range(30)]
    manager.sync(talk)
    assert manager.request()[1]["content"].startswith("Summary")
    manager.sync([*talk[:2], {"role": "user", "content": "Start over."}])
    assert [m["content"] for m in manager.request()][-1] == "Start over."
    assert len(manager.history) == 3


def at(*hours: int) -> Callable[[], datetime]:
    """Return a clock that shows these hours of a day, one after the other."""
    return iter([datetime(2025, 5, 1, hour, tzinfo=UTC) for hour in hours]).__next__


def test_a_strategy_that_waits_for_a_pause_sees_that_of_a_resumed_conversation() -> None:
    left = datetime(2025, 5, 1, 9, tzinfo=UTC).timestamp()
    talk = [Message("user", f"line {i}", time=left) for i in range(6)]
    talk.append(Message("assistant", "All read.", time=left + 50))
    spec = "idle(sliding_window(messages=1), minutes=60)"
    for hour, count in ((9, 8), (10, 2)):
        manager = ContextManager(spec, "gpt-4o", clock=at(hour))
        manager.extend([*talk, Message("user", "Go on.")])
        assert len(manager.request()) == count


def test_a_conversation_that_begins_anew_keeps_the_time_of_the_last_request() -> None:
    talk = [{"role": "user", "content": f"line {i}"} for i in range(6)]
    spec = "idle(sliding_window(messages=1), minutes=60)"
    manager = ContextManager(spec, "gpt-4o", clock=at(9, 10))
    manager.sync(talk)
    assert len(manager.request()) == 6
    manager.sync(talk[:5])
    assert len(manager.request()) == 2


def test_a_preview_is_at_the_time_of_the_clock() -> None:
    manager = ContextManager("idle(sliding_window(messages=1))", "gpt-4o", clock=at(9, 10, 10))
    manager.extend([{"role": "user", "content": f"line {i}"} for i in range(6)])
    assert len(manager.request()) == 6
    assert len(manager.preview(Message("user", "What now?"))) == 2
    assert len(manager.request()) == 2


def test_what_a_strategy_left_alone_is_sent_as_it_was_given() -> None:
    given_: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        "thinking_blocks": [{"type": "thinking", "thinking": "…", "signature": "s"}],
        "_compacted": True,
    }
    manager = ContextManager("full", "gpt-4o")
    manager.extend([{"role": "user", "content": "Hello"}, given_])
    sent = manager.request()[1]
    assert sent == {key: value for key, value in given_.items() if key != "_compacted"}


def test_a_stub_carries_no_bookkeeping_to_the_model() -> None:
    manager = ContextManager("tool_stubs(keep=0)", "gpt-4o")
    manager.extend(
        [
            {"role": "user", "content": "Read"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "line\n" * 200},
        ]
    )
    assert "_compacted" not in json.dumps(manager.request())
    assert manager.changed_positions == [2]


def test_tool_definitions_and_the_reply_take_room() -> None:
    talk = [{"role": "user", "content": "word " * 30} for _ in range(50)]
    plain = build_messages(
        "You are a test agent.", talk, None, limit=1000, reserve=0, model="gpt-4"
    )
    tools = [*TOOLS] * 10
    fewer = build_messages(
        "You are a test agent.", talk, tools, limit=1000, reserve=0, model="gpt-4"
    )
    assert len(fewer) < len(plain)
    assert count_tokens(fewer, "gpt-4", tools) <= 1000
    reserved = build_messages("You are a test agent.", talk, limit=1000, reserve=400, model="gpt-4")
    assert count_tokens(reserved, "gpt-4") <= 600


def test_seed_002_messages_that_exceed_the_context_are_truncated_and_not_sent_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, criterion 7."""
    huge = [{"role": "tool", "content": "x" * 50_000, "tool_call_id": "1"}] * 10
    with caplog.at_level(logging.WARNING):
        sent = build_messages("You are a test agent.", huge, model="gpt-4", strategy="panic()")
    assert count_tokens(sent, "gpt-4") < 8192
    assert sent[0] == {"role": "system", "content": "You are a test agent."}
    assert sent[-1]["role"] == "tool"
    assert "panic" in caplog.text


def test_a_request_that_is_too_large_all_the_same_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        build_messages(None, [{"role": "user", "content": "word " * 500}], limit=100, reserve=0)
    assert "tokens over the budget" in caplog.text


def test_a_strategy_that_asks_a_model_is_given_the_client_and_bad_ones_are_refused() -> None:
    with pytest.raises(SpecError, match="did you mean"):
        ContextManager("rolling_sumary()")
    with pytest.raises(ValueError, match="role"):
        ContextManager().append({"content": "who?"})


@pytest.mark.parametrize("spec", ["oracle | panic", "recorded", "when_it_pays(recorded())"])
def test_what_only_a_recording_tells_is_refused_at_the_start(spec: str) -> None:
    with pytest.raises(SpecError, match=r"^(oracle|recorded) works only on recordings"):
        ContextManager(spec)


def test_what_happened_is_a_recording_again() -> None:
    manager = ContextManager("full", "gpt-4o", tools=TOOLS)
    manager.extend([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
    recording = manager.recording("today")
    assert (recording.id, recording.model, recording.tools) == ("today", "gpt-4o", TOOLS)
    assert recording.request_positions == (1,)


def talk(messages: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{i} " + "word " * 60} for i in range(messages)]


def small(strategy: str, **options: Any) -> ContextManager:
    return ContextManager(strategy, "gpt-4o", limit=1500, reserve=0, **options)


# --- what is fixed ---------------------------------------------------------------------------------


def test_what_is_fixed_takes_room_from_the_next_request_on_and_is_no_history() -> None:
    manager, other = (ContextManager("panic()", "gpt-4o", limit=1500, reserve=0) for _ in range(2))
    manager.extend(talk(30))
    whole = manager.request()
    before = manager.tokens
    system = {"role": "system", "content": "rule " * 300}
    manager.set_fixed(tools=TOOLS, system=[system])
    assert manager.tokens == before
    less = manager.request()
    assert len(less) < len(whole)
    assert manager.tokens == count_tokens([system, *less], "gpt-4o", TOOLS) <= 1500
    assert manager.changed_positions
    assert (len(manager.history), manager.tools) == (30, TOOLS)
    other.extend(talk(30))
    manager.set_fixed()
    assert manager.request() == other.request()


@pytest.mark.parametrize(
    "spec", ["sliding_window()", "rolling_summary() | panic()", "file_sessions()"]
)
def test_what_was_fixed_stays_when_a_conversation_begins_anew(spec: str) -> None:
    manager = small(spec)
    manager.sync(talk(30))
    manager.set_fixed(tools=TOOLS)
    manager.sync(talk(29))
    assert manager.request() == build_messages(
        None, talk(29), TOOLS, strategy=spec, model="gpt-4o", limit=1500, reserve=0
    )


# --- a look ahead ----------------------------------------------------------------------------------


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_a_look_ahead_tells_what_would_be_sent_and_changes_nothing(
    messages: tuple[Message, ...], limit: int, spec: str
) -> None:
    looking, other = (ContextManager(spec, "gpt-4o", limit=limit, reserve=0) for _ in range(2))
    question = Message("user", "And now?")
    for start in range(0, len(messages), 4):
        for manager in (looking, other):
            manager.extend(messages[start : start + 4])
        ahead = looking.preview(question)
        assert looking.request() == other.request()
        assert looking.events == other.events
    ahead = looking.preview(question)
    other.append(question)
    assert [e.message for e in ahead] == [e.message for e in other.request_entries()]


# --- a model that cannot be asked ------------------------------------------------------------------


def refuse(_: object) -> Exception:
    return ModelRequestRejected("no such key")


def test_a_conversation_outlives_a_refusal_of_its_summariser_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager, plain = small(ASKING, client=ScriptedClient(refuse)), small("rolling_summary | panic")
    for message in talk(90):
        manager.append(message)
        plain.append(message)
        assert manager.request() == plain.request()
    assert len(manager.model_calls) > 1
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "no such key" in errors[0]
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([text for text in warned if "summary fallback" in text]) == 1


def test_a_conversation_outlives_a_folder_for_answers_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = small(ASKING, client=CachedClient(ScriptedClient("x"), tmp_path / "file" / "calls"))
    manager.extend(talk(30))
    assert manager.request()[1]["content"].startswith("Summary")


def test_a_conversation_outlives_a_client_that_makes_no_vectors() -> None:
    class Plain:
        complete = complete_all = None

    manager = small("retrieval(k=2, embedding='text-embedding-3-small')", client=Plain())
    manager.extend(talk(30))
    manager.request()
    assert any("with an embed method" in what for _, what in manager.events)


def test_nothing_is_kept_on_disk_where_no_client_is_given() -> None:
    client = ContextManager(ASKING)._client
    assert isinstance(client, FaultTolerantClient)
    assert isinstance(client.client, LiteLLMClient)
    assert ContextManager()._client is None


def test_a_loop_without_memory_is_warned_where_a_model_would_be_asked_at_every_call() -> None:
    client = ScriptedClient(lambda _: "## Goal\nall of it")
    options: dict[str, Any] = {"model": "gpt-4o", "limit": 1500, "reserve": 0, "client": client}
    with pytest.warns(StatelessWarning, match="gpt-4o may be called again"):
        build_messages("Be brief.", talk(30), strategy=ASKING, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_messages("Be brief.", talk(30), strategy="rolling_summary", **options)


# --- nothing is shared -----------------------------------------------------------------------------


def test_marks_that_are_put_on_a_request_do_not_pile_up_in_the_history() -> None:
    manager = ContextManager("full", "claude-opus-4-5")
    for number in range(6):
        manager.append({"role": "user", "content": [{"type": "text", "text": f"{number}"}]})
        manager.append(Message("assistant", ({"type": "text", "text": "yes"},)))
        sent = manager.request()
        assert "cache_control" not in json.dumps(sent)
        for message in sent:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}


def test_a_message_that_is_edited_after_it_was_appended_is_sent_as_it_was_counted() -> None:
    manager = ContextManager("full", "gpt-4o")
    mine = {"role": "user", "content": [{"type": "text", "text": "hi"}], "x": {"y": [1]}}
    kept = copy.deepcopy(mine)
    manager.append(mine)
    mine["content"][0]["text"] = "word " * 500  # type: ignore[index]
    mine["x"]["y"].append(2)  # type: ignore[index]
    assert manager.request() == [kept]
    assert manager.tokens == count_tokens([kept], "gpt-4o")


def test_an_edit_in_place_is_seen_when_the_whole_conversation_is_handed_over() -> None:
    manager = ContextManager("full", "gpt-4o")
    held = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    manager.sync(held)
    held[0]["content"][0]["text"] = "word " * 500  # type: ignore[index]
    manager.sync(held)
    assert manager.request() == held
    assert manager.tokens == count_tokens(held, "gpt-4o")


def test_the_tokens_are_those_of_the_last_request_whatever_is_appended_after_it() -> None:
    manager = small("sliding_window()")
    assert manager.tokens == 0
    manager.extend(talk(2))
    sent = manager.request()
    manager.extend(talk(20))
    assert manager.tokens == count_tokens(sent, "gpt-4o")
    assert manager.changed_positions == []


def test_what_was_spent_and_reported_outlasts_a_message_that_is_taken_back() -> None:
    manager = small(ASKING, client=ScriptedClient(lambda _: "## Goal\nall of it"))
    manager.sync(talk(30))
    manager.request()
    calls, events = list(manager.model_calls), list(manager.events)
    assert calls
    assert events
    manager.sync(talk(29))
    assert (manager.model_calls, manager.events) == (calls, events)
    manager.request()
    assert [each.request_index for each in manager.model_calls] == [0, 1]
    assert [turn for turn, _ in manager.events] == [0, 1]


# --- messages as libraries and providers have them ---------------------------------------------------


def test_an_answer_of_openais_library_is_appended_as_it_is() -> None:
    chat = pytest.importorskip("openai.types.chat")
    said = {"role": "assistant", "content": "Let me see", "tool_calls": [CALL]}
    answer = chat.ChatCompletionMessage.model_validate(said)
    result = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    whole = ContextManager("full", "gpt-4o")
    whole.extend([{"role": "user", "content": "Read"}, answer, result])
    assert whole.request()[1] == said
    parts = {"role": "assistant", "content": "Let me see", "tool_calls": answer.tool_calls}
    held = [{"role": "user", "content": "Read"}, parts, result]
    for _ in range(2):
        whole.sync(held)
    assert whole.request() == [held[0], said, result]
    assert len(whole.history) == 3


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "tool_use", "id": "t1"}, "type tool_use .Anthropic messages."),
        ({"type": "tool_result", "id": "t1"}, "type tool_result .Anthropic messages."),
        ({"toolUse": {"toolUseId": "t1"}}, "type toolUse .Bedrock Converse messages."),
    ],
)
def test_a_tool_block_of_another_api_is_refused(part: dict[str, Any], said: str) -> None:
    message = {"role": "user", "content": [part]}
    for given_ in (message, message_from_dict(message)):
        with pytest.raises(ValueError, match=f"{said}; give calls in tool_calls"):
            ContextManager().append(given_)
    with pytest.raises(ValueError, match="a message must be an object, got int"):
        ContextManager().append(3)  # type: ignore[arg-type]


# --- limits ----------------------------------------------------------------------------------------


def test_limit_and_reserve_are_written_as_people_write_them_and_nonsense_is_refused() -> None:
    manager = ContextManager("full", "gpt-4o", limit="16k", reserve="2k")
    assert (manager.budget.limit, manager.budget.reserve) == (16_000, 2000)
    for limit in (0, -5, 0.5, True, "25%", "many", float("nan"), float("inf")):
        with pytest.raises(SpecError, match="Expected limit"):
            ContextManager("full", "gpt-4o", limit=limit)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"Expected reserve .* got -1"):
        ContextManager("full", "gpt-4o", reserve=-1)
    with pytest.raises(SpecError, match="below the limit"):
        ContextManager("full", "gpt-4o", limit=1000, reserve=1000)


@pytest.mark.parametrize(
    ("model", "limit", "reserve"),
    [
        ("gpt-5", None, 0),
        ("gpt-5", 16_000, 0),
        ("gpt-5", 400_000, 40_000),
        ("gpt-5-chat-latest", None, 12_800),
        ("gpt-4o", None, 12_800),
        ("gpt-4", None, 819),
        ("claude-sonnet-4-5", 200_000, 20_000),
    ],
)
def test_a_reply_that_has_no_room_of_its_own_is_kept_a_tenth_of_the_window(
    model: str, limit: int | None, reserve: int
) -> None:
    assert ContextManager("full", model, limit=limit).budget.reserve == reserve


# --- what is said ----------------------------------------------------------------------------------


def test_each_kind_of_trouble_is_said_once_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    manager = small("panic()")
    for message in talk(40):
        manager.append(message)
        manager.request()
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    first = manager.events[0][0]
    assert said == [f"request {first}: did not fit, so panic() cut it, for this request only"]
    assert len(manager.events) > 10


def test_what_a_provider_would_refuse_is_said_once_a_rule(caplog: pytest.LogCaptureFixture) -> None:
    def parted(messages: list[Message]) -> list[Message]:
        return messages[:1] + messages[2:]

    manager = ContextManager(parted, "gpt-4o")
    manager.append({"role": "user", "content": "Read"})
    manager.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
    manager.append({"role": "tool", "tool_call_id": "c1", "content": "x"})
    for _ in range(3):
        manager.request()
    (said,) = caplog.messages
    assert said.startswith("request 0: anthropic and openai would reject it (orphaned_result: ")


def test_an_unknown_window_is_told_unless_a_limit_is_given() -> None:
    with pytest.warns(ModelWarning, match="assuming a limit of 128,000 tokens"):
        ContextManager(model="nobody/knows")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ContextManager(model="nobody/knows", limit="16k").budget.limit == 16_000


@pytest.mark.parametrize(("model", "warned"), [("claude-opus-4-5", True), ("gpt-4o", False)])
def test_a_rule_of_another_provider_is_no_warning(
    model: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ContextManager("full", model)
    manager.extend([{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "Hi"}])
    manager.request()
    assert ("starts_with_user" in caplog.text) == warned


def test_what_the_contents_list_can_be_fetched_in_full() -> None:
    manager = ContextManager("contents()", "gpt-4o", limit=2000, reserve=0, tools=[GET_TURN_TOOL])
    for i in range(40):
        manager.append({"role": "user", "content": f"Question {i}? " + "word " * 40})
        manager.request()
        manager.append({"role": "assistant", "content": f"Answer {i}."})
    sent = manager.request()
    block = next(str(m["content"]) for m in sent if "get_turn" in str(m["content"]))
    line = next(line for line in block.splitlines() if line[:1].isdigit())
    number = int(line.split(".")[0])
    turn = manager.get_turn(number)
    assert [m["role"] for m in turn] == ["user", "assistant"]
    assert turn[0]["content"].startswith(f"Question {number - 1}?")
    assert manager.get_turn(f"{number}.1") == manager.get_turn(str(number)) == turn
    assert manager.get_turn(99) == manager.get_turn(f"{number}.2") == []
    with pytest.raises(SpecError, match="Expected a turn such as 3"):
        manager.get_turn(0)


@given(st.lists(st.integers(1, 400), max_size=25), st.booleans())
def test_compaction_on_request_keeps_the_history_and_a_valid_conversation(
    sizes: list[int], again: bool
) -> None:
    manager = ContextManager(DEFAULT_STRATEGY, "gpt-4o")
    said = [Message("system", "Be brief.")]
    for number, size in enumerate(sizes):
        call = ToolCall(f"c{number}", "read", '{"path": "a.py"}')
        result = Message("tool", f"x = {number}\n" * size, tool_call_id=call.id)
        answer = Message("assistant", f"answer {number}")
        said += [Message("user", f"question {number}"), Message("assistant", None, (call,))]
        said += [result, answer]
    manager.extend(said)
    before, after = manager.compact()
    assert after <= before
    if again:
        assert manager.compact()[1] <= after
    assert list(manager.history) == said
    manager.append(Message("user", "Go on."))
    sent = [message_from_dict(each) for each in manager.request()]
    assert find_violations(sent, "openai") == []
    assert sent[-1].content == "Go on."
