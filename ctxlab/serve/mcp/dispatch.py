"""Validate and run the tool calls of MCP clients, and return errors as one sentence."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_type_hints

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from ctxlab._utils.jsonio import dump_json, repair_surrogates
from ctxlab.errors import CtxlabError, DesktopError, SpecError, UnknownSession, UnknownTurn
from ctxlab.sessions.navigation.tools import SessionTools

TOOL_NAMES = (
    *("current_session", "session_toc", "session_title_history", "search_session"),
    *("search_all_sessions", "list_sessions", "get_turn", "get_turns", "get_interaction"),
)
"""Names of the session tools, which are methods of ``SessionTools``."""

_METHODS = {name: getattr(SessionTools, name) for name in TOOL_NAMES}
TOOLS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(it) for name, it in _METHODS.items()}
"""Validators of the session tools' arguments, by name of the tool.

``validate_python`` validates the arguments of a call and calls the tool. The first argument is the
``SessionTools`` object."""

_MAX_ECHO_CHARACTERS = 60
"""Maximum number of characters of an invalid value that an error message shows."""


def call_tool(
    tools: Any,
    name: str,
    arguments: Mapping[str, Any],
    adapters: Mapping[str, TypeAdapter[Any]] = TOOLS,
) -> CallToolResult:
    """Call a tool and return its result; errors are returned, not raised.

    The text of an unexpected error is logged but not sent to the client, because it may contain
    file names of the server.

    Parameters
    ----------
    tools : object
        Object whose methods are the tools, such as ``SessionTools``.
    name : str
        Name of the tool to call.
    arguments : mapping
        Arguments of the call, by name.
    adapters : mapping of str to TypeAdapter
        Validator of the arguments of each tool, by name.

    Returns
    -------
    CallToolResult
        Result of the tool as structured data and as text, or an error message.
    """
    try:
        if name not in adapters:
            known = ", ".join(adapters)
            raise SpecError(f"unknown tool {_clip_repr(name)}; choose from {known}")
        provided = {key: value for key, value in arguments.items() if value is not None}
        answer = adapters[name].validate_python(ArgsKwargs((tools,), provided))
        return answer_result(answer)
    except Exception as error:
        return error_result(describe_error(name, error))


def answer_result(answer: Any) -> CallToolResult:
    """Return the result of a call that succeeded.

    Parameters
    ----------
    answer : dataclass
        What the tool returned. Its method ``content`` returns the content of the result; else its method
        ``text`` returns the text; else the text is its data as JSON. Its method ``data``, if there is
        one, returns the structured data.

    Returns
    -------
    CallToolResult
        Content and structured data.
    """
    data = _replace_surrogates(answer.data() if hasattr(answer, "data") else asdict(answer))
    if hasattr(answer, "content"):
        content = answer.content()
    else:
        text = answer.text() if hasattr(answer, "text") else dump_json(data)
        content = [TextContent(type="text", text=repair_surrogates(text))]
    return CallToolResult(content=content, structured_content=data)


def error_result(message: str) -> CallToolResult:
    """Return the result of a call that failed.

    Parameters
    ----------
    message : str
        One sentence with the reason and the remedy.

    Returns
    -------
    CallToolResult
        Result with the message as text.
    """
    shown = TextContent(type="text", text=repair_surrogates(message))
    return CallToolResult(content=[shown], is_error=True)


def tool_definition(
    owner: type, name: str, adapter: TypeAdapter[Any], note: str = "", **hints: bool
) -> Tool:
    """Return the definition of a tool for MCP clients.

    Parameters
    ----------
    owner : type
        Class of which the tool is a method. The docstring of the method is the description.
    name : str
        Name of the tool.
    adapter : TypeAdapter
        Validator of the arguments.
    note : str, default ""
        Sentence that is added to the description.
    **hints : bool
        Annotations that differ from those of a tool that only reads, such as ``read_only_hint``.

    Returns
    -------
    Tool
        Definition with the schemas of arguments and result.
    """
    function = getattr(owner, name)
    arguments, title = adapter.json_schema(), name.replace("_", " ").capitalize()
    del arguments["properties"]["self"]
    arguments["required"].remove("self")
    if not arguments["required"]:
        del arguments["required"]
    return Tool(
        name=name,
        title=title,
        description=" ".join(f"{function.__doc__ or ''} {note}".split()),
        input_schema=arguments,
        output_schema=TypeAdapter(get_type_hints(function)["return"]).json_schema(
            mode="serialization"
        ),
        annotations=ToolAnnotations(title=title, **_READ_ONLY | hints),
    )


_READ_ONLY = {
    "read_only_hint": True,
    "destructive_hint": False,
    "idempotent_hint": True,
    "open_world_hint": False,
}

TOOL_DEFINITIONS = [tool_definition(SessionTools, name, adapter) for name, adapter in TOOLS.items()]
"""Tool definitions that are sent to MCP clients."""


def describe_error(name: str, error: Exception) -> str:
    """Describe an error and its remedy in one sentence, without file names of the server.

    Parameters
    ----------
    name : str
        Name of the tool.
    error : Exception
        Error of the call.

    Returns
    -------
    str
        The sentence, which begins with the name of the tool.
    """
    if isinstance(error, UnknownSession):
        return f"{name}: no session {_clip_repr(error.id)}; use list_sessions to see all sessions"
    if isinstance(error, UnknownTurn):
        return f"{name}: session {_clip_repr(error.id)} has no {error.wanted}; {error.choices}"
    if isinstance(error, ValidationError):
        return f"{name}: {'; '.join(_validation_message(each) for each in error.errors())}"
    if isinstance(error, (SpecError, DesktopError)):
        return f"{name}: {' '.join(str(error).split())}"
    logging.getLogger(__name__).error("%s failed", name, exc_info=error)
    what = "the session cannot be read" if isinstance(error, CtxlabError) else "internal error"
    return f"{name}: {what} ({type(error).__name__}); see the log of the server"


def _validation_message(error: Mapping[str, Any]) -> str:
    where = ".".join(str(each) for each in error["loc"])[:_MAX_ECHO_CHARACTERS]
    if error["type"] in ("unexpected_keyword_argument", "multiple_argument_values"):  # such as self
        return f"unknown argument {_clip_repr(where)}"
    if error["type"].startswith("missing"):
        return f"missing argument {where}"
    message = str(error["msg"])
    return f"{where}: {message[:1].lower()}{message[1:]}, got {_clip_repr(error['input'])}"


def _clip_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_ECHO_CHARACTERS else f"{text[:_MAX_ECHO_CHARACTERS]}…"


def _replace_surrogates(value: Any) -> Any:
    r"""Replace lone surrogates in all strings of a JSON value by ``\ufffd``.

    Recorded sessions may contain lone surrogates, which cannot be encoded as UTF-8.

    >>> _replace_surrogates({"a": ["\ud83d!"]})
    {'a': ['�!']}
    """
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, dict):
        return {key: _replace_surrogates(each) for key, each in value.items()}
    return [_replace_surrogates(each) for each in value] if isinstance(value, list) else value
