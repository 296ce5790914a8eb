"""A tool that keeps failing is not called again in the same turn: the model is told to try another way.

Source: seed design "Robustness & Reliability", 10.3 (tool failure circuit breaker).
"""

from __future__ import annotations

from ctxlab.agent.tools.result import ToolResult
from ctxlab.errors import SpecError

__all__ = ["FAILURES", "Breaker"]

FAILURES = 3
"""Failures in a row after which a tool is blocked."""


class Breaker:
    """Counts the failures in a row of each tool; blocks that tool alone, until the next turn.

    >>> breaker = Breaker(failures=2)
    >>> failed = ToolResult(ok=False, error="no such host", error_type="network_error")
    >>> for _ in range(2):
    ...     assert breaker.blocked("fetch") is None
    ...     breaker.count("fetch", failed)
    >>> breaker.blocked("fetch").error_type, breaker.blocked("read")
    ('circuit_breaker', None)
    >>> breaker.reset()
    >>> breaker.blocked("fetch")
    """

    def __init__(self, failures: int = FAILURES) -> None:
        if failures < 0:
            raise SpecError(f"failures is {failures}; write how many in a row, or 0 for any number")
        self.failures = failures
        "in a row after which a tool is blocked; 0: never"
        self.failed: dict[str, int] = {}
        "by tool: how often it failed since it last succeeded, in this turn"

    def blocked(self, name: str) -> ToolResult | None:
        """What a call of a blocked tool is answered with; None where it may be called."""
        if not self.failures or self.failed.get(name, 0) < self.failures:
            return None
        error = (
            f"Tool '{name}' has failed {self.failures} times consecutively. "
            "Please try a different approach or tool."
        )
        return ToolResult(
            ok=False, error=error, error_type="circuit_breaker", tool_name=name, duration_ms=0
        )

    def count(self, name: str, result: ToolResult) -> None:
        """A tool was called; one success and its failures are forgotten."""
        self.failed[name] = 0 if result.ok else self.failed.get(name, 0) + 1

    def reset(self) -> None:
        """A new turn begins."""
        self.failed.clear()
