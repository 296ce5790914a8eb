"""Validate tool calls and run them; errors are returned as one sentence."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_type_hints

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.errors import CtxlabError, SpecError, UnknownSession, UnknownTurn
from ctxlab.serve.mcp.tools import TOOL_NAMES, SessionTools

_MAX_ECHO_CHARACTERS = 60
"""Maximum number of characters of the input that an error repeats."""


class ToolDispatcher:
    """Names, schemas and functions of the tools.

    Parameters
    ----------
    tools : SessionTools
        The tools.
    """

    def __init__(self, tools: SessionTools) -> None:
        self._functions = tools.type_adapters()
        self.tool_definitions = [
            _tool_definition(name, getattr(SessionTools, name), adapter)
            for name, adapter in self._functions.items()
        ]
        "definitions that are sent to clients"

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool and return its result; never raise.

        Unexpected errors are logged and not sent, since their text may contain file names of this
        machine.

        Parameters
        ----------
        name : str
            Name of the tool.
        arguments : mapping
            Arguments of the call.

        Returns
        -------
        CallToolResult
            The result as data and as text, or an error.
        """
        try:
            answer = self._run_tool(name, arguments)
        except Exception as error:
            refusal = _replace_surrogates(_error_message(name, error))
            return CallToolResult(content=[TextContent(type="text", text=refusal)], is_error=True)
        text = TextContent(type="text", text=_replace_surrogates(answer.text()))
        return CallToolResult(
            content=[text], structured_content=_replace_surrogates(asdict(answer))
        )

    def _run_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name not in self._functions:
            raise SpecError(
                f"unknown tool {_clip_repr(name)}; the tools are {', '.join(TOOL_NAMES)}"
            )
        provided = {key: value for key, value in arguments.items() if value is not None}
        return self._functions[name].validate_python(ArgsKwargs((), provided))


def _tool_definition(name: str, function: Any, adapter: TypeAdapter[Any]) -> Tool:
    answers = get_type_hints(function)["return"]
    title = name.replace("_", " ").capitalize()
    return Tool(
        name=name,
        title=title,
        description=" ".join((function.__doc__ or "").split()),
        input_schema=adapter.json_schema(),
        output_schema=TypeAdapter(answers).json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            title=title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _error_message(name: str, error: Exception) -> str:
    """Describe an error and its remedy in one sentence, without file names of this machine."""
    if isinstance(error, UnknownSession):
        return f"{name}: no session {_clip_repr(error.id)}; use list_sessions to see all sessions"
    if isinstance(error, UnknownTurn):
        there = (
            f"its turns are numbered from 1 to {error.turns:,}"
            if error.turns
            else "it has no turns yet"
        )
        return f"{name}: session {_clip_repr(error.id)} has no turn {error.turn}: {there}"
    if isinstance(error, ValidationError):
        return f"{name}: {'; '.join(_validation_message(each) for each in error.errors())}"
    if isinstance(error, SpecError):
        return f"{name}: {' '.join(str(error).split())}"
    logging.getLogger(__name__).error("%s failed", name, exc_info=error)
    what = "the session cannot be read" if isinstance(error, CtxlabError) else "internal error"
    return f"{name}: {what} ({type(error).__name__}); see the log of the server"


def _validation_message(error: Mapping[str, Any]) -> str:
    where = ".".join(str(each) for each in error["loc"])[:_MAX_ECHO_CHARACTERS]
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown argument {_clip_repr(where)}"
    if error["type"].startswith("missing"):
        return f"missing argument {where}"
    message = str(error["msg"])
    return f"{where}: {message[:1].lower()}{message[1:]}, got {_clip_repr(error['input'])}"


def _clip_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_ECHO_CHARACTERS else f"{text[:_MAX_ECHO_CHARACTERS]}…"


def _replace_surrogates(value: Any) -> Any:
    r"""Replace lone surrogates in plain data, which may occur in logs, so that it can be sent as UTF-8.

    >>> _replace_surrogates({"a": ["\ud83d!"]})
    {'a': ['�!']}
    """
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, dict):
        return {key: _replace_surrogates(each) for key, each in value.items()}
    return [_replace_surrogates(each) for each in value] if isinstance(value, list) else value
