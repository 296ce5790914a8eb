"""Results of tool calls: data, or an error with its type."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from ctxlab._utils.jsonio import dump_json, repair_surrogates

ERROR_TYPES: dict[str, str] = {
    "invalid_args": "the arguments are not valid: try again with others",
    "tool_not_found": "there is no such tool: do not try again, tell the user",
    "execution_error": "the tool failed: perhaps try once more",
    "timeout": "the tool exceeded its time limit: check the state of the process",
    "permission_denied": "the system does not allow it: do not try again",
    "network_error": "a connection failed: try again later",
    "circuit_breaker": "the tool failed too often in this turn: try another way",
}
"""Error types of a tool call and how an agent should react to each."""

CANCELLED = "cancelled"
"""Error type of a call that the user interrupted; tools do not return it themselves."""

MAX_RESULT_CHARS = 200_000
"""Maximum characters of a tool result.

A conversation stores tool results in full, and strategies shorten what is sent of them. A longer
result is more like a file, so it is cut before it is stored."""


class ToolResult(BaseModel):
    """Result of a tool call.

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
        """Return the text that the model reads.

        A text is returned as it is, other data as JSON, an error with its type. A text longer than
        ``MAX_RESULT_CHARS`` loses its end, and a note says so. Lone surrogates, which no request
        can carry, are replaced.

        Returns
        -------
        str
            Content of the tool message.
        """
        if not self.ok:
            return _truncate(dump_json({"error": self.error, "error_type": self.error_type}))
        if isinstance(self.data, str):
            return _truncate(self.data)
        return "" if self.data is None else _truncate(dump_json(to_json_data(self.data)))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields that are set as plain JSON data.

        Returns
        -------
        dict
            The fields.
        """
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: to_json_data(value) for name, value in known.items() if value is not None}


def failed_result(error: str, error_type: str, **fields: Any) -> ToolResult:
    """Build the result of a call that failed.

    Parameters
    ----------
    error : str
        Error message for the model.
    error_type : str
        One of ``ERROR_TYPES``, or ``CANCELLED``.
    **fields : object
        Further fields of ``ToolResult``.

    Returns
    -------
    ToolResult
        The result.
    """
    return ToolResult(ok=False, error=error, error_type=error_type, **fields)


def cancelled_result(tool_name: str | None = None) -> ToolResult:
    """Build the result for a call that the user interrupted, or that did not start because of that.

    Parameters
    ----------
    tool_name : str, optional
        Name of the tool.

    Returns
    -------
    ToolResult
        The result.
    """
    error = "Cancelled by the user before it was done; it may have had side effects."
    return failed_result(error, CANCELLED, tool_name=tool_name)


def to_json_data(value: Any) -> Any:
    """Convert a value to data that ``json.dumps`` accepts.

    Pydantic models and dataclasses become objects, sets become lists, and paths and times become
    strings. Any other value that JSON does not have is converted with ``str``. Never raises.

    Parameters
    ----------
    value : object
        The value.

    Returns
    -------
    object
        The JSON data.

    Examples
    --------
    >>> from pathlib import PurePosixPath
    >>> to_json_data({"path": PurePosixPath("a.py"), "found": {1}})
    {'path': 'a.py', 'found': [1]}
    """
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    except Exception:  # a circular reference, or an object whose repr fails
        try:
            return str(value)
        except Exception:
            return f"<{type(value).__name__}>"


def _truncate(text: str) -> str:
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n\n[cut: the result had {len(text):,} characters]"
    return repair_surrogates(text)
