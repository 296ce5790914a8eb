"""Help texts whose indented blocks, such as examples, are not wrapped."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType


def keep_blocks(text: str | None) -> str | None:
    r"""Return a docstring as a help text in which examples and indented blocks are not wrapped.

    Parameters
    ----------
    text : str, optional
        The docstring.

    Returns
    -------
    str or None
        The text, with a backspace, as click has it, before paragraphs that stay as they are.

    Examples
    --------
    >>> keep_blocks("Count words.\n\nExamples\n--------\ncount a.txt\n\nA file:\n  one\n  two")
    'Count words.\n\n\x08\nExamples:\n  count a.txt\n\n\x08\nA file:\n  one\n  two'
    """
    if text is None:
        return None
    text = re.sub(r"(?m)^(\w+)\n-+\n((?:.+\n?)+)", _indent_section, text)
    return re.sub(r"(?m)^(?=\S.*\n +\S)", "\b\n", text)


def _indent_section(section: re.Match[str]) -> str:
    return f"{section[1]}:\n{textwrap.indent(section[2], '  ')}"


class _Command(TyperCommand):
    """A command that prints the examples of its docstring as they are."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*args, help=keep_blocks(help), **settings)


class _Group(TyperGroup):
    """A command with commands of its own; without one of them it prints its help."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*args, help=keep_blocks(help), **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """The commands of a program or of one of its groups.

    Parameters
    ----------
    **settings : object
        Arguments of ``typer.Typer``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, rich_markup_mode=None, **settings)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = _Command, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a function as a command.

        Parameters
        ----------
        name : str, optional
            The name of the command.
        cls : type
            The class of the command.
        **settings : object
            More arguments of ``typer.Typer.command``.

        Returns
        -------
        callable
            Registers the function and returns it.
        """
        return super().command(name, cls=cls, **settings)
