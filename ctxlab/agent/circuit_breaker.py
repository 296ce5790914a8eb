"""A circuit breaker that blocks a failing tool for the rest of the turn.

A command that ends with an error is often normal work, such as a failing test before a correction. It
counts as a failure of its tool only if the same call is repeated without any other call in between.
"""

from __future__ import annotations

from ctxlab.agent.tools.result import ToolResult, failed_result
from ctxlab.errors import SpecError

MAX_FAILURES = 3
"""Number of consecutive failures after which a tool is blocked."""


class CircuitBreaker:
    """Counts the consecutive failures of each tool and blocks a failing tool until the next turn.

    Parameters
    ----------
    max_failures : int, optional
        Number of consecutive failures after which a tool is blocked. With 0, no tool is blocked.

    Raises
    ------
    SpecError
        If ``max_failures`` is negative.

    Examples
    --------
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
            raise SpecError(f"Expected max_failures of 0 or more, got {max_failures}")
        self.max_failures = max_failures
        self._last_call = ("", "")
        self.failure_counts: dict[str, int] = {}
        "number of failures of each tool since its last success in this turn, by name of the tool"

    def blocked_result(self, name: str) -> ToolResult | None:
        """Return the result for a call of a blocked tool, or None if the tool is not blocked.

        Parameters
        ----------
        name : str
            Name of the tool.

        Returns
        -------
        ToolResult or None
            Failed result with the error type ``circuit_breaker``; None if the tool is not blocked.
        """
        if not self.max_failures or self.failure_counts.get(name, 0) < self.max_failures:
            return None
        what = f"Tool '{name}' has failed {self.max_failures} times consecutively."
        error = f"{what} Please try a different approach or tool."
        return failed_result(error, "circuit_breaker", tool_name=name, duration_ms=0)

    def record(self, name: str, result: ToolResult, arguments: str = "") -> None:
        """Update the number of consecutive failures of a tool after a call.

        A failed call increases the number by one. A successful call sets it to 0. A failed command sets
        it to 1, unless the last call was the same command. A call that the user refused changes nothing.

        Parameters
        ----------
        name : str
            Name of the tool.
        result : ToolResult
            Result of the tool call.
        arguments : str, default ""
            Arguments of the call, as the model wrote them.
        """
        repeated, self._last_call = self._last_call == (name, arguments), (name, arguments)
        if result.error_type == "refused":
            return
        before = self.failure_counts.get(name, 0)
        if result.error_type == "command_failed" and not repeated:
            before = 0
        self.failure_counts[name] = 0 if result.ok else before + 1

    def reset(self) -> None:
        """Set the failure counts of all tools to 0, at the start of a turn."""
        self.failure_counts.clear()
        self._last_call = ("", "")
