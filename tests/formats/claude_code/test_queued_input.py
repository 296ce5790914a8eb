"""Tests of Claude Code logs with queued prompts and with turns that were taken back."""

from __future__ import annotations

from typing import Any

import pytest
from claude_rows import TIME, Read, Row, boundary, call, ids, result, said, shape, text, user


def queued(operation: str, content: Any = None, **row: Any) -> Row:
    said = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "sessionId": "s"} | said | row


def attached(prompt: Any, **row: Any) -> Row:
    attachment = {"type": "queued_command", "prompt": prompt}
    return {
        "type": "attachment",
        "uuid": next(ids),
        "sessionId": "s",
        "attachment": attachment,
    } | row


def test_a_prompt_that_a_running_turn_took_in_stands_where_the_model_got_it(read: Read) -> None:
    rows = [said("m1", call("c")), queued("enqueue", "stop"), queued("remove", timestamp=TIME)]
    (recording,) = read(*rows, user([result("c")]), said("m2", text("ok")))
    assert [*shape(recording)] == ["assistant:+c", "tool:ok=c", "user:stop", "assistant:ok"]
    assert recording.messages[2].time == 9.0
    assert recording.skipped == {"row of type queue-operation": 1}


def test_a_prompt_that_left_the_queue_otherwise_is_no_message(read: Read) -> None:
    rows = [queued("enqueue", "1"), queued("dequeue"), user("1"), said("m1", text("a"))]
    rows += [queued("enqueue", "2"), queued("popAll"), queued("remove")]
    rows += [queued("enqueue", "3"), queued("remove", "3", reason="cancelled")]
    (recording,) = read(*rows, queued("enqueue", "4"))
    assert [*shape(recording)] == ["user:1", "assistant:a"]
    assert recording.skipped == {"row of type queue-operation": 8}


def test_prompts_leave_the_queue_by_their_text_else_the_oldest_first(read: Read) -> None:
    waiting = [queued("enqueue", name) for name in ("a", "b", "c")]
    rows = [queued("remove", "b", reason="absorbed_mid_turn"), queued("remove"), queued("remove")]
    (recording,) = read(user("hi"), *waiting, *rows)
    assert [*shape(recording)] == ["user:hi", "user:b", "user:a", "user:c"]


@pytest.mark.parametrize(
    "rows",
    [
        [queued("remove"), attached("stop")],
        [attached("stop"), queued("remove")],
        [queued("remove"), user("stop")],
        [user("stop"), queued("remove")],
        [queued("dequeue"), attached("stop")],
        [attached("stop")],
    ],
)
def test_a_prompt_that_several_rows_carry_is_one_message(read: Read, rows: list[Row]) -> None:
    (recording,) = read(said("m1", text("a")), queued("enqueue", "stop"), *rows)
    assert [*shape(recording)] == ["assistant:a", "user:stop"]


def test_the_same_words_after_another_answer_are_another_prompt(read: Read) -> None:
    rows = [queued("enqueue", "go on"), queued("remove"), said("m1", text("a"))]
    (recording,) = read(*rows, user("go on"))
    assert [*shape(recording)] == ["user:go on", "assistant:a", "user:go on"]


def test_a_queued_prompt_with_an_image_is_read_from_its_attachment(read: Read) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A="}}
    rows = [queued("enqueue", "see"), queued("remove"), attached([text("see"), image])]
    (recording,) = read(user("hi"), *rows)
    _, message = recording.messages
    assert isinstance(message.content, tuple)
    assert [part["type"] for part in message.content] == ["text", "image_url"]


def linked(*rows: tuple[str, str | None, Row]) -> list[Row]:
    return [row | {"uuid": uuid, "parentUuid": parent} for uuid, parent, row in rows]


START = (("1", None, user("hi")), ("2", "1", said("m1", text("a"))))


def test_a_turn_that_the_user_took_back_is_left_out_and_counted(read: Read) -> None:
    first = [*START, ("3", "2", user("old")), ("4", "3", said("m2", call("c")))]
    first += [("5", "4", user([result("c")])), ("6", "5", {"type": "progress"})]
    then = [("7", "2", user("new")), ("8", "7", said("m3", text("b")))]
    absorbed = [queued("enqueue", "wait"), queued("remove")]
    (recording,) = read(*linked(*first), *absorbed, *linked(*then))
    assert [*shape(recording)] == ["user:hi", "assistant:a", "user:new", "assistant:b"]
    assert recording.skipped == {
        "row of a turn that was taken back": 5,
        "row of type queue-operation": 1,
    }


def test_a_turn_is_taken_back_across_a_compaction(read: Read) -> None:
    compaction = boundary(trigger="auto") | {"logicalParentUuid": "3"}
    summary = user("In short", isCompactSummary=True)
    rows = [*START, ("3", "2", user("old")), ("4", None, compaction), ("5", "4", summary)]
    (undone,) = read(*linked(*rows, ("6", "5", user("x")), ("7", "2", user("new"))))
    assert [*shape(undone)] == ["user:hi", "assistant:a", "user:new"]
    assert undone.compactions == ()
    (kept,) = read(*linked(*rows, ("6", "5", user("x")), ("7", "5", user("y"))))
    assert [*shape(kept)] == ["user:hi", "assistant:a", "user:old", "user:y"]
    assert len(kept.compactions) == 1


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [
                ("3", "2", said("m2", call("c1"))),
                ("4", "3", said("m2", call("c2"))),
                ("5", "3", user([result("c1")])),
                ("6", "4", user([result("c2")])),
                ("7", "6", said("m3", text("b"))),
            ],
            id="results of parallel calls",
        ),
        pytest.param(
            [("3", "?", user("x")), ("4", "?", user("y"))], id="prompts below a row not there"
        ),
        pytest.param([("3", None, user("x")), ("4", None, user("y"))], id="resumed sessions"),
        pytest.param(
            [("3", "2", user("note", isMeta=True)), ("4", "2", user("y"))],
            id="what the client adds",
        ),
        pytest.param(
            [("3", "2", user("[Request interrupted by user]")), ("4", "2", user("y"))],
            id="an interruption",
        ),
        pytest.param(
            [
                ("3", "2", user("x")),
                ("4", "2", user("y")),
                ("5", "3", said("m2", text("b"))),
                ("6", "4", said("m3", text("c"))),
            ],
            id="two clients at one session",
        ),
        pytest.param([("3", "4", user("x")), ("4", "3", user("y"))], id="rows in a circle"),
    ],
)
def test_rows_that_may_still_count_stay(
    read: Read, rows: list[tuple[str, str | None, Row]]
) -> None:
    (recording,) = read(*linked(*START, *rows))
    assert len(recording.messages) == 2 + len({*map(message_of, rows)})
    assert not recording.skipped


@pytest.mark.parametrize("odd", [7, ["a"], {"a": 1}])
def test_links_that_are_no_text_link_nothing(read: Read, odd: Any) -> None:
    rows = [*linked(*START), user("x", uuid=odd, parentUuid="2"), user("y", parentUuid=odd)]
    (recording,) = read(*rows, said("m2", text("b")), user("z", parentUuid="2", sessionId=odd))
    assert [*shape(recording)][2:] == ["user:x", "user:y", "assistant:b", "user:z"]


def message_of(row: tuple[str, str | None, Row]) -> str:
    """Return the id of the message that a row belongs to."""
    return row[2]["message"].get("id") or row[0]
