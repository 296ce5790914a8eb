"""Results of tool calls, which contain either data or an error message and an error type."""

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
    "command_failed": "the command ended with an error: read its output",
    "refused": "the user did not allow the call: do not try again, do something else",
}
"""Error types of failed tool calls, each with its meaning and how an agent should react."""

CANCELLED = "cancelled"
"""Error type of a tool call that the user interrupted; only the agent sets it, tools do not."""

MAX_RESULT_CHARS = 200_000
"""Maximum number of characters of a tool result in a conversation; a longer result is cut.

Shorter results are stored in full. Strategies may shorten them further in the requests."""

PAGE_CHARS = 4_000
"""Default maximum number of characters of a result of the workspace tools, as in seed 000: what a tool
returns fits into the request of an agent with the default strategy."""


class ToolResult(BaseModel):
    """Result of a tool call, with data if the call succeeded or an error if it failed.

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
    process_id: str | None = Field(default=None, description="Id of the started process")
    outcome: dict[str, Any] | None = Field(
        default=None, description="Short form for a stub: summary, count and files"
    )
    images: list[str] | None = Field(
        default=None, description="Images for the model, as data URLs (PNG, JPEG, WebP or GIF)"
    )

    def to_llm_content(self) -> str:
        """Return the content of the tool message that the model receives.

        If ``data`` is a string, it is returned as it is. Other data is written as JSON. An error
        without data is written as JSON, with its type. Content of more than ``MAX_RESULT_CHARS``
        characters is cut, and a note is added at its end. Lone surrogates, which cannot be encoded as
        UTF-8, are replaced. Images are not part of this text.

        Returns
        -------
        str
            Content of the tool message.
        """
        if not self.ok and self.data is None:
            return _truncate(dump_json({"error": self.error, "error_type": self.error_type}))
        if isinstance(self.data, str):
            return _truncate(self.data)
        return "" if self.data is None else _truncate(dump_json(to_json_data(self.data)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, as data that can be written as JSON.

        Returns
        -------
        dict
            Values of the fields, by name.
        """
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: to_json_data(value) for name, value in known.items() if value is not None}


def failed_result(error: str, error_type: str, **fields: Any) -> ToolResult:
    """Build the result of a tool call that failed.

    Parameters
    ----------
    error : str
        Error message for the model.
    error_type : str
        A key of ``ERROR_TYPES``, or ``CANCELLED``.
    **fields : object
        Further fields of ``ToolResult``.

    Returns
    -------
    ToolResult
        Failed result with the given error.
    """
    return ToolResult(ok=False, error=error, error_type=error_type, **fields)


def cancelled_result(tool_name: str | None = None) -> ToolResult:
    """Build the result of a tool call that the user interrupted before it started or finished.

    Parameters
    ----------
    tool_name : str, optional
        Name of the tool.

    Returns
    -------
    ToolResult
        Failed result with the error type ``CANCELLED``.
    """
    error = "Cancelled by the user before it was done; it may have had side effects."
    return failed_result(error, CANCELLED, tool_name=tool_name)


def to_json_data(value: Any) -> Any:
    """Convert any value to data that ``json.dumps`` accepts; never raise an exception.

    Pydantic models and dataclasses become dicts, sets become lists, and paths and times become
    strings. Values of other types that JSON does not support are converted with ``str``.

    Parameters
    ----------
    value : object
        Value to convert.

    Returns
    -------
    object
        Dict, list, string, number, bool or None.

    Examples
    --------
    >>> from pathlib import PurePosixPath
    >>> to_json_data({"path": PurePosixPath("a.py"), "found": {1}})
    {'path': 'a.py', 'found': [1]}
    """
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    except Exception:  # a circular reference, or an object that raises an exception in repr
        try:
            return str(value)
        except Exception:
            return f"<{type(value).__name__}>"


def _truncate(text: str) -> str:
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n\n[cut: the result had {len(text):,} characters]"
    return repair_surrogates(text)
