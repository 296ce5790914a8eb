"""Tests of what an explorer answers, without a browser."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from running import a_recording

import ctxlab
from ctxlab.errors import UnknownName
from ctxlab.evaluation.explorer.answers import ExplorerAnswers, Selection
from ctxlab.messages.types import Message, Recording

STRATEGIES = [
    "full",
    "sliding_window | panic",
    "rolling_summary | panic",
    "tool_stubs(keep=3) | panic",
]


@cache
def bundled() -> tuple[ctxlab.Recording, ...]:
    return tuple(ctxlab.load("bundled:coding-agent"))[:3]


@cache
def answers() -> ExplorerAnswers:
    return ExplorerAnswers(ctxlab.evaluate(bundled(), STRATEGIES, [8000, 16000]), bundled())


def ask(what: str, **details: Any) -> dict[str, Any]:
    answer = answers().answer({"ask": what, "id": "1", **details})
    json.dumps(answer, allow_nan=False)
    return answer


def unfold(rows: list[dict[str, Any]], opened: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per message, as the front end does."""
    found = []
    for row in rows:
        if row["form"] != "verbatim":
            found.append(row)
            continue
        for i, position in enumerate(range(row["first"], row["last"] + 1)):
            about = opened["messages"][position]
            found.append({**about, "first": position, "last": position, "index": row["index"] + i})
    return found


def row_of(strategy: str, limit: float = 8000) -> int:
    return answers().choose(strategy=strategy, limit=limit).row


def test_the_document_is_json_and_names_the_recordings_with_the_most_losses_first() -> None:
    document = json.loads(json.dumps(answers().document(), allow_nan=False))
    missed = answers().results.runs.query(
        "strategy == 'rolling_summary() | panic()' and limit == 16000"
    )
    assert document["recordingCount"] == 3
    assert len(document["rows"]) == 2 * len(STRATEGIES)
    assert {each["name"] for each in document["recordings"]} == set(missed["recording"])


def test_the_first_selection_is_the_recording_with_the_most_losses() -> None:
    chosen = answers().choose()
    assert chosen.recording == answers().board.recordings_by_loss[0]
    assert chosen.row == answers().board.reference


def test_unknown_names_are_errors_that_name_the_known_ones() -> None:
    for wrong in ({"recording": "x"}, {"strategy": "x"}, {"against": "x"}, {"limit": 5}):
        with pytest.raises(UnknownName):
            answers().choose(**wrong)  # type: ignore[arg-type]


def test_rows_of_a_request_stand_for_each_message_once_and_add_up() -> None:
    for strategy in STRATEGIES:
        selection = Selection(bundled()[0].id, row_of(strategy))
        replay = answers().replay(selection)
        for request in (0, 40, 90):
            opened = ask("open", recording=selection.recording, row=selection.row)
            rows = unfold(ask("sent", **selection._asdict(), request=request)["rows"], opened)
            spans = [range(r["first"], r["last"] + 1) for r in rows if r["first"] is not None]
            positions = sorted(position for span in spans for position in span)
            assert positions == list(range(replay.prepared.request_positions[request]))
            sent = [row for row in rows if row["index"] >= 0]
            assert [row["index"] for row in sent] == list(range(len(sent)))
            total = sum(row["tokens"] for row in sent) + replay.trace.budget.fixed
            assert total == replay.trace.tokens[request]


def test_differences_are_those_of_the_replays() -> None:
    name, a, b = (
        bundled()[0].id,
        row_of("rolling_summary | panic"),
        row_of("sliding_window | panic"),
    )
    found = ask("sent", recording=name, row=a, against=b, request=60)["differences"]
    replays = [answers().replay(Selection(name, row)) for row in (a, b)]
    assert len(found) == len(replays[0].diff(60, replays[1]))


def test_each_loss_leads_to_the_line_that_said_it() -> None:
    name, row = bundled()[0].id, row_of("rolling_summary | panic")
    opened = ask("open", recording=name, row=row)
    losses = answers().replay(Selection(name, row)).losses
    ranked = sorted((n for n in opened["maps"][0]["needs"] if n["rank"]), key=lambda n: n["rank"])
    assert [need["entity"] for need in ranked] == losses["entity"].head(3).tolist()
    for need in ranked:
        for position in (need["last"], need["reply"]):
            shown = ask("message", recording=name, position=position,
                        entity=need["entity"], kind=need["kind"])  # fmt: skip
            assert [p["text"] for p in shown["parts"] if p["kind"] == "mention"] == [need["entity"]]


def test_a_long_message_is_cut_around_the_mention() -> None:
    text = "\n".join(
        [*(f"line {i}" for i in range(5000)), "see src/engine_room.py", *["end"] * 9000]
    )
    recording = Recording("long", (Message("user", text), *a_recording(1).messages))
    made = ExplorerAnswers(ctxlab.evaluate([recording], "full", 90_000, "gpt-4o"), [recording])
    asked = {"ask": "message", "id": 1, "recording": "long", "position": 0}
    parts = made.answer({**asked, "entity": "src/engine_room.py", "kind": "path"})["parts"]
    shown = [each["text"] for each in parts if each["kind"] != "note"]
    notes = [int(each["text"].strip("\n[").split()[0].replace(",", "")) for each in parts
             if each["kind"] == "note"]  # fmt: skip
    assert "".join(shown) in text
    assert len("".join(shown)) + sum(notes) == len(text)
    assert [e["text"] for e in parts if e["kind"] in ("line", "mention")] == [
        "see ", "src/engine_room.py",
    ]  # fmt: skip


def test_a_strategy_of_ones_own_is_shown_if_it_was_passed() -> None:
    def last_ten(messages: list[Message]) -> list[Message]:
        return messages[-10:]

    explorer = ctxlab.explore(bundled()[:1], ["full", last_ten], 8000)
    document = explorer.document
    row = next(each["id"] for each in document["rows"] if "last_ten" in each["strategy"])
    explorer.selection = {**explorer.selection, "row": row}
    assert "last_ten" in repr(explorer.replay)
    other = explorer.replay.prepared.recording.id
    results = ctxlab.evaluate(bundled()[:1], ["full", last_ten], 8000)
    asked = {"ask": "open", "id": 1, "recording": other, "row": row}
    assert "nothing is imported" in ExplorerAnswers(results, bundled()).answer(asked)["error"]


def test_the_sentence_about_far_needs_is_that_of_the_leaderboard() -> None:
    board = answers().board.frame
    for row in range(len(board)):
        opened = ask("open", recording=bundled()[0].id, row=row)
        said = opened["maps"][0]["summary"]
        heads = [column["label"] for column in answers().document()["columns"]]
        shown = dict(zip(heads, opened["figures"][0]["texts"], strict=True))
        assert f"{shown[next(h for h in heads if h.startswith('held'))]} held" in said


def test_whatever_happens_the_view_gets_an_answer_in_utf_8() -> None:
    packer = pytest.importorskip("jupyter_client.session").json_packer
    messages = (Message("user", "lone \ud800"), *a_recording(1).messages)
    explorer = ctxlab.explore([Recording("odd", messages)], "full", 90_000, model="gpt-4o")
    sent: list[bytes] = []
    explorer.send = lambda answer: sent.append(packer(answer))
    for question in ({"ask": "message", "recording": "odd", "position": 0}, {"ask": "dance"}):
        explorer._reply(None, {"id": "1", **question}, None)
    assert "lone" in sent[0].decode()
    assert "KeyError" in json.loads(sent[1])["error"]


def test_pairs_without_cost_or_far_needs_are_described() -> None:
    plain = ctxlab.evaluate(bundled()[:1], ["full", "sliding_window()"], 8000, metrics=["recall"])
    said = ExplorerAnswers(plain).answer({"ask": "pair", "id": 1, "a": 0, "b": 1})["text"]
    assert "the cost was not measured" in said
    short = [Recording(f"r{i}", a_recording(1).messages[:4]) for i in range(6)]
    none = ctxlab.evaluate(short, ["full", "sliding_window()"], 90_000, "gpt-4o")
    said = ExplorerAnswers(none).answer({"ask": "pair", "id": 1, "a": 0, "b": 1})["text"]
    assert "the recordings have no far needs" in said
    assert "fewer than" not in said
