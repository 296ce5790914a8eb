"""A resumed conversation begins with one message of the engine's: the summary, the plan, and what now.

Source: seed design "Workspace-scoped sessions" ("inject a single engine-authored message").
"""

from __future__ import annotations

from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    Plan,
    Resume,
)
from ctxlab.strategies.file_sessions import ENGINE

__all__ = ["CONTINUE", "seed_message", "seeded"]

CONTINUE = "Continue from here. Do not repeat what is already done."
"""The instruction that the message ends with."""


def seed_message(resume: Resume) -> Message | None:
    """The one message that a resumed context begins with; None where there is nothing to tell.

    It holds the saved summary, the current step of the plan where there is one, and the instruction to
    go on. It is the user's, since providers want a user to speak first.

    >>> resume = Resume("- user: Fix the bug", plan=Plan(("read", "fix", "test"), current=1))
    >>> print(seed_message(resume).content)
    This conversation is resumed.
    <BLANKLINE>
    Summary of the conversation so far:
    - user: Fix the bug
    <BLANKLINE>
    Current step of the plan (2 of 3): fix
    <BLANKLINE>
    Continue from here. Do not repeat what is already done.
    """
    said = [message for message in resume.recent if message.role != "system"]
    begins = not said or said[0].role == "user"
    step = _step(resume.plan)
    if not resume.summary and not step and begins:
        return None
    parts = ["This conversation is resumed."]
    if resume.summary:
        parts.append(f"Summary of the conversation so far:\n{resume.summary}")
    text = "\n\n".join([*parts, *filter(None, [step]), CONTINUE])
    return Message("user", text, extra={ENGINE: True})


def seeded(resume: Resume) -> tuple[Message, ...]:
    """The messages that a resumed context begins with: system, the engine's message, the rest.

    >>> system, hi = Message("system", "Be brief."), Message("user", "hi")
    >>> [m.role for m in seeded(Resume("- user: hello", (system, hi)))]
    ['system', 'user', 'user']
    """
    recent, seed = resume.recent, seed_message(resume)
    if seed is None:
        return recent
    head = next((i for i, m in enumerate(recent) if m.role != "system"), len(recent))
    return (*recent[:head], seed, *recent[head:])


def _step(plan: Plan | None) -> str:
    """Where the plan stands; empty where there is none."""
    if plan is None or plan.current is None or not 0 <= plan.current < len(plan.steps):
        return ""
    said = f"Current step of the plan ({plan.current + 1} of {len(plan.steps)}): "
    said += plan.steps[plan.current]
    if plan.awaiting_continuation:
        said += " (it waits to be continued)"
    return f"{said} (it is paused)" if plan.paused else said
