"""A tool that keeps failing is not called again in the same turn: the model is told to try another way.

Source: seed design "Robustness & Reliability", 10.3 (tool failure circuit breaker).
"""

from __future__ import annotations

from ctxlab.agent.tools.result import ToolResult
from ctxlab.errors import SpecError

__all__ = ["MAX_FAILURES", "CircuitBreaker"]

MAX_FAILURES = 3
"""Failures in a row after which a tool is blocked."""


class CircuitBreaker:
    """Counts the failures in a row of each tool; blocks that tool alone, until the next turn.

    >>> breaker = CircuitBreaker(max_failures=2)
    >>> failed = ToolResult(ok=False, error="no such host", error_type="network_error")
    >>> for _ in range(2):
    ...     assert breaker.blocked_result("fetch") is None
    ...     breaker.record("fetch", failed)
    >>> breaker.blocked_result("fetch").error_type, breaker.blocked_result("read")
    ('circuit_breaker', None)
    >>> breaker.reset()
    >>> breaker.blocked_result("fetch")
    """

    def __init__(self, max_failures: int = MAX_FAILURES) -> None:
        if max_failures < 0:
            raise SpecError(
                f"max_failures is {max_failures}; write how many in a row, or 0 for any number"
            )
        self.max_failures = max_failures
        "in a row after which a tool is blocked; 0: never"
        self.failure_counts: dict[str, int] = {}
        "by tool: how often it failed since it last succeeded, in this turn"

    def blocked_result(self, name: str) -> ToolResult | None:
        """What a call of a blocked tool is answered with; None where it may be called."""
        if not self.max_failures or self.failure_counts.get(name, 0) < self.max_failures:
            return None
        error = (
            f"Tool '{name}' has failed {self.max_failures} times consecutively. "
            "Please try a different approach or tool."
        )
        return ToolResult(
            ok=False, error=error, error_type="circuit_breaker", tool_name=name, duration_ms=0
        )

    def record(self, name: str, result: ToolResult) -> None:
        """A tool was called; one success and its failures are forgotten."""
        self.failure_counts[name] = 0 if result.ok else self.failure_counts.get(name, 0) + 1

    def reset(self) -> None:
        """A new turn begins."""
        self.failure_counts.clear()
