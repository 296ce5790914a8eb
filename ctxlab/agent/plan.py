"""Tool for an agent to write down the steps of its plan.

The session stores the steps, the current step, and whether the work is waiting or paused. A resumed
session continues with this plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from ctxlab.agent.tools.tool import Tool, tool_from_function
from ctxlab.sessions.base import AgentPlan

PLAN_TOOL_NAME = "update_plan"
"""Name of the tool."""

MAX_STEPS = 50
"""Maximum number of steps in a plan."""

_Steps = Annotated[list[str], Field(max_length=MAX_STEPS)]


def plan_tool(
    get_plan: Callable[[], AgentPlan | None], set_plan: Callable[[AgentPlan | None], object]
) -> Tool:
    """Build the tool ``update_plan``, which replaces the plan of an agent.

    Parameters
    ----------
    get_plan : callable
        Function that returns the current plan, or None if there is no plan.
    set_plan : callable
        Function that is called with the new plan, or with None to drop the plan.

    Returns
    -------
    Tool
        Tool with the parameters ``steps`` and ``current``.

    Examples
    --------
    >>> plans = [None]
    >>> tool = plan_tool(lambda: plans[-1], plans.append)
    >>> tool.function(["read", "fix"], 2), plans[-1].current
    ('Step 2 of 2: fix', 1)
    >>> tool.function([], None), plans[-1]
    ('The plan was dropped.', None)
    """

    def update_plan(steps: _Steps, current: Annotated[int, Field(ge=1)] | None = None) -> str:
        """Write down the plan of a longer task; call it again when a step is done or the plan changes.

        Args:
            steps: all steps in order, one short line each; an empty list drops the plan
            current: the step in progress, counted from 1; leave it out when all steps are done
        """
        if current is not None and current > max(len(steps), 1):
            raise ValueError(f"Expected current from 1 to {max(len(steps), 1)}, got {current}")
        if not steps:
            set_plan(None)
            return "The plan was dropped."
        place = None if current is None else current - 1
        set_plan(replace(get_plan() or AgentPlan(), steps=tuple(steps), current=place))
        if place is None:
            return f"All {len(steps)} steps are done."
        return f"Step {current} of {len(steps)}: {steps[place]}"

    return tool_from_function(update_plan, read_only=True)
