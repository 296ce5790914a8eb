"""Reader for tau2-bench results: simulated chats of an agent with a customer.

The file is a JSON object ``{timestamp, info, tasks, simulations}``. The domain policy is the only
part of the system prompt that is recorded, in ``info.environment_info.policy`` or in ``policy`` of
a simulation. The policy becomes the system message. Tool definitions are read from
``environment_info.tool_defs``, which is rarely set. All simulations of a task share a cluster,
including those of other agents.

- A recording contains the messages that the agent's model received. The simulated customer may have
  its own tools (a phone in the telecom domain). The agent receives neither the customer's tool
  calls nor their results: ``is_valid_agent_history_message`` in tau2-bench removes them, and the
  billed tokens of the agent's requests confirm this. They are skipped and counted, so that every
  tool result in the recording answers a call of the assistant.
- The first message is a fixed greeting by the orchestrator. It is an assistant message, but no
  model wrote it.
- ``usage`` of an assistant message is the usage of the agent's request. Its ``prompt_tokens``
  include cached tokens, which are not listed separately. ``usage`` of a user message is the usage
  of the customer simulator, and is stored in ``extra``.
- Call ids may repeat within a conversation. ``raw_data`` repeats the message. The reader takes only
  the hidden reasoning of the agent from ``raw_data``. ``errors`` contains answers that the agent had
  to repeat. They are not in ``messages``, but the usage of the final answer includes them.
- Voice simulations, which have ``ticks`` and no messages, are skipped and counted. ``llm_args`` is
  never read, because it may contain API keys.

``meta`` contains the reward, the termination reason and the ground truth (``actions``,
``communicate_info``).

References
----------
github.com/sierra-research/tau2-bench, result files of 2025 (``data_model/simulation.py``,
``data_model/message.py``, ``orchestrator/orchestrator.py``, ``agent/base.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.fields import get_in, get_list, get_text, get_time, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording

_MESSAGE_KEYS = ("role", "content", "tool_calls")
_EXTRA_KEYS = ("cost", "error", "errors", "context_truncation")
_GROUND_TRUTH_KEYS = ("actions", "communicate_info")


def sniff(head: FileHead) -> bool:
    """Check whether a file contains tau2-bench results.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if ``info`` contains ``agent_info`` and ``environment_info``.
    """
    info = get_in(head.value, "info")
    return all(isinstance(get_in(info, f"{key}_info"), dict) for key in ("agent", "environment"))


def read(source: Source) -> Iterator[Recording]:
    """Read one recording for each simulation, named after its task and trial.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The conversation of a simulation.

    Raises
    ------
    ReadError
        If the file has no list under ``simulations``.
    """
    results = source.read_json()
    runs = get_in(results, "simulations")
    if not isinstance(runs, list):
        kind = type(runs).__name__
        raise ReadError(source.path, None, f"expected a list under simulations, got {kind}")
    info = get_in(results, "info")
    tools = tuple(_parse_tools(source, get_in(info, "environment_info", "tool_defs")))
    named = ((_id_text(get_in(task, "id")), task) for task in get_list(results, "tasks"))
    truths = {id: get_in(task, "evaluation_criteria") for id, task in named}
    for number, run in enumerate(runs):
        if get_in(run, "messages") is None and get_in(run, "ticks") is not None:
            source.skip("simulation with audio ticks and no messages", number)
            continue
        with source.handle_errors(number, "simulation"):
            truth = truths.get(_id_text(get_in(run, "task_id")))
            yield replace(_parse_simulation(run, source.name, info, truth), tools=tools)


FORMAT = Format(
    "tau2-bench",
    "tau2-bench results: tasks and simulations",
    sniff,
    read,
    versions="result files of June to November 2025",
    not_read=(
        "not in the file: most of the system prompt, usually also the tool definitions; left "
        "out: tool calls of the customer and their results, voice simulations"
    ),
)


def _parse_simulation(run: Any, name: str, info: Any, ground_truth: Any) -> Recording:
    run = require_object(run, "a simulation")
    if not isinstance(run.get("messages"), list):
        raise ValueError(f"messages must be a list, got {type(run.get('messages')).__name__}")
    policy = get_text(run, "policy") or get_text(info, "environment_info", "policy")
    messages = [Message("system", policy)] if policy else []
    left_out: Counter[str] = Counter()
    for position, row in enumerate(run["messages"]):
        if reason := _hidden_reason(row):
            left_out[reason] += 1
            continue
        try:
            messages.append(_parse_message(row))
        except ValueError as error:
            raise ValueError(f"message {position}: {error}") from None
    domain = get_text(info, "environment_info", "domain_name")
    task, trial = _id_text(run.get("task_id")), _id_text(run.get("trial")) or "0"
    meta = {key: run[key] for key in ("task_id", "trial", "termination_reason") if key in run}
    said = {"domain": domain, "reward": get_in(run, "reward_info", "reward")}
    said |= {key: get_in(ground_truth, key) for key in _GROUND_TRUTH_KEYS}
    return Recording(
        id=f"{name}/task-{task}/trial-{trial}",
        messages=tuple(messages),
        model=get_text(info, "agent_info", "llm"),
        cluster=f"{domain or name}/task-{task}",
        meta=meta | {key: value for key, value in said.items() if value is not None},
        skipped=dict(left_out),
    )


def _hidden_reason(row: Any) -> str | None:
    """Return why a message was not sent to the agent's model, or None if it was sent."""
    role = get_in(row, "role")
    if role == "user" and row.get("tool_calls"):
        return "user message that calls the user's own tools"
    if role == "tool" and row.get("requestor") == "user":
        return "result of a tool that the user called"
    return None


def _parse_message(row: Any) -> Message:
    row = require_object(row, "a message")
    role = row.get("role")
    wire = {key: row.get(key) for key in _MESSAGE_KEYS}
    if role == "tool":
        wire["tool_call_id"] = row.get("id")
    message = message_from_dict(wire)
    extra = {key: row[key] for key in _EXTRA_KEYS if row.get(key) not in (None, False)}
    if role == "user" and row.get("usage"):
        extra["usage"] = row["usage"]
    message = message.replace(time=get_time(row, "timestamp"), extra=extra)
    if role != "assistant":
        return message
    thought = get_text(row, "raw_data", "message", "reasoning_content")
    thought = get_text(row, "reasoning") or thought
    return message.replace(reasoning=thought, usage=openai_usage(row.get("usage")))


def _parse_tools(source: Source, signatures: Any) -> Iterator[dict[str, Any]]:
    """Yield tool definitions from signatures ``{name: {name, doc, params, returns}}``."""
    if not isinstance(signatures, dict):
        return
    for number, signature in enumerate(signatures.values()):
        with source.handle_errors(number, "tool definition"):
            name, parameters = signature["name"], signature.get("params") or {}
            if not isinstance(name, str) or not isinstance(parameters, dict):
                raise ValueError(f"expected a string name and object params, got {signature!r:.80}")
            described = {"name": name, "description": get_text(signature, "doc") or ""}
            yield {"type": "function", "function": described | {"parameters": parameters}}


def _id_text(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) else ""
