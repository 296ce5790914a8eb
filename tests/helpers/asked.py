"""Recordings with probes, and a scripted model that answers only from its prompt."""

from __future__ import annotations

import json

from talking import Action, Call

from ctxlab.messages.types import Message, Probe, Recording

MODEL = "openai/gpt-4o-mini"
JUDGE = "openai/gpt-4o"
NOTED = "Noted. " + "It is written in the book of this order. " * 4


def with_questions(number: int, questions: int = 10, cluster: str | None = None) -> Recording:
    """Return a recording with probes; each is answered by one message, except the last one."""
    messages = [Message("user", f"Order {number}. Note what I say.", name="Ann")]
    probes = []
    for i in range(questions):
        last = i == questions - 1
        said = (
            "Nothing more."
            if last
            else f"Item {i} of order {number} stands on shelf s{number}x{i}."
        )
        messages += [Message("assistant", NOTED), Message("user", said, name="Ann")]
        probes.append(
            Probe(
                f"{number}/{i}",
                f"On which shelf stands item {i} of order {number}?",
                () if last else (f"s{number}x{i}",),
                () if last else (len(messages) - 1,),
                category="missing" if last else "shelf",
            )
        )
    messages.append(Message("assistant", "Good."))
    return Recording(f"order-{number}", tuple(messages), probes=tuple(probes), cluster=cluster)


def asked_of(call: Call) -> str:
    """Return the question at the end of a request."""
    return call.messages[-1].text.rsplit("Question: ", 1)[-1]


def honest(call: Call) -> Action:
    """Answer from the prompt, or "Not mentioned." if it has no answer; as a judge, compare literally."""
    if call.messages[0].role == "system" and "You grade" in call.messages[0].text:
        return judging(call)
    words = asked_of(call).rstrip("?").split()
    shelf = f"s{words[-1]}x{words[5]}"
    before = "\n".join(message.text for message in call.messages[:-1])
    return shelf if f"{shelf}." in before else "Not mentioned."


def judging(call: Call) -> Action:
    text = call.messages[-1].text
    reply = text.split("<reply>\n")[1].split("\n</reply>")[0]
    reference = text.split("Reference answers:\n- ")[1].split("\n")[0] if "\n- " in text else ""
    right = reply == reference if reference else "mentioned" in reply
    verdict = "correct" if right else "incorrect"
    return json.dumps({"verdict": verdict, "reason": "By the letter."})
