"""A plan is what an agent set out to do, step by step; it writes it down with a tool of its own.

Source: seed design "Workspace-scoped sessions": steps, the current one, and whether the work waits or
is paused are stored with the session, so that it goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from ctxlab.agent.tools.tool import Tool, tool_from_function
from ctxlab.sessions.base import AgentPlan

__all__ = ["MAX_STEPS", "plan_tool"]

MAX_STEPS = 50
"""Steps of a plan at most."""

_Steps = Annotated[list[str], Field(max_length=MAX_STEPS)]


def plan_tool(
    get_plan: Callable[[], AgentPlan | None], set_plan: Callable[[AgentPlan | None], object]
) -> Tool:
    """The tool ``update_plan``; ``get_plan`` gives the plan as it stands, ``set_plan`` keeps another.

    >>> plans = [None]
    >>> tool = plan_tool(lambda: plans[-1], plans.append)
    >>> tool.function(["read", "fix"], 2), plans[-1].current
    ('Step 2 of 2: fix', 1)
    >>> tool.function([], None), plans[-1]
    ('There is no plan any more.', None)
    """

    def update_plan(steps: _Steps, current: Annotated[int, Field(ge=1)] | None = None) -> str:
        """Writes down the plan of a longer task; call it again when a step is done or the plan changes.

        Args:
            steps: all steps in order, a short line each; none: the plan is dropped
            current: the step that is being worked on, counted from 1; leave it out when all are done
        """
        if current is not None and current > max(len(steps), 1):
            raise ValueError(f"current is {current}, and there are {len(steps)} steps")
        if not steps:
            set_plan(None)
            return "There is no plan any more."
        place = None if current is None else current - 1
        set_plan(replace(get_plan() or AgentPlan(), steps=tuple(steps), current=place))
        if place is None:
            return f"All {len(steps)} steps are done."
        return f"Step {current} of {len(steps)}: {steps[place]}"

    return tool_from_function(update_plan)
