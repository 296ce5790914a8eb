"""The formats that ctxlab knows stand in one table; a new one is a new file and a line here."""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.formats.base import Format
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead

__all__ = ["FORMATS", "detect_format", "match_format", "register_format"]

_MODULES = (
    "native",
    "ctxlab_sessions.chunks",
    "ctxlab_sessions.sqlite",
    "tau_bench",
    "tau2_bench",
    "locomo",
    "longmemeval",
    "mini_swe_agent",
    "claude_code.reader",
    "inspect.reader",
    "atif.reader",
    "anthropic.reader",
    "openai_chat",
    "messages",
    "strands",
    "sharegpt",
    "langsmith",
    "langfuse",
    "otel.reader",
    "langchain",
    "pi.reader",
    "gemini_cli.reader",
    "codex.reader",
    "openhands.completions",
    "openhands.events",
    "swe_agent",
)

FORMATS: dict[str, Format] = {}
"""Name → format, in the order in which a file is offered to them."""


def register_format(format: Format) -> Format:
    """Adds a format to the table; ``SpecError`` where its name is taken.

    >>> register_format(FORMATS["native"])
    Traceback (most recent call last):
    ctxlab.errors.SpecError: a format called 'native' is already known
    """
    if format.name in FORMATS:
        raise SpecError(f"a format called {format.name!r} is already known")
    FORMATS[format.name] = format
    return format


def detect_format(path: PathOrUrl) -> Format | None:
    """The format of a file by its content, never by its name; None where no reader knows it.

    Raises ``ReadError`` where the file cannot be opened.
    """
    return match_format(FileHead.from_file(path))


def match_format(head: FileHead) -> Format | None:
    """The first format that knows a file which begins like this."""
    return next((format for format in FORMATS.values() if format.sniff(head)), None)


for _name in _MODULES:
    register_format(import_module(f"ctxlab.formats.{_name}").FORMAT)
