"""Build tools from functions with type annotations, and call them with a model's arguments."""

from __future__ import annotations

import errno
import inspect
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.agent.tools.changes import FileChange
from ctxlab.agent.tools.result import ToolResult, failed_result, to_json_data
from ctxlab.errors import SpecError

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_VALUE_CHARS = 60
_ASYNC_TESTS = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)

# Compared by name, since HTTP libraries define exceptions that do not derive from Python's.
_TIMEOUT_ERRORS = {"TimeoutError", "Timeout", "TimeoutException", "TimeoutExpired"}
_CONNECTION_ERRORS = {
    *("ConnectionError", "gaierror", "herror", "URLError", "HTTPError", "HTTPException"),
    *("RequestException", "TransportError", "ClientConnectionError", "ClientResponseError"),
}
_UNREACHABLE_ERRNOS = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}


@dataclass(frozen=True)
class Tool:
    """A function that a model may call, with its name, description and schema."""

    name: str
    "name of the tool: 1 to 64 letters, digits, _ or -"
    description: str
    "description that the model reads"
    parameters: dict[str, Any] = field(hash=False)
    "JSON schema of the arguments"
    function: Callable[..., Any]
    "function that is called with the arguments by name; it returns data or a ``ToolResult``"
    arguments_model: type[BaseModel] | None = field(default=None, repr=False, compare=False)
    "pydantic model that validates the arguments; None if only the argument names are checked"
    read_only: bool = False
    "True if the tool changes nothing, so that it needs no approval"
    preview: Callable[..., FileChange | ToolResult] | None = field(
        default=None, repr=False, compare=False
    )
    """function that gets the same arguments and returns the change of a file that the call makes, for
    the user to see before, or a failed result if the call cannot make it; None if the tool changes no
    single file"""
    command_argument: str | None = None
    "name of the argument with a command for ``/bin/sh``; None if the tool runs none"
    cancel: Callable[[], object] | None = field(default=None, repr=False, compare=False)
    "function that ends running calls of the tool, from another thread; None if they cannot be ended"

    @property
    def definition(self) -> dict[str, Any]:
        """Tool definition in OpenAI's format."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": about}


class _UntitledJsonSchema(GenerateJsonSchema):
    """Schema generator without pydantic's titles, which cost tokens and add no information."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    read_only: bool = False,
    preview: Callable[..., FileChange | ToolResult] | None = None,
    command_argument: str | None = None,
) -> Tool:
    """Build a tool from a function with type annotations.

    The JSON schema is built from the types and defaults of the parameters. The descriptions of the
    tool and its parameters are taken from the docstring.

    ``Annotated[int, Field(ge=1, description="…")]`` adds constraints to a type. ``Annotated[int,
    "…"]`` adds a description, which is used if the docstring does not describe the parameter.

    Parameters
    ----------
    function : callable
        Function, method or other callable object, but not a class.
    name : str, optional
        Name of the tool; None uses the name of the function.
    read_only : bool, optional
        True if the function changes nothing, so that it needs no approval.
    preview : callable, optional
        Function that returns the change of a file that a call makes, or a failed result.
    command_argument : str, optional
        Name of the parameter with a command for ``/bin/sh``.

    Returns
    -------
    Tool
        Tool that calls the function.

    Raises
    ------
    SpecError
        If ``function`` is not callable, is a class or is ``async``, or if the name is invalid. Also
        if a parameter has no type annotation or cannot be passed by name, such as ``*args``.

    Examples
    --------
    >>> def read_file(path: str, limit: int = 100) -> str:
    ...     '''Read a text file.
    ...
    ...     Args:
    ...         path: path from the root of the workspace
    ...     '''
    ...     return f"{limit} lines of {path}"
    >>> tool = tool_from_function(read_file)
    >>> tool.description, tool.parameters["properties"]["path"]
    ('Read a text file.', {'description': 'path from the root of the workspace', 'type': 'string'})
    >>> call_tool(tool, '{"path": "a.py"}').data
    '100 lines of a.py'
    >>> print(call_tool(tool, '{"limit": "all"}').error)
    read_file was not called, because its arguments are not valid:
    - path: Field required
    - limit: Input should be a valid integer, unable to parse string as an integer (given: "all")
    """
    if not callable(function) or inspect.isclass(function):
        raise SpecError(f"Expected a tool (a function, a method or a Tool), got {function!r}")
    called = str(name or getattr(function, "__name__", ""))
    if not _NAME.fullmatch(called):
        rule = "1 to 64 letters, digits, _ or -"
        raise SpecError(f"Expected a tool name of {rule}, got {called!r}; pass another name=")
    # An object with an async __call__ is also async.
    bodies = (function, getattr(function, "__call__", None))  # noqa: B004
    if any(test(body) for test in _ASYNC_TESTS for body in bodies):
        raise SpecError(f"tool {called} is async; pass a synchronous function")
    docstring = docstring_parser.parse(inspect.getdoc(function) or "")
    meanings = {each.arg_name: each.description or "" for each in docstring.params}
    try:
        signature = inspect.signature(function)
        typed = function if inspect.isroutine(function) else getattr(function, "func", None)
        hints = get_type_hints(typed or type(function).__call__, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise SpecError(f"cannot read the type annotations of tool {called}: {error}") from error
    fields: dict[str, Any] = {}
    for place, (key, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SpecError(f"tool {called}: {parameter} cannot be passed by name; remove it")
        if key not in hints:
            raise SpecError(f"tool {called}: parameter {key} has no type annotation; add one")
        notes = (each for each in getattr(hints[key], "__metadata__", ()) if isinstance(each, str))
        meaning = " ".join(meanings.get(key, "").split()) or next(notes, None)
        about_it: dict[str, Any] = {"description": meaning} if meaning else {}
        default = ... if parameter.default is parameter.empty else parameter.default
        # A parameter may have the name of an attribute of pydantic's models, so use an alias.
        fields[f"a{place}"] = (hints[key], Field(default, alias=key, **about_it))
    try:
        model = create_model(called, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(by_alias=True, schema_generator=_UntitledJsonSchema)
    except PydanticUserError as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"cannot build a JSON schema for tool {called}: {reason}") from error
    about = (docstring.description or "").strip()
    return Tool(called, about, schema, function, model, read_only, preview, command_argument)


def tools_by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Convert functions to tools and return all tools by name.

    Parameters
    ----------
    tools : iterable of Tool or callable
        Tools, or functions that ``tool_from_function`` converts to tools.

    Returns
    -------
    dict of str to Tool
        Tools by name, in the given order.

    Raises
    ------
    SpecError
        If two tools have the same name, or if ``tools`` is a single tool.
    """
    if isinstance(tools, (str, Tool)) or callable(tools):
        raise SpecError(f"Expected a list of tools, got {tools!r}; pass a list, even for one tool")
    box: dict[str, Tool] = {}
    for item in tools:
        tool = item if isinstance(item, Tool) else tool_from_function(item)
        if tool.name in box:
            raise SpecError(f"two tools have the name {tool.name!r}; rename one")
        box[tool.name] = tool
    return box


def call_tool(tool: Tool, arguments_json: str) -> ToolResult:
    """Call a tool with the arguments of a model, and return errors as failed results.

    Invalid arguments and exceptions of the function are returned as failed results. Only
    ``KeyboardInterrupt`` and ``SystemExit`` are raised. If the function returns a ``ToolResult``
    without a tool name or a duration, these fields are filled in.

    Parameters
    ----------
    tool : Tool
        Tool to call.
    arguments_json : str
        Arguments as written by the model, usually a JSON object.

    Returns
    -------
    ToolResult
        Result with the data that the function returned, or with an error.
    """
    begun = time.perf_counter()
    try:
        answer = tool.function(**validate_arguments(tool, arguments_json))
        kept = isinstance(answer, ToolResult)
        result = answer if kept else ToolResult(ok=True, data=to_json_data(answer))
    except (KeyboardInterrupt, SystemExit):
        raise
    except _InvalidArguments as error:
        result = failed_result(str(error), "invalid_args")
    except BaseException as error:  # panics of Rust code do not derive from Exception
        result = failed_result(_error_text(error), _error_type(error))
    took = round((time.perf_counter() - begun) * 1000)
    known = took if result.duration_ms is None else result.duration_ms
    name = result.tool_name or tool.name
    return result.model_copy(update={"tool_name": name, "duration_ms": known})


def tool_not_found(name: str, available: Iterable[str]) -> ToolResult:
    """Build the result for a call of a tool that does not exist.

    Parameters
    ----------
    name : str
        Name of the tool that the model called.
    available : iterable of str
        Names of the tools that exist.

    Returns
    -------
    ToolResult
        Failed result with the error type ``tool_not_found``.
    """
    there = ", ".join(available) or "none"
    error = f"There is no tool {name!r}. Available tools: {there}."
    return failed_result(error, "tool_not_found", tool_name=name, duration_ms=0)


class _InvalidArguments(Exception):
    """Error for invalid arguments of a tool call; the message is sent to the model."""


def validate_arguments(tool: Tool, text: str) -> dict[str, Any]:
    """Parse and check the arguments of a call.

    Parameters
    ----------
    tool : Tool
        Tool to call.
    text : str
        Arguments as written by the model, usually a JSON object.

    Returns
    -------
    dict
        Arguments by name. Omitted arguments are left out.
    """
    begin = f"{tool.name} was not called, because its arguments are not"
    try:
        value = parse_json(text) if text.strip() else {}
    except ValueError as error:
        raise _InvalidArguments(f"{begin} JSON: {error}. Pass one JSON object.") from error
    if not isinstance(value, dict):
        raise _InvalidArguments(f"{begin} a JSON object: {_short_json(value)}.")
    if tool.arguments_model is None:
        try:
            inspect.signature(tool.function).bind(**value)
        except TypeError as error:
            raise _InvalidArguments(f"{begin} valid: {error}.") from error
        return value
    try:
        model = tool.arguments_model.model_validate(value)
    except ValidationError as error:
        names = ", ".join(tool.parameters.get("properties", {})) or "none"
        faults = [_format_error(each, names) for each in error.errors(include_url=False)]
        raise _InvalidArguments("\n- ".join([f"{begin} valid:", *faults])) from error
    # Omitted arguments keep the function's own defaults.
    fields = tool.arguments_model.model_fields
    return {str(fields[key].alias): getattr(model, key) for key in model.model_fields_set}


def _format_error(error: Any, names: str) -> str:
    where = ".".join(map(str, error["loc"])) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown argument; available: {names}"
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
