"""Tools made of typed functions: schemas from types, and validation of a model's arguments."""

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

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_VALUE_CHARS = 60

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
    "name of up to 64 letters, digits, _ and -"
    description: str
    "description that the model reads"
    parameters: dict[str, Any] = field(hash=False)
    "JSON schema of the arguments"
    function: Callable[..., Any]
    "called with the arguments by name; returns data or a ``ToolResult``"
    arguments_model: type[BaseModel] | None = field(default=None, repr=False, compare=False)
    "model that validates the arguments; None checks only the function's signature"

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


def tool_from_function(function: Callable[..., Any], *, name: str | None = None) -> Tool:
    """Build a tool from a function.

    Types and defaults give the schema, the docstring gives the descriptions.

    ``Annotated[int, Field(ge=1, description="…")]`` adds constraints to a type. ``Annotated[int,
    "…"]`` adds a description if the docstring has none for the parameter.

    Parameters
    ----------
    function : callable
        A function, or another callable that is not a class.
    name : str, optional
        Name of the tool; None uses the function's name.

    Returns
    -------
    Tool
        The tool.

    Raises
    ------
    SpecError
        If the object is not a function, if it is ``async``, or if a parameter has no type or cannot
        be passed by name (``*args``).

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
        raise SpecError(
            f"Expected a tool name of 1 to 64 letters, digits, _ or -, got {called!r}; pass name="
        )
    # An object with an async __call__ is async, too.
    bodies = (function, getattr(function, "__call__", None))  # noqa: B004
    if any(map(inspect.iscoroutinefunction, bodies)) or any(
        map(inspect.isasyncgenfunction, bodies)
    ):
        raise SpecError(f"tool {called} is async; pass a function that is not")
    about, meanings = parse_docstring(inspect.getdoc(function))
    try:
        signature = inspect.signature(function)
        typed = function if inspect.isroutine(function) else getattr(function, "func", None)
        hints = get_type_hints(typed or type(function).__call__, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise SpecError(f"cannot read the types of tool {called}: {error}") from error
    fields: dict[str, Any] = {}
    for place, (parameter, signature_parameter) in enumerate(signature.parameters.items()):
        if signature_parameter.kind not in (
            signature_parameter.POSITIONAL_OR_KEYWORD,
            signature_parameter.KEYWORD_ONLY,
        ):
            raise SpecError(f"tool {called}: {signature_parameter} cannot be passed by name")
        if parameter not in hints:
            raise SpecError(f"tool {called}: parameter {parameter} has no type; annotate it")
        # A parameter may have the name of an attribute of pydantic's models, so use an alias.
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
    """Return tools by name, after converting functions to tools.

    Parameters
    ----------
    tools : iterable of Tool or callable
        The tools.

    Returns
    -------
    dict of str to Tool
        The tools.

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
            raise SpecError(
                f"two tools have the name {tool.name!r}; give each tool a name of its own"
            )
        box[tool.name] = tool
    return box


def call_tool(tool: Tool, arguments_json: str) -> ToolResult:
    """Call a tool with a model's arguments; failures are part of the result.

    Only ``KeyboardInterrupt`` and ``SystemExit`` are raised. If the function returns a
    ``ToolResult``, its missing name and duration are added.

    Parameters
    ----------
    tool : Tool
        The tool.
    arguments_json : str
        Arguments as the model wrote them, a JSON object.

    Returns
    -------
    ToolResult
        Data or error of the call.
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
    except BaseException as error:  # panics of Rust code do not derive from Exception
        result = ToolResult(ok=False, error=_error_text(error), error_type=_error_type(error))
    took = round((time.perf_counter() - begun) * 1000)
    known = {"tool_name": result.tool_name or tool.name}
    if result.duration_ms is None:
        return result.model_copy(update={**known, "duration_ms": took})
    return result.model_copy(update=known)


def tool_not_found(name: str, available: Iterable[str]) -> ToolResult:
    """Build the result for a call of a tool that does not exist.

    Parameters
    ----------
    name : str
        Name that the model called.
    available : iterable of str
        Names of the tools.

    Returns
    -------
    ToolResult
        The result.
    """
    there = ", ".join(available) or "none"
    error = f"There is no tool {name!r}. Available tools: {there}."
    return ToolResult(
        ok=False, error=error, error_type="tool_not_found", tool_name=name, duration_ms=0
    )


def _validate_arguments(tool: Tool, text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments for the function, and an error text if they are not valid."""
    begin = f"{tool.name} was not called, because its arguments are not"
    try:
        value = parse_json(text) if text.strip() else {}
    except ValueError as error:
        return {}, f"{begin} JSON: {error}. Pass one JSON object."
    if not isinstance(value, dict):
        return {}, f"{begin} a JSON object: {_short_json(value)}."
    if tool.arguments_model is None:
        try:
            inspect.signature(tool.function).bind(**value)
        except TypeError as error:
            return {}, f"{begin} valid: {error}."
        return value, None
    try:
        model = tool.arguments_model.model_validate(value)
    except ValidationError as error:
        names = ", ".join(tool.parameters.get("properties", {})) or "none"
        faults = [_format_error(each, names) for each in error.errors(include_url=False)]
        return {}, "\n- ".join([f"{begin} valid:", *faults])
    # Omitted arguments keep the function's own defaults.
    fields = tool.arguments_model.model_fields
    return {str(fields[key].alias): getattr(model, key) for key in model.model_fields_set}, None


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
