"""Recordings for next-action tests, and a model that needs earlier results to repeat the calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd

from ctxlab.evaluation.probing.next_action import evaluate_next_action
from ctxlab.evaluation.probing.results import NextActionResults
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall

MODEL = "openai/gpt-4o-mini"
GAPS = (1, 4, 12)
"number of turns between a result that names a path and the call that uses it, used in rotation"
WINDOW = "sliding_window(tokens=3000)"


def recording(number: int, turns: int = 30) -> Recording:
    """Return a recording in which each call reads a path that a result named 1, 4 or 12 turns before."""
    messages = [Message("system", "You are careful."), Message("user", f"Repair order {number}.")]
    for turn in range(turns):
        told = max(turn - GAPS[turn % 3], -1)
        path = f"src/part_{number}_{told}.py" if told >= 0 else f"src/start_{turn}.py"
        call = ToolCall(f"c{turn}", "read_file", json.dumps({"path": path, "lines": 50}))
        text = f"step {turn}: see src/part_{number}_{turn}.py\n" + "value = 7 * 12\n" * 60
        messages += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    messages.append(Message("assistant", "Done."))
    return Recording(f"order-{number}", tuple(messages), cluster=f"group-{number % 6}")


RECORDINGS = [recording(number) for number in range(6)]


def script(recordings: list[Recording]) -> Callable[[tuple[Message, ...]], Message]:
    """Return a model that makes the recorded call if the path of the call occurs in its prompt.

    The model finds the recorded call by the user's request and the last message of the prompt.
    """
    after = {
        (each.messages[1].text, each.messages[p - 1].text): each.messages[p]
        for each in recordings
        for p in each.request_positions
    }

    def answer(messages: tuple[Message, ...]) -> Message:
        recorded = after[messages[1].text, messages[-1].text]
        if not recorded.tool_calls:
            return Message("assistant", "I am done.")
        (call,) = recorded.tool_calls
        path = json.loads(call.arguments)["path"]
        if "start" in path or any(path in message.text for message in messages):
            # As another model would write it: the same arguments in another order.
            return Message(
                "assistant",
                tool_calls=(ToolCall("x", call.name, f'{{"lines": 50.0, "path": "{path}"}}'),),
            )
        return Message("assistant", tool_calls=(ToolCall("x", "list_files", "{}"),))

    return answer


SCRIPT = script(RECORDINGS)


def scripted() -> ScriptedClient:
    return ScriptedClient(lambda request: SCRIPT(request.messages))


def asked(
    client: Any = None, strategies: Any = ("full", WINDOW, "nothing"), **more: Any
) -> NextActionResults:
    options = {"answer_model": MODEL, "client": client or scripted(), "requests": 12, **more}
    recordings = options.pop("recordings", RECORDINGS)
    limits = options.pop("limits", 100_000)
    return evaluate_next_action(recordings, strategies, limits, progress=False, **options)


def board(found: NextActionResults) -> pd.DataFrame:
    return found.leaderboard().set_index("strategy")
