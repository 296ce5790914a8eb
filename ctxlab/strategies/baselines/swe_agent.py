"""Baselines of SWE-agent, which masks old observations, and mini-swe-agent, which sends everything."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import tool_result_positions
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.settings import Setting
from ctxlab.strategies.controls import full
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class last_observations(BaselineStrategy):
    """Replaces each observation, except the newest ``n``, by a note with its number of lines.

    Short observations are replaced too. Observations are the tool results. In a recording without
    tool results, such as those of SWE-agent up to version 0.7, observations are the user messages
    after the task. SWE-agent counts the task as an observation, too. The task is never replaced.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> sent = build_messages(None, talk, strategy=last_observations())
    >>> [m["content"][:22] for m in sent[2::2]][2:5]
    ['Old environment output', 'a line of text a line ', 'a line of text a line ']
    """

    positive = ("n", "polling")
    n: int = 5
    "number of newest observations to keep"
    polling: int = 1
    "number of observations between two edits; from ``n`` to ``n + polling`` observations are kept"

    def __call__(self, context: Context, /) -> Context:
        """Replace each observation, except the newest ``n``, by a note with its number of lines."""
        history, results = context.history, tool_result_positions(context)
        of_tools = bisect_left(results, context.history_length)
        places = results if of_tools else history.user_positions
        first = 0 if of_tools else 1
        seen = of_tools or max(0, bisect_left(history.user_positions, context.history_length) - 1)
        upto = max(0, (seen + 1) // self.polling * self.polling - self.n - 1)
        done = context.strategy_state.get((self, first), 0)
        for position in places[first + done : first + upto]:
            index = context.find_index(position)
            if index is not None and not context.entries[index].is_aggregate:
                context.rewrite(index, elide_observation, Form.STUB)
        context.strategy_state[self, first] = max(done, upto)
        return context


def elide_observation(message: Message, _: ToolCall | None) -> Message:
    r"""Replace the text of an observation by SWE-agent's note with the number of omitted lines.

    Parameters
    ----------
    message : Message
        Tool result or user message to replace.
    _ : ToolCall or None
        Not used.

    Returns
    -------
    Message
        Message with the note as its text.

    Examples
    --------
    >>> elide_observation(Message("tool", "a\nb", tool_call_id="c1"), None).text
    'Old environment output: (2 lines omitted)'
    """
    said = f"Old environment output: ({len(message.text.splitlines())} lines omitted)"
    if isinstance(message.content, tuple):
        images = sum(part.get("type") == "image_url" for part in message.content)
        said += f" ({images} images omitted)" if images else ""
    return with_text(message, said)


def masking_settings(place: str) -> tuple[Setting, ...]:
    """Return the settings of ``last_observations`` in a configuration file of SWE-agent.

    Parameters
    ----------
    place : str
        Name of the file.

    Returns
    -------
    tuple of Setting
        Settings for ``n`` and ``polling``.
    """
    name, kind = "agent.history_processors", "type: last_n_observations"
    polling = f"[{{{kind}, n: 5, polling: {{value}}}}]"
    return (
        Setting("n", "yaml", place, name, f"[{{{kind}, n: {{value}}}}]"),
        Setting("polling", "yaml", place, name, polling, "n must be given too"),
    )


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "swe_agent.last_5",
        last_observations(),
        "SWE-agent at 669b8f9 (LastNObservations of the paper's configuration)",
        "https://github.com/SWE-agent/SWE-agent/blob/669b8f9cbd1e8a368a33d0b1d29eb0987006c9b6/sweagent/agent/history_processors.py",
        "Each observation (tool result) except the last 5 is replaced by a note with its number of "
        "lines. As in SWE-agent, the task counts as the first observation, but it is never "
        "replaced. Not implemented: SWE-agent's tags to "
        "keep or remove single observations, because recordings do not contain them.",
        settings=masking_settings("the configuration of the run"),
        formats=("swe-agent",),
    ),
    Baseline(
        "mini_swe_agent",
        full(),
        "mini-swe-agent 2.4.6",
        "https://pypi.org/project/mini-swe-agent/2.4.6/",
        "Sends all messages in each request until the provider rejects a request as too long. "
        "The template of an observation cuts output of more than 10,000 characters before it becomes a "
        "message, so recordings already contain the shortened text.",
        ("",),
        formats=("mini-swe-agent",),
    ),
)
