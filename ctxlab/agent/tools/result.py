"""Every tool answers with a ``ToolResult``: data or an error with its kind, and what the call took.

Source: seed design "Robustness & Reliability", 10.1.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from ctxlab._utils.jsonio import dump_json, repair_surrogates

__all__ = [
    "CANCELLED",
    "ERROR_TYPES",
    "MAX_RESULT_CHARS",
    "ToolResult",
    "cancelled_result",
    "to_json_data",
]

ERROR_TYPES: dict[str, str] = {
    "invalid_args": "bad arguments from the model: it may try again with others",
    "tool_not_found": "there is no such tool: do not try again, tell the user",
    "execution_error": "the tool failed: perhaps try once more",
    "timeout": "it took longer than it may: see what became of the process",
    "permission_denied": "the system does not allow it: do not try again",
    "network_error": "a connection failed: try again later",
    "circuit_breaker": "the tool failed too often in this turn: try another way",
}
"""Kinds of failure and what an agent does about each: the six of the design, and the breaker's."""

CANCELLED = "cancelled"
"""The kind of a call that the user interrupted; no tool answers so by itself."""

MAX_RESULT_CHARS = 200_000
"""Characters of one tool result at most, where it is made.

A conversation keeps what a tool said as it was said, and strategies cut what is sent of it; a result
beyond this is no longer something that was said but a file, and is cut before it is kept.
"""


class ToolResult(BaseModel):
    """What a tool call gave.

    >>> ToolResult(ok=True, data={"files": ["a.py"]}).to_llm_content()
    '{"files":["a.py"]}'
    >>> failed = ToolResult(ok=False, error="no such file: b.py", error_type="execution_error")
    >>> failed.to_llm_content()
    '{"error":"no such file: b.py","error_type":"execution_error"}'
    >>> failed.to_dict()
    {'ok': False, 'error': 'no such file: b.py', 'error_type': 'execution_error'}
    """

    ok: bool = Field(description="Whether the tool execution succeeded")
    data: Any = Field(default=None, description="Result data (if ok)")
    error: str | None = Field(default=None, description="Error message (if not ok)")
    error_type: str | None = Field(default=None, description="Kind of error, one of ERROR_TYPES")
    tool_name: str | None = Field(default=None, description="Full name of the tool")
    duration_ms: int | None = Field(default=None, description="Execution time in milliseconds")
    process_id: str | None = Field(default=None, description="Id of its managed process")

    def to_llm_content(self) -> str:
        """What the model reads: a text as it is, other data as JSON, an error with its kind.

        At most about ``MAX_RESULT_CHARS`` characters: what is longer loses its end and says so.
        Lone surrogates, which no request can carry, become replacement characters.
        """
        if not self.ok:
            return _truncate(dump_json({"error": self.error, "error_type": self.error_type}))
        if isinstance(self.data, str):
            return _truncate(self.data)
        return "" if self.data is None else _truncate(dump_json(to_json_data(self.data)))

    def to_dict(self) -> dict[str, Any]:
        """All of it that is set, the execution's figures included, as plain JSON data."""
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: to_json_data(value) for name, value in known.items() if value is not None}


def cancelled_result(tool_name: str | None = None) -> ToolResult:
    """The result of a call that the user interrupted, or that was never begun because of it."""
    error = "Cancelled by the user before it was done; it may have had effects."
    return ToolResult(ok=False, error=error, error_type=CANCELLED, tool_name=tool_name)


def to_json_data(value: Any) -> Any:
    """A value as JSON data: models, dataclasses, paths, times and sets in their usual form.

    What has no such form stands as its text. Never raises.

    >>> from pathlib import PurePosixPath
    >>> to_json_data({"path": PurePosixPath("a.py"), "found": {1}})
    {'path': 'a.py', 'found': [1]}
    """
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    except Exception:  # it holds itself, or cannot even be shown
        try:
            return str(value)
        except Exception:
            return f"<{type(value).__name__}>"


def _truncate(text: str) -> str:
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n\n[cut: the result had {len(text):,} characters]"
    return repair_surrogates(text)
