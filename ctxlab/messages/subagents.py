"""Combine the recording of an agent with the recordings of its subagents.

An agent starts a subagent with a tool call. The subagent works in a context of its own, and the agent
sees only the result of the call. The functions of this module build the recordings of two other agents
from the same messages: one that does the work in its own context, and one whose subagents begin with a
copy of its context. In both, the prompt of the subagent becomes the end of the message that started it,
as the plan of the agent, because the tool call has no place there.

Recordings of subagents have the id of the other recording as ``meta["parent"]``, and the id of the tool
call as ``meta["call_id"]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, Recording, ToolCall

SUBAGENT = "subagent"
"""Key of ``Message.extra`` with the id of the recording of a subagent that a message comes from."""


def find_subagents(recordings: Iterable[Recording]) -> dict[str, list[Recording]]:
    """Find the recordings of subagents whose tool call is in another one of the recordings.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings of agents and of their subagents.

    Returns
    -------
    dict of str to list of Recording
        Id of the recording that started subagents → recordings of these subagents, in the order of the
        tool calls.

    Examples
    --------
    >>> call = Message("assistant", "I delegate.", (ToolCall("c", "task"),))
    >>> main = Recording("a", (Message("user", "Go"), call, Message("tool", "Done", (), "c")))
    >>> side = Recording("b", (Message("user", "Find it"),), meta={"parent": "a", "call_id": "c"})
    >>> find_subagents([side, main])
    {'a': [<Recording b: 1 message, 0 requests>]}
    """
    known = {recording.id: recording for recording in recordings}
    found: dict[str, list[tuple[tuple[int, int], Recording]]] = {}
    for recording in known.values():
        parent = known.get(str(recording.meta.get("parent")))
        place = None if parent is None else _find_call(parent, recording)
        if parent is not None and place is not None:
            found.setdefault(parent.id, []).append((place, recording))
    return {
        id: [child for _, child in sorted(children, key=lambda pair: pair[0])]
        for id, children in found.items()
    }


def inline_subagents(parent: Recording, children: Sequence[Recording]) -> Recording:
    r"""Return the recording of an agent that does the work of its subagents in its own context.

    Each tool call that started a subagent is replaced by the prompt of the subagent, at the end of the
    agent's message. Its result is replaced by the messages of the subagent without the prompt. The
    answer of the subagent is the result of the call, as the agent saw it. Subagents that worked at the
    same time follow each other. The new messages have the key ``SUBAGENT`` in ``extra``.

    Bills and compactions are left out, because they belong to other requests. The number of replies is
    that of all recordings together, unless an answer is missing.

    Parameters
    ----------
    parent : Recording
        Recording of the agent.
    children : sequence of Recording
        Recordings of its subagents.

    Returns
    -------
    Recording
        Recording with the messages of all.

    Raises
    ------
    SpecError
        If the parent does not contain the tool call that started a subagent.

    Examples
    --------
    >>> call = Message("assistant", "I delegate.", (ToolCall("c", "task"),))
    >>> main = Recording("a", (Message("user", "Go"), call, Message("tool", "Done", (), "c")))
    >>> work = (Message("user", "Find it"), Message("assistant", "Done"))
    >>> side = Recording("b", work, meta={"parent": "a", "call_id": "c"})
    >>> [message.text for message in inline_subagents(main, [side]).messages]
    ['Go', 'I delegate.\n\nFind it', 'Done']
    """
    by_place: dict[int, dict[str, Recording]] = {}
    for child in children:
        calls = by_place.setdefault(_require_call(parent, child), {})
        calls[str(child.meta["call_id"])] = child
    messages: list[Message] = []
    position = 0
    while position < len(parent.messages):
        message = parent.messages[position]
        started = by_place.get(position, {})
        position += 1
        if not started:
            messages.append(message.replace(usage=None))
            continue
        order = [started[call.id] for call in message.tool_calls if call.id in started]
        others = [call for call in message.tool_calls if call.id not in started]
        messages.append(_plan(message, others, order))
        results: dict[str, Message] = {}
        while position < len(parent.messages) and parent.messages[position].role == "tool":
            result = parent.messages[position]
            if result.tool_call_id in started:
                results[result.tool_call_id] = result
            else:
                messages.append(result)
            position += 1
        for child in order:
            messages += _work_with_answer(child, results.get(str(child.meta["call_id"])))
    return replace(parent, messages=tuple(messages), compactions=())


def fork_subagent(parent: Recording, child: Recording) -> Recording:
    r"""Return the recording of a subagent that begins with a copy of the agent's context.

    It begins with the messages of the agent before the tool call that started the subagent. Then follows
    the message with the call, in which the prompt of the subagent replaces all calls, and the messages
    of the subagent without the prompt. ``meta["forked_at"]`` is the number of messages before the first
    one of the subagent. Bills and compactions are left out. Model and tools are those of the agent, so
    that both can share a prompt cache.

    Parameters
    ----------
    parent : Recording
        Recording of the agent.
    child : Recording
        Recording of the subagent.

    Returns
    -------
    Recording
        Recording of the subagent, with the agent's messages before its own.

    Raises
    ------
    SpecError
        If the parent does not contain the tool call that started the subagent.

    Examples
    --------
    >>> call = Message("assistant", "I delegate.", (ToolCall("c", "task"),))
    >>> main = Recording("a", (Message("user", "Go"), call, Message("tool", "Done", (), "c")))
    >>> work = (Message("user", "Find it"), Message("assistant", "Done"))
    >>> side = Recording("b", work, meta={"parent": "a", "call_id": "c"})
    >>> fork = fork_subagent(main, side)
    >>> [message.text for message in fork.messages], fork.meta["forked_at"]
    (['Go', 'I delegate.\n\nFind it', 'Done'], 2)
    """
    place = _require_call(parent, child)
    before = [message.replace(usage=None) for message in parent.messages[:place]]
    before.append(_plan(parent.messages[place], [], [child]))
    return replace(
        child,
        messages=(*before, *_work(child)),
        tools=parent.tools,
        model=parent.model,
        cluster=parent.cluster,
        compactions=(),
        meta={**child.meta, "forked_at": len(before)},
    )


def _find_call(parent: Recording, child: Recording) -> tuple[int, int] | None:
    """Return the position of the message with the call of a subagent, and that of the call in it."""
    wanted = child.meta.get("call_id")
    for place, message in enumerate(parent.messages):
        for number, call in enumerate(message.tool_calls):
            if call.id == wanted:
                return place, number
    return None


def _require_call(parent: Recording, child: Recording) -> int:
    place = _find_call(parent, child)
    if place is None:
        raise SpecError(
            f"Expected the tool call {child.meta.get('call_id')!r} that started {child.id} in "
            f"{parent.id}, found none; pass only recordings of subagents of this recording"
        )
    return place[0]


def _plan(message: Message, calls: Sequence[ToolCall], children: Sequence[Recording]) -> Message:
    """Return the message that started subagents, with their prompts instead of the calls."""
    prompts = [_prompt(child) for child in children]
    content = message.content
    if isinstance(content, tuple):
        content = (*content, *({"type": "text", "text": prompt} for prompt in prompts))
    else:
        content = "\n\n".join(filter(None, (content, *prompts)))
    return message.replace(content=content, tool_calls=tuple(calls), usage=None)


def _first_reply(child: Recording) -> int:
    roles = [message.role for message in child.messages]
    return roles.index("assistant") if "assistant" in roles else len(roles)


def _prompt(child: Recording) -> str:
    before = child.messages[: _first_reply(child)]
    return "\n\n".join(message.text for message in before if message.role == "user")


def _work(child: Recording) -> list[Message]:
    """Return the messages of a subagent from its first reply on, without calls that were cut off."""
    work = list(child.messages[_first_reply(child) :])
    while work and work[-1].tool_calls:
        work.pop()
    return [m.replace(usage=None, extra={**m.extra, SUBAGENT: child.id}) for m in work]


def _work_with_answer(child: Recording, result: Message | None) -> list[Message]:
    """Return the messages of a subagent. The last one is its answer, as the result of the call."""
    work = _work(child)
    if result is None or not result.content:
        return work
    answer = Message("assistant", result.content, time=result.time, extra={SUBAGENT: child.id})
    if work and work[-1].role == "assistant" and work[-1].text.strip() in result.text:
        work.pop()
    return [*work, answer]
