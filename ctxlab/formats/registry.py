"""Registry of the formats that ctxlab can read.

To add a format, write a module with a constant ``FORMAT`` and add the module's name to
``_MODULES``.
"""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.formats.base import Format
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead

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
    "claude_code.stream",
    "inspect.reader",
    "atif.reader",
    "cline.reader",
    "anthropic",
    "openai_chat",
    "messages",
    "strands",
    "sharegpt",
    "chatgpt",
    "langsmith",
    "langfuse",
    "otel.reader",
    "langchain",
    "pi",
    "gemini_cli.reader",
    "opencode.reader",
    "opencode.database",
    "codex.reader",
    "codex.exec_events",
    "copilot_cli.reader",
    "openhands.completions",
    "openhands.events",
    "openhands.sdk",
    "swe_agent",
    "table.reader",
)

FORMATS: dict[str, Format] = {}
"""The registered formats by name. A file has the first format in this dict that recognises it."""


def register_format(format: Format) -> Format:
    """Register a format, so that ``load`` recognises it and accepts its name.

    Parameters
    ----------
    format : Format
        The format to register.

    Returns
    -------
    Format
        The format, unchanged.

    Raises
    ------
    SpecError
        If a format with the same name is already registered.

    Examples
    --------
    >>> register_format(FORMATS["native"])
    Traceback (most recent call last):
    ctxlab.errors.SpecError: the format 'native' is already registered; choose another name
    """
    if format.name in FORMATS:
        raise SpecError(f"the format {format.name!r} is already registered; choose another name")
    FORMATS[format.name] = format
    return format


def detect_format(path: PathOrUrl) -> Format | None:
    """Detect the format of a file by its content.

    Parameters
    ----------
    path : str or Path
        Path or URL of the file.

    Returns
    -------
    Format or None
        The detected format, or None if no format recognises the file.

    Raises
    ------
    ReadError
        If the file cannot be opened.
    """
    return match_format(FileHead.from_file(path))


def match_format(head: FileHead) -> Format | None:
    """Return the first registered format that recognises the beginning of a file.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    Format or None
        The format, or None if no reader recognises the file.
    """
    return next((format for format in FORMATS.values() if format.sniff(head)), None)


for _name in _MODULES:
    register_format(import_module(f"ctxlab.formats.{_name}").FORMAT)
