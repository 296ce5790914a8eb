"""Reader for SWE-agent trajectories (``.traj``), one JSON object per run.

The object is ``{trajectory, history, info, environment, …}``. Since version 1.0 it also contains
``replay_config`` (an object, or a string with JSON). ``history`` contains the messages of the
conversation. ``trajectory`` repeats them step by step. Since version 1.0, each step also contains
its whole request (``messages``, ``query``). The messages are built from the trajectory only if
there is no history. SWE-agent repeats a request if its answer was invalid. Steps with invalid
answers are in the trajectory, but not in the history. If there is a history, they are counted as
skipped.

- Up to version 0.7, and in configurations that parse actions from text, observations are user
  messages and there are no tool calls. The recording keeps these roles, because they were sent to
  the model.
- With function calling, ``tool_call_ids`` of a ``tool`` message contains the id of its call.
- Demonstrations (``is_demo``) are conversations about another task that are sent before the task.
  They are skipped and counted.
- SWE-agent can be configured to replace old observations in each request by "Old environment output: (n
  lines omitted)". The history contains the original observations. ``meta["history_processors"]``
  shows the configuration.
- The files contain no tool definitions.
- A history may contain messages of several agents (``agent``). Each agent received only its own
  messages and becomes a separate recording. If the run has ``attempts``, each attempt is read. The
  top-level history and trajectory repeat the best attempt and are not read in this case.

The cluster is the instance named in ``replay_config``, otherwise the file name, which SWE-agent
derives from the instance.

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
    """Check whether a file is a SWE-agent trajectory.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if the first step or message has the keys that SWE-agent writes.
    """
    run = head.value
    attempts = get_in(run, "attempts")
    return _is_run(attempts[0] if isinstance(attempts, list) and attempts else run)


def read(source: Source) -> Iterator[Recording]:
    """Read one recording for each agent of each attempt.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The messages of one agent in one attempt.

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


FORMAT = Format(
    "swe-agent",
    "SWE-agent trajectories (.traj)",
    sniff,
    read,
    versions="six runs from before and after 1.0; up to 1.1 from source",
    not_read=(
        "not in the file: tool definitions, times, usage of single requests, the old "
        "observations that a request shortened; left out: demonstrations, invalid answers"
    ),
)


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
            agents.setdefault(agent, []).append(parse_swe_agent_message(row))
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


def parse_swe_agent_message(row: Any) -> Message:
    """Parse a message of a history.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    Message
        The message. ``thought`` and ``action`` are left out, because the content contains both.

    Raises
    ------
    ValueError
        If the row is not a valid message.
    """
    row = require_object(row, "a message")
    wire = {key: row[key] for key in _MESSAGE_KEYS if key in row}
    ids = row.get("tool_call_ids")
    if row.get("role") == "tool" and isinstance(ids, list) and ids:
        wire["tool_call_id"] = ids[0]
    message = message_from_dict(wire | {"content": normalize_content(row.get("content"))})
    thoughts = [get_text(block, "thinking") for block in get_list(row, "thinking_blocks")]
    return message.replace(reasoning="\n".join(filter(None, thoughts)) or None)


def _rows_from_steps(steps: Any) -> list[Any]:
    """Build the messages of a run without a history from the steps of its trajectory."""
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
