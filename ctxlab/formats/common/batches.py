"""Read the files of batch APIs: a file with requests, and files with their responses.

OpenAI writes requests ``{"custom_id", "method", "url", "body"}`` and responses ``{"custom_id",
"response": {"status_code", "body"}, "error"}``. Anthropic has requests ``{"custom_id", "params"}``,
which may be the list ``requests`` of one object, and responses ``{"custom_id", "result": {"type",
"message"}}``. Mistral, Groq and Azure use OpenAI's form.

The batch files of a folder are read together. Responses are in any order and belong to the request
with the same ``custom_id``. Each request becomes one recording with its response as the last
message. The requests are not joined into conversations, unlike those of a request log: all requests of
a batch are sent before the first response arrives, so that none of them continues another one.

- Requests with equal messages are repeated trials of one task, and form a cluster.
- If a request occurs again, for example in a second batch for failed requests, it is read once. Its
  first successful response is used.
- If different requests have the same ``custom_id``, their responses cannot be assigned. The requests
  are then read without responses, which are skipped and counted.
- Failed and further responses, responses without their request, and requests to endpoints without
  ``messages`` are skipped and counted.

The files are read twice, first the responses and then the requests, so that only the responses are
kept in memory.

References
----------
platform.openai.com, "Batch API" (``BatchRequestInput``, ``BatchRequestOutput``); docs.claude.com,
"Batch processing" and the types ``MessageBatchIndividualResponse`` of its SDK; both as of 2025. The
shapes are taken from this documentation, not from real files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

from msgspec.structs import replace

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import Location, Source
from ctxlab.formats.common import request_log
from ctxlab.formats.fields import get_count, get_in, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording

_Json: TypeAlias = dict[str, Any]

_REQUEST_KEYS = ("body", "params")
_ROW_KEYS = frozenset({*_REQUEST_KEYS, "response", "result", "error"})
_RESULT_TYPES = ("succeeded", "errored", "canceled", "expired")
_FIRST_ERROR_STATUS = 400
_MAX_CODE_LENGTH = 50


def group_key(head: FileHead) -> str | None:
    """Return the same key for all batch files, so that those of a folder are read together.

    Parameters
    ----------
    head : FileHead
        The beginning of a file.

    Returns
    -------
    str or None
        ``"batch"``, or None if the file is not a batch file.
    """
    return "batch" if next(batch_rows(head), None) is not None else None


def batch_rows(head: FileHead) -> Iterator[_Json]:
    """Yield the requests and responses of a batch at the beginning of a file.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Yields
    ------
    dict
        A row with a ``custom_id`` and a request or response.
    """
    for value in head.rows:
        yield from (row for row in _list_rows(value) if _is_batch_row(row))


def batch_requests(head: FileHead) -> Iterator[request_log.RequestBody]:
    """Yield the request bodies of a batch at the beginning of a file.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Yields
    ------
    RequestBody
        A request body with messages.
    """
    for row in batch_rows(head):
        if body := _parse_row(row):
            yield body


def is_message_result(row: _Json) -> bool:
    """Check whether a row of a batch file is a result of Anthropic's batch API.

    Parameters
    ----------
    row : dict
        A row of a batch file.

    Returns
    -------
    bool
        True if the row has a result of a known type.
    """
    return get_text(row, "result", "type") in _RESULT_TYPES


def is_completion_result(row: _Json) -> bool:
    """Check whether a row of a batch file is a response of OpenAI's batch API for chat requests.

    Parameters
    ----------
    row : dict
        A row of a batch file.

    Returns
    -------
    bool
        True if the row has a response with choices, or says that the request failed.
    """
    response = row.get("response")
    if response is None:
        return get_text(row, "error", "code") is not None
    failed = get_count(response, "status_code") >= _FIRST_ERROR_STATUS
    return failed or isinstance(get_in(response, "body", "choices"), list)


def find_response(row: _Json) -> Any:
    """Return the response of the model in a row of a batch file.

    Parameters
    ----------
    row : dict
        A row of a batch file.

    Returns
    -------
    Any
        The response as the API returns it. None if the row is a request or if the request failed.
    """
    result, response = row.get("result"), row.get("response")
    if get_text(result, "type") == "succeeded":
        return get_in(result, "message")
    failed = row.get("error") or get_count(response, "status_code") >= _FIRST_ERROR_STATUS
    return None if failed else get_in(response, "body")


def read_log(source: Source, dialect: request_log.ApiDialect) -> Iterator[Recording]:
    """Read the conversations of a request log, or the requests of a batch.

    Parameters
    ----------
    source : Source
        The file to read. For a batch, ``other_paths`` contains its other files.
    dialect : ApiDialect
        The parsers for the API of the file.

    Returns
    -------
    Iterator of Recording
        One recording per conversation or per request of the batch.
    """
    if source.other_paths or group_key(FileHead.from_file(source.path)):
        return _read_batch(source, dialect)
    return request_log.read_request_log(source, dialect)


@dataclass
class _BatchIndex:
    """The responses of a batch, and the requests that they may belong to."""

    answers: dict[str, Message] = field(default_factory=dict)
    "``custom_id`` → answer of the model"
    digests: dict[str, bytes | None] = field(default_factory=dict)
    "``custom_id`` → digest of its request; None if different requests have this id"
    trials: dict[bytes, list[str]] = field(default_factory=dict)
    "digest of the messages of requests → ids of these requests"

    def add_request(self, id: str, body: Any) -> None:
        """Add a request to the index."""
        digest = _digest(body)
        self.digests[id] = digest if self.digests.get(id, digest) == digest else None
        ids = self.trials.setdefault(_digest(get_in(body, "messages")), [])
        if id not in ids[-1:]:
            ids.append(id)

    def find_cluster(self, body: Any) -> str | None:
        """Return the id of the first request with the same messages, if there are several."""
        ids = self.trials.get(_digest(get_in(body, "messages")), [])
        return ids[0] if any(id != ids[0] for id in ids) else None


def _read_batch(source: Source, dialect: request_log.ApiDialect) -> Iterator[Recording]:
    index = _BatchIndex()
    for path in (source.path, *source.other_paths):
        file = Source(path, source.name, source.on_error)
        _index_file(file, index, dialect)
        _move_skipped(file, source)
    read: set[str] = set()
    for path in (source.path, *source.other_paths):
        file = Source(path, source.name, source.on_error)
        for where, row in _read_rows(file):
            id = _request_id(row)
            if id is None:
                if not _is_batch_row(row):
                    file.report_error("expected a batch request or response", *where)
            elif id in read and index.digests.get(id):
                file.skip("request made again")
            elif body := _parse_row(row):
                read.add(id)
                request = request_log.parse_request(body, file, where, dialect)
                if index.digests.get(id):
                    request = request._replace(answer=index.answers.pop(id, None))
                made = request_log.build_recording(f"{source.name}/{id}", body, request)
                first = index.find_cluster(body.fields)
                yield replace(made, cluster=f"{source.name}/{first}" if first else None)
            else:
                file.skip("batch request without chat messages")
        _move_skipped(file, source)
    for id in index.answers:
        unclear = id in index.digests and index.digests[id] is None
        why = "whose custom_id names different requests" if unclear else "without its request"
        source.skip(f"response {why}")


def _index_file(file: Source, index: _BatchIndex, dialect: request_log.ApiDialect) -> None:
    """Add the requests and responses of a file to the index.

    Malformed rows are ignored here, because they are reported when the requests are read.
    """
    for where, row in _read_rows(Source(file.path, file.name, "skip")):
        id = _request_id(row)
        if id is not None:
            index.add_request(id, _find_request(row))
        elif _is_batch_row(row):
            with file.handle_errors(*where):
                _add_response(row, file, index, dialect)


def _add_response(
    row: _Json, file: Source, index: _BatchIndex, dialect: request_log.ApiDialect
) -> None:
    response, id = find_response(row), row["custom_id"]
    if response is None:
        codes = [get_text(row, "result", "type"), get_text(row, "error", "code")]
        status = get_count(row, "response", "status_code")
        code = next(filter(None, codes), None) or (str(status) if status else "unknown")
        file.skip(f"failed batch request ({code[:_MAX_CODE_LENGTH]})")
    elif id in index.answers:
        file.skip("further response to a request")
    elif (answer := dialect.parse_response(response, file.skip)) is not None:
        index.answers[id] = answer


def _move_skipped(file: Source, source: Source) -> None:
    for reason, count in file.pop_skipped().items():
        source.skip(reason, count=count)


def _read_rows(file: Source) -> Iterator[tuple[Location, Any]]:
    for where, value in file.read_json_values():
        for index, row in enumerate(_list_rows(value)):
            yield where or (index, "request"), row


def _list_rows(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    listed = get_in(value, "requests")
    return listed if isinstance(listed, list) and any(map(_is_batch_row, listed)) else [value]


def _is_batch_row(row: Any) -> bool:
    return get_text(row, "custom_id") is not None and not _ROW_KEYS.isdisjoint(row)


def _digest(value: Any) -> bytes:
    return sha256(dump_json(value).encode("utf-8", "replace")).digest()


def _request_id(row: Any) -> str | None:
    """Return the ``custom_id`` of a request. None if the row is not a request."""
    found = _is_batch_row(row) and _find_request(row) is not None
    return get_text(row, "custom_id") if found else None


def _find_request(row: _Json) -> Any:
    return next((row[key] for key in _REQUEST_KEYS if isinstance(row.get(key), dict)), None)


def _parse_row(row: _Json) -> request_log.RequestBody | None:
    body = _find_request(row)
    found = isinstance(get_in(body, "messages"), list)
    return request_log.RequestBody(body, None, row) if found else None
