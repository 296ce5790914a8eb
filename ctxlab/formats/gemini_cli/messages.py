"""Convert the rows of a Gemini CLI session to messages.

- If an answer of the model has no text and no thoughts, Gemini CLI adds its tool calls to the
  previous ``gemini`` row. The id of a call contains the time at which the call was made, and
  ``timestamp`` is the time at which it finished. If a call was made after all earlier calls had
  finished, it belongs to a separate answer. The usage of this answer is not recorded.
- If the previous row is a notice of Gemini CLI (``info``, ``warning`` or ``error``), the tool calls
  are written to a new ``gemini`` row without other content. They belong to the answer before the
  notice. The notices are skipped and counted.
- In the recorded usage, ``input`` includes ``cached``. ``output`` does not include ``thoughts``,
  which are billed as output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, make_call, text_part
from ctxlab.formats.fields import get_count, get_in, get_list, get_text, get_time
from ctxlab.messages.types import ContentPart, Message, Usage

_Row: TypeAlias = dict[str, Any]
_CALL_TIME = re.compile(r"-(\d{13})-")


@dataclass
class ChatBuilder:
    """Builder that converts the rows of one session to messages."""

    skip: SkipCallback
    "called with a description of each skipped row or content part"
    messages: list[Message] = field(default_factory=list, init=False)
    "messages built from the rows so far"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    _answered_ids: set[str] = field(default_factory=set, init=False)

    def add(self, row: _Row) -> None:
        """Add the next row of the session.

        Parameters
        ----------
        row : dict
            The JSON object of a logged message.

        Raises
        ------
        ValueError
            If the row is malformed.
        """
        kind = row.get("type")
        if kind == "user":
            self._add_user_row(row)
        elif kind == "gemini":
            self._add_gemini_row(row)
        else:
            self.skip(f"message of type {kind}")

    def _add_user_row(self, row: _Row) -> None:
        sent = to_parts(row.get("content"))
        time = get_time(row, "timestamp")
        for part in sent:
            if not isinstance(response := part.get("functionResponse"), dict):
                continue
            id, name = get_text(response, "id"), get_text(response, "name")
            if id is None:
                self.skip("result without a call")
            elif id not in self._answered_ids:  # otherwise the result was read with its call
                self._answered_ids.add(id)
                said = _result_content(part, self.skip)
                self.messages.append(Message("tool", said, tool_call_id=id, name=name, time=time))
        content = parse_content(sent, self.skip)
        if content:
            self.messages.append(Message("user", content, time=time))
        elif not any("functionResponse" in part for part in sent):
            self.skip("message without content")

    def _add_gemini_row(self, row: _Row) -> None:
        sent = to_parts(row.get("content"))
        calls, content = _collect_calls(row, sent), None
        if any("functionCall" not in part for part in sent):
            content = parse_content(sent, self.skip) or None
        if not (content or calls):
            self.skip("answer without content")
            return
        thoughts = _reasoning_texts(row.get("thoughts")) + part_texts(sent, thought=True)
        reasoning, time = "\n".join(thoughts) or None, get_time(row, "timestamp")
        usage = _parse_usage(row.get("tokens"))
        answer = Message("assistant", content, reasoning=reasoning, usage=usage, time=time)
        new: list[Message] = []
        for batch in _group_calls(calls):
            made = [make_call(each.get("id"), each.get("name"), each.get("args")) for each in batch]
            results = [self._parse_result(call) for call in batch if call.get("result")]
            new += answer.replace(tool_calls=tuple(made)), *results
            answer = Message("assistant")
        self.messages += new
        self._answered_ids.update(each.tool_call_id or "" for each in new if each.role == "tool")
        if model := get_text(row, "model"):
            self.models[model] += 1

    def _parse_result(self, call: _Row) -> Message:
        said, id = _result_content(call["result"], self.skip), str(call.get("id") or "")
        name, time = get_text(call, "name"), get_time(call, "timestamp")
        extra = {"is_error": True} if call.get("status") == "error" else {}
        return Message("tool", said, tool_call_id=id, name=name, time=time, extra=extra)


def join_split_calls(rows: Sequence[_Row | None]) -> list[_Row | None]:
    """Merge each row that contains only tool calls into the row of the answer that made them.

    Gemini CLI writes such a row if it shows a notice between the answer and its calls.

    Parameters
    ----------
    rows : sequence of dict or None
        The rows of a session. None: a row that was removed.

    Returns
    -------
    list of dict or None
        The rows in the same order. A row that was merged into another row is replaced by None.
    """
    whole = list(rows)
    lone: int | None = None
    for index, row in enumerate(rows):
        kind = row.get("type") if row else None
        if row is None or kind not in ("user", "gemini"):
            continue
        answer = whole[lone] if lone is not None else None
        if kind == "gemini" and answer and lone is not None and _has_only_calls(row):
            whole[lone], whole[index], lone = answer | {"toolCalls": row["toolCalls"]}, None, None
        else:
            lone = index if kind == "gemini" and not row.get("toolCalls") else None
    return whole


def _has_only_calls(row: _Row) -> bool:
    said = row.get("content") or row.get("thoughts") or _parse_usage(row.get("tokens"))
    return bool(row.get("toolCalls")) and not said


def _collect_calls(row: _Row, sent: list[_Row]) -> list[_Row]:
    """Return all tool calls of an answer, from its content and ``toolCalls``, without duplicates."""
    calls = get_list(row, "toolCalls")
    if not all(isinstance(call, dict) for call in calls):
        raise ValueError(f"toolCalls must be a list of objects, got {calls!r:.80}")
    known = {get_text(call, "id") for call in calls} | ({None} if calls else set())
    alone = [part["functionCall"] for part in sent if isinstance(part.get("functionCall"), dict)]
    return [*(call for call in alone if get_text(call, "id") not in known), *calls]


def _group_calls(calls: list[_Row]) -> list[list[_Row]]:
    """Group calls by the reply of the model that made them.

    A call that was made after all earlier calls had finished is part of a later reply.
    """
    batches: list[list[_Row]] = [[]]
    done: float | None = None
    for call in calls:
        came = _CALL_TIME.search(get_text(call, "id") or "")
        if came and done is not None and int(came[1]) / 1000 > done:
            batches.append([])
            done = None
        batches[-1].append(call)
        ended = get_time(call, "timestamp")
        done = max(filter(None, (done, ended)), default=None)
    return batches


def _reasoning_texts(value: Any) -> list[str]:
    said = ((get_in(each, "subject"), get_in(each, "description")) for each in get_list(value))
    return [": ".join(filter(get_text, pair)) for pair in said if any(map(get_text, pair))]


def _parse_usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    tokens = {key: get_count(count) for key, count in value.items()}
    cached, thoughts = tokens.get("cached", 0), tokens.get("thoughts", 0)
    usage = Usage(
        input=max(tokens.get("input", 0) - cached, 0) + tokens.get("tool", 0),
        cache_read=cached,
        output=tokens.get("output", 0) + thoughts,
        reasoning=thoughts,
    )
    return usage if usage != Usage() else None


def to_parts(value: Any) -> list[dict[str, Any]]:
    """Convert logged content to a list of content parts.

    Parameters
    ----------
    value : Any
        A string, a part, a list of strings and parts, or None.

    Returns
    -------
    list of dict
        The parts. A string becomes the part ``{"text": string}``.

    Raises
    ------
    ValueError
        If ``value`` or an element of the list has another type.
    """
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    if all(isinstance(part, dict) for part in parts):
        return parts
    raise ValueError(f"content must be a string, an object or a list of these, got {value!r:.80}")


def part_texts(parts: Iterable[dict[str, Any]], *, thought: bool = False) -> list[str]:
    """Return the non-empty strings of text parts or of thought parts.

    Parameters
    ----------
    parts : iterable of dict
        The content parts.
    thought : bool, default False
        If True, return the strings of thoughts. If False, return the strings of all other parts.

    Returns
    -------
    list of str
        One string per part that contains text.
    """
    said = (part for part in parts if bool(part.get("thought")) is thought)
    return [value for part in said if (value := get_text(part, "text"))]


def parse_content(parts: Iterable[dict[str, Any]], skip: SkipCallback) -> Content | None:
    """Convert text and image parts to the content of a message.

    Thoughts, tool calls and tool results are left out, because other functions read them.

    Parameters
    ----------
    parts : iterable of dict
        The logged content parts.
    skip : Callable
        Called with a description of each part that has an unknown type.

    Returns
    -------
    str, tuple of dict, or None
        One string if all converted parts are text parts, otherwise the text and image parts. None
        if there are none.
    """
    said: list[ContentPart] = []
    for part in parts:
        if part.get("thought") or "functionCall" in part or "functionResponse" in part:
            continue
        if isinstance(part.get("text"), str):
            said.append(text_part(part["text"]))
        elif url := _image_url(part.get("inlineData")):
            said.append(image_part(url))
        else:
            skip(f"part of type {', '.join(part)}")
    return join_parts(said)


def _result_content(value: Any, skip: SkipCallback) -> Content:
    """Return the content of a tool result, as the model received it.

    The text of a ``functionResponse`` is in ``response.output`` or ``response.error``. Its images
    are in its ``parts``, or are separate parts of ``value``.
    """
    said: list[dict[str, Any]] = []
    for part in to_parts(value):
        response = part.get("functionResponse")
        if isinstance(response, dict):
            text = _response_text(response.get("response"))
            said += {"text": text}, *to_parts(response.get("parts"))
        else:
            said.append(part)
    return parse_content(said, skip) or ""


def result_text(value: Any) -> str:
    """Return a tool result as one string, so that results can be compared.

    Parameters
    ----------
    value : Any
        The logged result.

    Returns
    -------
    str
        The text of the result. If it contains images, its content parts as JSON.

    Raises
    ------
    ValueError
        If ``value`` is not valid content.
    """
    said = _result_content(value, ignore_skip)
    return said if isinstance(said, str) else dump_json(said)


def _response_text(value: Any) -> str:
    for key in ("output", "error"):
        said = get_in(value, key)
        if isinstance(said, str):
            return said
    return "" if value is None else dump_json(value)


def _image_url(data: Any) -> str | None:
    media, encoded = get_text(data, "mimeType"), get_text(data, "data")
    if media and encoded and media.startswith("image/"):
        return f"data:{media};base64,{encoded}"
    return None
