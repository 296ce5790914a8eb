"""Read logs of the evaluation framework Inspect AI, here called Inspect.

A log contains one evaluation. Each sample of the evaluation is a conversation.

- A ``.json`` log is one object ``{version, status, eval, plan, results, stats, samples}``. An
  ``.eval`` log is a zip archive with ``header.json`` and one member
  ``samples/<id>_epoch_<n>.json`` per sample. Before the evaluation ends, ``_journal/start.json`` is
  used instead of ``header.json``. The archive also contains summaries, which are not read.
- The conversation is stored under ``messages`` in the sample. It is complete, even if the model
  received only some of the messages.
- ``events`` contains usage, times, tools and compactions (see ``inspect/model_events``). It also
  repeats the messages; these copies are not read. In older logs, the events are under
  ``transcript``.
- Long texts and images may be stored under ``attachments`` and replaced by ``attachment://<hash>``.
  The input of an event may refer to ranges of a message pool (``events_data.messages``, formerly
  ``message_pool``).
- If Inspect inserted a summary into the conversation (``metadata.summary``), it becomes a compaction
  instead of a message.
- All epochs of a sample, in all logs of the same task, have the same cluster. ``meta`` contains the
  scores. If the sample ended early, it also contains the reason.

Inspect's own reader is not used. Importing it loads 1,400 modules and replaces functions of
``zipfile`` for the whole process. The reader also does not support references to a ``message_pool``.

References
----------
github.com/UKGovernmentBEIS/inspect_ai 0.3.41 to 0.3.285, ``src/inspect_ai/log``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.fields import get_in, get_object, get_text
from ctxlab.formats.inspect.messages import Attachments, parse_message
from ctxlab.formats.inspect.model_events import read_model_calls
from ctxlab.formats.io.files import open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.zip_archive import first_member_name, open_zip, read_member
from ctxlab.messages.types import Compaction, Message, Recording

_Sample: TypeAlias = tuple[int, Any, Any]
"""The number of a sample, the ``eval`` object of its log, and the JSON value of the sample."""

_HEADER_NAMES = ("header.json", "_journal/start.json")
_FAILURE_KEYS = {"error": "message", "limit": "type"}
_SAMPLE_NAME = re.compile(r"samples/.+_epoch_\d+\.json")
_CHUNKED_SAMPLE_NAME = re.compile(r"samples/.+_epoch_\d+/sample\.json")


def sniff(head: FileHead) -> bool:
    """Check whether a file is an evaluation log of Inspect.

    A ``.json`` log is recognised by its first keys, an ``.eval`` log by its first archive member.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file is an Inspect log.
    """
    first = first_member_name(head.first_bytes)
    if first is not None:
        return first.startswith((*_HEADER_NAMES, "samples/"))
    spec = get_object(head.value, "eval")
    named = not spec.keys().isdisjoint(("run_id", "task_id", "created"))
    return named and get_text(spec, "task") is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the samples of an Inspect log.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        One recording per sample and epoch, in the order of the log.

    Raises
    ------
    ReadError
        If the log has no list of samples, or if a sample is malformed and ``on_error`` is
        ``"raise"``.
    """
    with open_file(source.path) as file:
        is_zip = first_member_name(file.read(64)) is not None
    for number, spec, sample in _read_eval_log(source) if is_zip else _read_json_log(source):
        with source.handle_errors(number, "sample"):
            yield from _read_sample(number, sample, spec, source)


FORMAT = Format(
    "inspect",
    "Inspect eval logs (.eval, .json)",
    sniff,
    read,
    versions="development versions 0.3.41 to 0.3.135; to 0.3.285 from source",
    not_read=(
        "left out: model calls of scorers, subagents and summaries, contents of failed tool "
        "calls, samples in chunks, audio, video and documents"
    ),
)


def _read_json_log(source: Source) -> Iterator[_Sample]:
    log = source.read_json()
    samples = get_in(log, "samples")
    if not isinstance(samples, list):
        raise ReadError(source.path, None, "expected a list of samples in the log, found none")
    for number, sample in enumerate(samples):
        yield number, get_in(log, "eval"), sample


def _read_eval_log(source: Source) -> Iterator[_Sample]:
    with open_zip(source.path) as archive:
        # An edited log may contain two members with the same name. The later one is read.
        names = list(dict.fromkeys(archive.namelist()))
        header = next((name for name in _HEADER_NAMES if name in names), None)
        spec = None
        with source.handle_errors(1, "header"):
            if header is not None:
                spec = get_in(parse_json(read_member(archive, header)), "eval")
        for _ in filter(_CHUNKED_SAMPLE_NAME.fullmatch, names):
            source.skip("sample in chunks, which Inspect's own reader does not support either")
        for number, name in enumerate(filter(_SAMPLE_NAME.fullmatch, names)):
            with source.handle_errors(number, "sample"):
                yield number, spec, parse_json(read_member(archive, name))


def _read_sample(number: int, sample: Any, spec: Any, source: Source) -> Iterator[Recording]:
    """Yield the recording of a sample, if the sample has messages."""
    rows = get_in(sample, "messages")
    if not isinstance(rows, list):
        raise ValueError(f"expected a list of messages in the sample, got {type(rows).__name__}")
    attachment_texts = sample.get("attachments") or get_in(sample, "transcript", "content")
    attachments = Attachments(attachment_texts, source.skip)
    messages: list[Message] = []
    ids: list[str | None] = []
    summaries: dict[int, str] = {}
    compactions: dict[int, Compaction] = {}
    for position, row in enumerate(rows):
        with source.handle_errors(position, f"sample {number}, message"):
            each = parse_message(row, attachments, source.skip)
            if get_in(row, "metadata", "summary") and each.role == "user":
                summaries[len(messages)] = each.text
                continue
            messages.append(each)
            ids.append(get_text(row, "id"))
    if not messages:
        source.skip("sample without messages", number)
        return
    tools: tuple[dict[str, Any], ...] = ()
    with source.handle_errors(number, "events of sample"):
        calls = read_model_calls(sample, messages, ids, Attachments(attachment_texts), source.skip)
        tools = calls.tools
        for place, (usage, time) in calls.answers.items():
            messages[place] = messages[place].replace(usage=usage, time=time)
        compactions = calls.compactions
    built = CompactionBuilder(messages)
    for place in sorted({*summaries, *compactions}):
        if place in compactions:  # from the input of the model call, which is exact
            built.compactions.append(compactions[place])
        else:
            built.add_summary(place, summaries[place])
    id, task = sample.get("id"), get_text(spec, "task")
    yield Recording(
        id=f"{source.name}/{id}_epoch_{sample.get('epoch', 1)}",
        messages=tuple(messages),
        tools=tools,
        model=get_text(sample, "output", "model") or get_text(spec, "model"),
        compactions=tuple(built.compactions),
        cluster=f"{task or source.name}/{id}",
        meta=_build_meta(sample, task),
    )


def _build_meta(sample: dict[str, Any], task: str | None) -> dict[str, Any]:
    meta: dict[str, Any] = {"task": task} if task else {}
    meta |= {"sample": sample.get("id"), "epoch": sample.get("epoch", 1)}
    scores = sample.get("scores") or {"score": sample.get("score")}
    if isinstance(scores, dict):
        values = {name: get_in(score, "value") for name, score in scores.items()}
        values = {name: value for name, value in values.items() if value is not None}
        meta |= {"scores": values} if values else {}
    said = {key: get_text(sample, key, detail) for key, detail in _FAILURE_KEYS.items()}
    return meta | {key: value for key, value in said.items() if value}
