"""A tool is a typed Python function: its types are the schema, and what the model gives is checked.

Source: seed design "Robustness & Reliability", 10.1 (the kinds of errors).
"""

from __future__ import annotations

import errno
import inspect
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.agent.tools.docstrings import parse_docstring
from ctxlab.agent.tools.result import ToolResult, to_json_data
from ctxlab.errors import SpecError

__all__ = ["Tool", "call_tool", "tool_from_function", "tool_not_found", "tools_by_name"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_VALUE_CHARS = 60

# By name, since libraries for HTTP have exceptions of their own that are none of Python's.
_TIMEOUT_ERRORS = {"TimeoutError", "Timeout", "TimeoutException", "TimeoutExpired"}
_CONNECTION_ERRORS = {
    *("ConnectionError", "gaierror", "herror", "URLError", "HTTPError", "HTTPException"),
    *("RequestException", "TransportError", "ClientConnectionError", "ClientResponseError"),
}
_UNREACHABLE_ERRNOS = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}


@dataclass(frozen=True)
class Tool:
    """A function that a model may call, and how it is told of it."""

    name: str
    description: str
    parameters: dict[str, Any] = field(hash=False)
    "JSON schema of the arguments"
    function: Callable[..., Any]
    "is given the arguments by name; returns data or a ``ToolResult``"
    arguments_model: type[BaseModel] | None = field(default=None, repr=False, compare=False)
    "what arguments are checked with; None: only against the function's signature"

    @property
    def definition(self) -> dict[str, Any]:
        """As a provider takes it, in OpenAI's shape."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": about}


class _UntitledJsonSchema(GenerateJsonSchema):
    """Schemas without the titles that pydantic makes of names: they cost tokens and say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def tool_from_function(function: Callable[..., Any], *, name: str | None = None) -> Tool:
    """A tool made of a function: schema from its types and defaults, descriptions from its docstring.

    ``Annotated[int, Field(ge=1, description="…")]`` says more than a type, and so does
    ``Annotated[int, "…"]`` where the docstring says nothing of the parameter. Raises ``SpecError`` for a
    function whose arguments cannot be named and typed (a parameter without a type, ``*args``), for one
    that is ``async``, and for what is no function.

    >>> def read_file(path: str, limit: int = 100) -> str:
    ...     '''Reads a text file.
    ...
    ...     Args:
    ...         path: from the root of the workspace
    ...     '''
    ...     return f"{limit} lines of {path}"
    >>> tool = tool_from_function(read_file)
    >>> tool.description, tool.parameters["properties"]["path"]
    ('Reads a text file.', {'description': 'from the root of the workspace', 'type': 'string'})
    >>> call_tool(tool, '{"path": "a.py"}').data
    '100 lines of a.py'
    >>> print(call_tool(tool, '{"limit": "all"}').error)
    read_file was not called; its arguments are wrong:
    - path: Field required
    - limit: Input should be a valid integer, unable to parse string as an integer (given: "all")
    """
    if not callable(function) or inspect.isclass(function):
        raise SpecError(f"{function!r} is no tool: give a function, a method or a ``Tool``")
    called = str(name or getattr(function, "__name__", ""))
    if not _NAME.fullmatch(called):
        raise SpecError(
            f"a tool cannot be called {called!r}: letters, digits, _ and -, 64 at most; give a name="
        )
    # What is called by its own __call__ is as async as that is.
    bodies = (function, getattr(function, "__call__", None))  # noqa: B004
    if any(map(inspect.iscoroutinefunction, bodies)) or any(
        map(inspect.isasyncgenfunction, bodies)
    ):
        raise SpecError(f"tool {called} is async: give a function that returns when it is done")
    about, meanings = parse_docstring(inspect.getdoc(function))
    try:
        signature = inspect.signature(function)
        typed = function if inspect.isroutine(function) else getattr(function, "func", None)
        hints = get_type_hints(typed or type(function).__call__, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise SpecError(f"the types of tool {called} cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    for place, (parameter, signature_parameter) in enumerate(signature.parameters.items()):
        if signature_parameter.kind not in (
            signature_parameter.POSITIONAL_OR_KEYWORD,
            signature_parameter.KEYWORD_ONLY,
        ):
            raise SpecError(f"tool {called}: {signature_parameter} cannot be given by name")
        if parameter not in hints:
            raise SpecError(f"tool {called}: parameter {parameter} has no type")
        # Under a name of its own, since parameters may be called as pydantic's attributes are.
        default = (
            ...
            if signature_parameter.default is signature_parameter.empty
            else signature_parameter.default
        )
        said = [
            text for text in getattr(hints[parameter], "__metadata__", ()) if isinstance(text, str)
        ]
        meaning = meanings.get(parameter) or next(iter(said), None)
        about_it = (
            Field(default, alias=parameter, description=meaning)
            if meaning
            else Field(default, alias=parameter)
        )
        fields[f"a{place}"] = (hints[parameter], about_it)
    try:
        model = create_model(called, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(by_alias=True, schema_generator=_UntitledJsonSchema)
    except PydanticUserError as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"tool {called} has no JSON schema: {reason}") from error
    return Tool(called, about, schema, function, model)


def tools_by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by their names, functions made into tools; two of one name raise ``SpecError``."""
    if isinstance(tools, (str, Tool)) or callable(tools):
        raise SpecError(f"tools is {tools!r}; give a list of functions, if only of one")
    box: dict[str, Tool] = {}
    for item in tools:
        tool = item if isinstance(item, Tool) else tool_from_function(item)
        if tool.name in box:
            raise SpecError(
                f"two tools are called {tool.name!r}: a model could not tell them apart"
            )
        box[tool.name] = tool
    return box


def call_tool(tool: Tool, arguments_json: str) -> ToolResult:
    """Calls a tool with the arguments that a model wrote; whatever goes wrong is in the result.

    Raises nothing but ``KeyboardInterrupt`` and ``SystemExit``. A ``ToolResult`` that the function
    returns is kept; name and duration are filled in.
    """
    begun = time.perf_counter()
    try:
        arguments, fault = _validate_arguments(tool, arguments_json)
        if fault is not None:
            result = ToolResult(ok=False, error=fault, error_type="invalid_args")
        else:
            answer = tool.function(**arguments)
            kept = isinstance(answer, ToolResult)
            result = answer if kept else ToolResult(ok=True, data=to_json_data(answer))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        result = ToolResult(ok=False, error=_error_text(error), error_type=_error_type(error))
    took = round((time.perf_counter() - begun) * 1000)
    known = {"tool_name": result.tool_name or tool.name}
    if result.duration_ms is None:
        return result.model_copy(update={**known, "duration_ms": took})
    return result.model_copy(update=known)


def tool_not_found(name: str, available: Iterable[str]) -> ToolResult:
    """The result of calling a tool that does not exist."""
    there = ", ".join(available) or "none"
    error = f"There is no tool called {name!r}. Tools: {there}."
    return ToolResult(
        ok=False, error=error, error_type="tool_not_found", tool_name=name, duration_ms=0
    )


def _validate_arguments(tool: Tool, text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments as the function takes them, or what is wrong with them."""
    begin = f"{tool.name} was not called; its arguments are"
    try:
        value = parse_json(text) if text.strip() else {}
    except ValueError as error:
        return {}, f"{begin} no JSON: {error}. Give one JSON object."
    if not isinstance(value, dict):
        return {}, f"{begin} no JSON object, but {_short_json(value)}."
    if tool.arguments_model is None:
        try:
            inspect.signature(tool.function).bind(**value)
        except TypeError as error:
            return {}, f"{begin} wrong: {error}."
        return value, None
    try:
        model = tool.arguments_model.model_validate(value)
    except ValidationError as error:
        names = ", ".join(tool.parameters.get("properties", {})) or "none"
        faults = [_format_error(each, names) for each in error.errors(include_url=False)]
        return {}, "\n- ".join([f"{begin} wrong:", *faults])
    # Those that were not given are left to the function.
    fields = tool.arguments_model.model_fields
    return {str(fields[key].alias): getattr(model, key) for key in model.model_fields_set}, None


def _format_error(error: Any, names: str) -> str:
    where = ".".join(map(str, error["loc"])) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"{where}: there is no such argument; there are: {names}"
    shown = "" if error["type"] == "missing" else f" (given: {_short_json(error['input'])})"
    return f"{where}: {error['msg']}{shown}"


def _short_json(value: Any) -> str:
    text = dump_json(to_json_data(value))
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _error_type(error: BaseException) -> str:
    names = {base.__name__ for base in type(error).__mro__}
    if names & _TIMEOUT_ERRORS:
        return "timeout"
    if isinstance(error, PermissionError):
        return "permission_denied"
    if names & _CONNECTION_ERRORS or getattr(error, "errno", None) in _UNREACHABLE_ERRNOS:
        return "network_error"
    return "execution_error"
