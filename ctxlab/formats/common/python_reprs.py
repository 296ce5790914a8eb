"""Parse messages that were logged as Python code.

Some applications pass LangChain messages through ``str`` or ``repr`` before they log them. The log
then contains a string such as ``[HumanMessage(content='hi'), AIMessage(content='ho')]`` or
``[{'role': 'user', 'content': 'hi'}]``.

The string is parsed, and never executed. Only constants, lists, tuples, dicts and calls with keyword
arguments are accepted. A call becomes a dict of its arguments. If the name of the class ends with
``Message`` or ``MessageChunk``, the dict has the ``type`` of a LangChain message. The result
therefore has one of the forms that ``api_messages`` parses.

The form without a class (``content='hi' additional_kwargs={}``) does not tell who wrote the message.
It is rejected.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

_CLASS = r"\w*Message(?:Chunk)?\("
_MESSAGES = re.compile(rf"\s*(?:\[\s*){{0,2}}{_CLASS}|\s*\{{\s*'messages'\s*:\s*\[\s*{_CLASS}")
_DICTS = re.compile(r"\s*(?:\[\s*){0,2}\{\s*'(?:role|type|content|messages)'\s*:")
_WITHOUT_CLASS = re.compile(r"\s*content=(?:'|\"|\[).* additional_kwargs=\{", re.DOTALL)
_MESSAGE_CLASS = re.compile(r"\w*Message(?:Chunk)?")


def parse_if_repr(value: Any) -> Any:
    """Parse a string that contains messages as Python code, and return any other value unchanged.

    Parameters
    ----------
    value : Any
        A JSON value, possibly a string with the ``repr`` of messages.

    Returns
    -------
    Any
        The messages as JSON values. ``value`` itself if it is not such a string.

    Raises
    ------
    ValueError
        If the string starts like LangChain messages, but contains other Python code, is cut off, or
        does not name the class of the message.

    Examples
    --------
    >>> parse_if_repr("[HumanMessage(content='hi', additional_kwargs={})]")
    [{'content': 'hi', 'additional_kwargs': {}, 'type': 'HumanMessage'}]
    >>> parse_if_repr("hi")
    'hi'
    """
    if not isinstance(value, str):
        return value
    constructed = _MESSAGES.match(value) is not None
    if not constructed and not _DICTS.match(value):
        if _WITHOUT_CLASS.match(value):
            raise ValueError(
                "a message was logged as text without its type; log the messages instead of str(message)"
            )
        return value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences are only a warning
            tree = ast.parse(value.strip(), mode="eval")
        return _convert(tree.body)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if not constructed:
            return value
        raise ValueError(
            f"messages were logged as Python code that cannot be read ({_describe(error)}); "
            "log the messages instead of str(messages)"
        ) from None


def _convert(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as constant):
            return constant
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_convert(each) for each in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_key(key): _convert(each) for key, each in pairs}
        case ast.Call(func=ast.Name(id=name), args=[], keywords=arguments):
            fields = {_argument(each.arg): _convert(each.value) for each in arguments}
            return fields | {"type": name} if _MESSAGE_CLASS.fullmatch(name) else fields
    line, kind = getattr(node, "lineno", 0), type(node).__name__
    raise ValueError(f"unexpected {kind} in line {line}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    raise ValueError("a key is not a constant")


def _argument(name: str | None) -> str:
    if name is None:
        raise ValueError("unexpected **")
    return name


def _describe(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} in line {error.lineno}"
    return str(error) or "nested too deeply"
