"""tau2-bench writes a JSON object of tasks and of simulations, each a chat of an agent with a customer.

The object is ``{timestamp, info, tasks, simulations}``. The system prompt stands only in
``info.environment_info.policy`` (or in a simulation's own ``policy``) and is put before the messages;
the agent's fixed instructions around it are not recorded. Tool definitions are taken where
``environment_info.tool_defs`` holds them, which is seldom. The trials of a task share a cluster, and
so do the runs of other agents on that task of the domain.

- A recording is what the agent's model saw. The simulated customer may have tools of its own (in
  telecom, a phone). The orchestrator sends such a call to the environment and its result back to the
  customer alone; ``is_valid_agent_history_message`` keeps both from the agent, and the tokens that the
  provider billed grow from one request of the agent to the next by its own text and the customer's,
  and by no more. Both are counted as left out, so that every result here answers the assistant.
- The first message is the orchestrator's greeting: the agent sees it as its own, but no model wrote it.
- ``usage`` of an assistant message is the agent's; ``prompt_tokens`` includes what the provider read
  from a cache, which is not told apart. That of a user message is of the simulator's own request and
  stays in ``extra``.
- Call ids may be used again within a conversation. ``raw_data`` says the message again and is read
  for the agent's hidden reasoning alone. ``errors`` holds answers that the agent had to give again;
  they are not in the history, and only the usage of the answer that they led to includes them.
- Voice runs, which hold ``ticks`` and no messages, are counted as left out. ``llm_args`` is never
  read, since people leave keys in it.

``meta`` keeps reward, termination reason and the ground truth (``actions``, ``communicate_info``).

Source: github.com/sierra-research/tau2-bench, result files of 2025 (``data_model/simulation.py``,
``data_model/message.py``, ``orchestrator/orchestrator.py``, ``agent/base.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    iso_time,
    listed,
    text,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]

_SENT = ("role", "content", "tool_calls")
_KEPT = ("cost", "error", "errors", "context_truncation")
_TRUTH = ("actions", "communicate_info")


def sniff(head: Head) -> bool:
    """Whether a file begins with what tau2-bench says of agent and environment."""
    info = within(head.value, "info")
    return isinstance(within(info, "agent_info"), dict) and isinstance(
        within(info, "environment_info"), dict
    )


def read(source: Source) -> Iterator[Recording]:
    """One recording a simulation, called after its task and trial."""
    results = source.value()
    runs = within(results, "simulations")
    if not isinstance(runs, list):
        raise ReadError(source.path, None, "tau2-bench has a list of simulations")
    info = within(results, "info")
    tools = tuple(_tools(source, within(info, "environment_info", "tool_defs")))
    truths = {
        _id(within(task, "id")): within(task, "evaluation_criteria")
        for task in listed(within(results, "tasks"))
    }
    for number, run in enumerate(runs):
        if within(run, "messages") is None and within(run, "ticks") is not None:
            source.skip("simulation that holds ticks of audio and no messages", number)
            continue
        with source.guard(number, "simulation"):
            truth = truths.get(_id(within(run, "task_id")))
            yield _recording(run, source.name, info, truth, tools)


FORMAT = Format("tau2-bench", "tau2-bench results: tasks and simulations", sniff, read)


def _recording(
    run: Any, name: str, info: Any, truth: Any, tools: tuple[dict[str, Any], ...]
) -> Recording:
    run = an_object(run, "a simulation")
    if not isinstance(run.get("messages"), list):
        raise ValueError("a simulation has its messages in a list")
    policy = text(run.get("policy")) or text(within(info, "environment_info", "policy"))
    messages = [Message("system", policy)] if policy else []
    left_out: Counter[str] = Counter()
    for position, row in enumerate(run["messages"]):
        if reason := _hidden(row):
            left_out[reason] += 1
            continue
        try:
            messages.append(_message(row))
        except ValueError as error:
            raise ValueError(f"message {position}: {error}") from None
    domain = text(within(info, "environment_info", "domain_name"))
    task, trial = _id(run.get("task_id")), _id(run.get("trial")) or "0"
    meta = {key: run[key] for key in ("task_id", "trial", "termination_reason") if key in run}
    said = {"domain": domain, "reward": within(run, "reward_info", "reward")}
    said |= {key: within(truth, key) for key in _TRUTH}
    return Recording(
        id=f"{name}/task-{task}/trial-{trial}",
        messages=tuple(messages),
        tools=tools,
        model=text(within(info, "agent_info", "llm")),
        cluster=f"{domain or name}/task-{task}",
        meta=meta | {key: value for key, value in said.items() if value is not None},
        skipped=dict(left_out),
    )


def _hidden(row: Any) -> str | None:
    """Why a message is none that the agent sees; None where it is one."""
    role = within(row, "role")
    if role == "user" and row.get("tool_calls"):
        return "user message that calls the user's own tools"
    if role == "tool" and row.get("requestor") == "user":
        return "result of a tool that the user called"
    return None


def _message(row: Any) -> Message:
    row = an_object(row, "a message")
    role = row.get("role")
    wire = {key: row.get(key) for key in _SENT}
    if role == "tool":
        wire["tool_call_id"] = row.get("id")
    message = Message.from_dict(wire)
    extra = {key: row[key] for key in _KEPT if row.get(key) not in (None, False)}
    if role == "user" and row.get("usage"):
        extra["usage"] = row["usage"]
    message = message.replace(time=iso_time(row.get("timestamp")), extra=extra)
    if role != "assistant":
        return message
    thought = text(within(row, "raw_data", "message", "reasoning_content"))
    return message.replace(
        reasoning=text(row.get("reasoning")) or thought, usage=openai_usage(row.get("usage"))
    )


def _tools(source: Source, signatures: Any) -> Iterator[dict[str, Any]]:
    """Tool definitions from tau2-bench's signatures: ``{name: {name, doc, params, returns}}``."""
    if not isinstance(signatures, dict):
        return
    for number, signature in enumerate(signatures.values()):
        with source.guard(number, "tool definition"):
            name, parameters = signature["name"], signature.get("params") or {}
            if not isinstance(name, str) or not isinstance(parameters, dict):
                raise ValueError("it has a name and its parameters are an object")
            described = {"name": name, "description": text(signature.get("doc")) or ""}
            yield {"type": "function", "function": described | {"parameters": parameters}}


def _id(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) else ""
