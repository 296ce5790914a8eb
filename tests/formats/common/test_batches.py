"""Tests of batch files: requests are joined with their responses by custom_id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording, Usage

ASK = {"role": "user", "content": "Is it late?"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 2}


def request(id: str, text: str = "Is it late?") -> dict[str, Any]:
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": text}]}
    return {"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def response(id: str, text: str = "Yes.") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    body = {"object": "chat.completion", "choices": [{"message": message}], "usage": USAGE}
    return {"custom_id": id, "response": {"status_code": 200, "body": body}, "error": None}


def failed(id: str, code: str = "batch_expired") -> dict[str, Any]:
    return {"custom_id": id, "response": None, "error": {"code": code, "message": "No."}}


def texts(recordings: list[Recording]) -> list[list[str]]:
    return [[message.text for message in recording.messages] for recording in recordings]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., list[Recording]]:
    """Return a function that writes files of rows to a folder and loads the folder."""

    def load_folder(**files: list[Any]) -> list[Recording]:
        for name, rows in files.items():
            content = "".join(f"{json.dumps(row)}\n" for row in rows)
            (tmp_path / f"{name}.jsonl").write_text(content)
        return list(load(tmp_path))

    return load_folder


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_responses_of_another_file_in_another_order_belong_to_their_requests(
    folder: Callable[..., list[Recording]], names: tuple[str, str]
) -> None:
    sent, got = names
    requests = [request("1", "One?"), request("2", "Two?")]
    found = folder(**{sent: requests, got: [response("2", "2."), response("1", "1.")]})
    assert texts(found) == [["One?", "1."], ["Two?", "2."]]
    assert [r.meta["custom_id"] for r in found] == ["1", "2"]
    assert found[0].messages[1].usage == Usage(input=9, output=2)
    assert {r.model for r in found} == {"gpt-5"}
    assert all(r.skipped == {} for r in found)


def test_equal_requests_of_a_batch_are_recordings_of_their_own(
    read: Callable[..., list[Recording]],
) -> None:
    found = read(request("1"), request("2"), response("1", "Yes."), response("2", "No."))
    assert texts(found) == [["Is it late?", "Yes."], ["Is it late?", "No."]]


def test_requests_with_equal_messages_are_one_cluster(read: Callable[..., list[Recording]]) -> None:
    found = read(request("1"), request("2", "Two?"), request("3"), request("2", "Two?"))
    assert [r.cluster for r in found] == ["session/1", None, "session/1"]


def test_a_failed_request_that_was_sent_again_is_read_once_with_its_success(
    folder: Callable[..., list[Recording]],
) -> None:
    found = folder(
        batch_1=[request("1")],
        batch_1_errors=[failed("1")],
        batch_2=[request("1")],
        batch_2_output=[response("1")],
    )
    assert texts(found) == [["Is it late?", "Yes."]]
    assert found[0].skipped == {
        "failed batch request (batch_expired)": 1,
        "request made again": 1,
    }


def test_responses_are_not_guessed_if_different_requests_share_an_id(
    folder: Callable[..., list[Recording]],
) -> None:
    found = folder(a=[request("1", "One?")], b=[request("1", "Two?")], c=[response("1")])
    assert texts(found) == [["One?"], ["Two?"]]
    assert found[1].skipped == {"response whose custom_id names different requests": 1}


def test_a_response_without_its_request_is_counted(read: Callable[..., list[Recording]]) -> None:
    (found,) = read(request("1"), response("1"), response("2"), response("1", "Again."))
    assert found.skipped == {"further response to a request": 1, "response without its request": 1}


def test_a_file_of_responses_alone_says_what_is_missing(write_lines: Callable[..., Path]) -> None:
    with pytest.raises(ReadError, match=r"no openai conversation .*response without its request"):
        list(load(write_lines(response("1"))))


def test_requests_to_other_endpoints_are_counted(read: Callable[..., list[Recording]]) -> None:
    other = {"custom_id": "2", "url": "/v1/embeddings", "body": {"input": "late"}}
    (found,) = read(request("1"), other)
    assert found.skipped == {"batch request without chat messages": 1}


@pytest.mark.parametrize("as_list", [False, True])
def test_message_batches_are_joined_with_their_results(
    folder: Callable[..., list[Recording]], tmp_path: Path, as_list: bool
) -> None:
    sent = [{"custom_id": id, "params": {"system": "Be brief.", "messages": [ASK]}} for id in "ab"]
    message: dict[str, Any] = {"type": "message", "role": "assistant"}
    message["content"] = [{"type": "text", "text": "No."}]
    message["usage"] = {"input_tokens": 3, "output_tokens": 1}
    results = [
        {"custom_id": "b", "result": {"type": "succeeded", "message": message}},
        {"custom_id": "a", "result": {"type": "errored", "error": {"type": "error"}}},
    ]
    found = folder(requests=[{"requests": sent}] if as_list else sent, results=results)
    assert texts(found) == [["Be brief.", "Is it late?"], ["Be brief.", "Is it late?", "No."]]
    assert found[1].messages[2].usage == Usage(input=3, output=1)
    assert {r.format for r in found} == {"anthropic"}
    counts: dict[str, int] = {}
    for each in found:
        counts |= each.skipped
    assert counts == {"failed batch request (errored)": 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"custom_id": "2", "body": {"messages": ["hi"]}}, "a message must be an object, got str"),
        ({"other": 1}, "expected a batch request or response"),
        ("{", "not JSON"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(
    write_lines: Callable[..., Path], row: Any, reason: str
) -> None:
    path = write_lines(request("1"), response("1"), row)
    with pytest.raises(ReadError, match=reason) as caught:
        list(load(path))
    assert caught.value.line == 3
    (found, *_) = load(path, on_error="skip")
    assert found.messages[1].text == "Yes."
