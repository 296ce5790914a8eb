"""Reader for SWE-agent trajectories (``.traj``), one JSON object per run.

The object is ``{trajectory, history, info, environment, …}``, with ``replay_config`` (an object or
JSON text) since version 1.0. ``history`` is what the model saw. ``trajectory`` repeats it step by
step, since version 1.0 with the whole request of each step (``messages``, ``query``), and is read
only if there is no history. Steps that are not in the history, whose answers SWE-agent requested
again, are counted.

- Up to version 0.7, and whenever the agent parses actions from text, observations are user messages
  and there are no tool calls. The roles are kept as recorded, because they are what was sent.
- With function calling, a message of role ``tool`` names its call in ``tool_call_ids``.
- Demonstrations (``is_demo``) are the conversation of another task, sent before the task. They are
  left out and counted.
- "Old environment output: (n lines omitted)" does not appear in a history. If configured, SWE-agent
  puts it into each request for all but the last observations. ``meta["history_processors"]`` shows
  the configuration.
- Tool definitions are not recorded.
- A history may contain several agents (``agent``), each of which saw only its own messages. Each
  agent becomes a recording of its own. If there are ``attempts``, each attempt is read, and the
  fields beside them, which repeat the best attempt, are not.

The cluster is the instance named in ``replay_config``, otherwise the file name, which SWE-agent
takes from the instance.

References
----------
github.com/SWE-agent/SWE-agent, ``sweagent/agent/agents.py``, ``models.py`` and
``history_processors.py``, up to version 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import normalize_content
from ctxlab.formats.fields import (
    first_or_none,
    get_in,
    get_list,
    get_number,
    get_objects,
    get_text,
    parse_json_or_none,
    require_object,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording

_MESSAGE_KEYS = ("role", "tool_calls", "name")
_META_KEYS = ("exit_status", "swe_agent_version", "best_attempt_idx")
_NON_LLM_MODELS = ("replay", "human", "human_thought", "instant_empty_submit")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a run with SWE-agent's steps or messages.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file looks like this format.
    """
    run = head.value
    attempts = get_in(run, "attempts")
    return _is_run(attempts[0] if isinstance(attempts, list) and attempts else run)


def read(source: Source) -> Iterator[Recording]:
    """Read one recording per attempt and agent.

    Parameters
    ----------
    source : Source
        The file. What is left out of it is counted there.

    Yields
    ------
    Recording
        The messages of one agent.

    Raises
    ------
    ReadError
        If the file has neither a history nor a trajectory.
    """
    run = source.read_json()
    attempts = get_in(run, "attempts")
    if not isinstance(attempts, list) or not attempts:
        if not any(isinstance(get_in(run, key), list) for key in ("history", "trajectory")):
            raise ReadError(source.path, None, "expected a list under history or trajectory")
        yield from _read_agents(run, source.name, source)
        return
    for place, attempt in enumerate(attempts):
        yield from _read_agents(attempt, f"{source.name}/attempt-{place}", source)


FORMAT = Format("swe-agent", "SWE-agent trajectories (.traj)", sniff, read)


def _is_run(run: Any) -> bool:
    step, said = first_or_none(get_in(run, "trajectory")), first_or_none(get_in(run, "history"))
    if isinstance(step, dict) and {"action", "observation", "thought"} <= step.keys():
        return True
    return isinstance(said, dict) and {"role", "content", "agent"} <= said.keys()


def _read_agents(run: Any, name: str, source: Source) -> Iterator[Recording]:
    rows = get_in(run, "history")
    if not isinstance(rows, list) or not rows:
        rows = _rows_from_steps(get_in(run, "trajectory"))
    agents: dict[str, list[Message]] = {}
    for place, row in enumerate(rows):
        with source.handle_errors(place, "message"):
            if get_in(row, "is_demo") is True:
                source.skip("message of a demonstration")
                continue
            agent = get_text(row, "agent") or next(iter(agents), "")
            agents.setdefault(agent, []).append(_parse_message(row))
    answers = sum(m.role == "assistant" for messages in agents.values() for m in messages)
    steps = get_in(run, "trajectory")
    for _ in range(len(steps) - answers if isinstance(steps, list) else 0):
        source.skip("step that is not in the history")
    config = get_in(run, "replay_config")
    config = parse_json_or_none(config) if isinstance(config, str) else config
    model = get_text(config, "agent", "model", "name")
    for agent, messages in agents.items():
        yield Recording(
            name if messages is next(iter(agents.values())) else f"{name}/{agent}",
            tuple(messages),
            model=None if model in _NON_LLM_MODELS else model,
            cluster=get_text(config, "problem_statement", "id") or source.name.rpartition("/")[2],
            meta=_build_meta(get_in(run, "info"), config),
        )


def _parse_message(row: Any) -> Message:
    row = require_object(row, "a message")
    wire = {key: row[key] for key in _MESSAGE_KEYS if key in row}
    ids = row.get("tool_call_ids")
    if row.get("role") == "tool" and isinstance(ids, list) and ids:
        wire["tool_call_id"] = ids[0]
    message = message_from_dict(wire | {"content": normalize_content(row.get("content"))})
    thoughts = [get_text(block, "thinking") for block in get_list(row, "thinking_blocks")]
    return message.replace(reasoning="\n".join(filter(None, thoughts)) or None)


def _rows_from_steps(steps: Any) -> list[Any]:
    """Return the messages of a run without a history: the first request, then the steps."""
    if not isinstance(steps, list) or not steps:
        return []
    sent = get_list(get_in(steps[0], "query") or get_in(steps[0], "messages"))
    rows = list(takewhile(lambda row: get_in(row, "role") != "assistant", sent))
    for step in steps:
        rows.append({"role": "assistant", "content": get_in(step, "response")})
        if get_text(step, "observation"):
            rows.append({"role": "user", "content": step["observation"]})
    return rows


def _build_meta(info: Any, config: Any) -> dict[str, Any]:
    meta = {key: get_in(info, key) for key in _META_KEYS}
    stats = get_in(info, "model_stats")
    if isinstance(stats, dict):
        meta["model_stats"] = {key: n for key, n in stats.items() if get_number(n) is not None}
    agent = get_in(config, "agent")
    listed = get_in(agent, "history_processors")
    listed = listed if isinstance(listed, list) else [get_in(agent, "history_processor")]
    own = (each for each in get_objects(listed) if each.get("type") != "default")
    keys = ("type", "n", "polling")
    meta["history_processors"] = [{key: each[key] for key in keys if key in each} for each in own]
    return {key: value for key, value in meta.items() if value not in (None, [])}
