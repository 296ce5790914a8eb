"""Declare options, share them between commands, and keep the layout of help texts.

Options that several commands share are fields of a data class.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from ctxlab._utils.humanize import parse_quantity
from ctxlab.cli.saving import parse_out_folder
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec

READING = " where sample seed format"
"""Options that say which recordings to read."""
ASKING = " replicates max_cost calls concurrency dry_run"
"""Options of commands that ask a model."""

_CACHE_MODES = ("auto", "replay", "record")


def _parse_cache_mode(text: str) -> str:
    if text not in _CACHE_MODES:
        raise SpecError(f"--cache-mode: expected {' or '.join(_CACHE_MODES)}, got {text!r}")
    return text


def _parse_reserve(text: str) -> int:
    parsed = parse_quantity(text)
    if parsed is None or parsed[1] or parsed[0] != int(parsed[0]):
        raise SpecError(f"--reserve: expected 0 or more tokens, such as 8000 or 8k, got {text!r}")
    return int(parsed[0])


def complete_from(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function for the shell's completion.

    Parameters
    ----------
    names : callable
        Returns the names that can be typed.

    Returns
    -------
    callable
        Takes what was typed so far and returns the names that begin with it.
    """

    def complete(incomplete: str) -> list[str]:
        """Return the names that begin with what was typed."""
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _strategy_names() -> Iterable[str]:
    from ctxlab.strategies.introspection import list_strategies

    return (each.name for each in list_strategies())


def _format_names() -> Iterable[str]:
    from ctxlab.formats import FORMATS

    return FORMATS


def _metric_names() -> Iterable[str]:
    from ctxlab.evaluation.metrics import METRICS

    return METRICS


complete_strategy = complete_from(_strategy_names)
"""Complete the name of a strategy."""


def option(usage: str, help: str = "", default: Any = None, **settings: Any) -> Any:
    """Return an option of a command, to be the default of a parameter.

    Parameters
    ----------
    usage : str
        The names of the option and, if it has a value, what it is called: ``"--limit -l N"``.
    help : str
        The help text.
    default : object
        The value if the option is not given; ``...`` makes it required.
    **settings : object
        More arguments of ``typer.Option``.

    Returns
    -------
    OptionInfo
        The option.
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    metavar = words[-1] if len(names) < len(words) else None
    return typer.Option(default, *names, metavar=metavar, help=help, **settings)


def flag(usage: str, help: str, **settings: Any) -> Any:
    """Return an option that has no value: it is given or not.

    Parameters
    ----------
    usage : str
        The names of the option.
    help : str
        The help text.
    **settings : object
        More arguments of ``typer.Option``.

    Returns
    -------
    OptionInfo
        The option, which is False by default.
    """
    return option(usage, help, default=False, **settings)


def argument(metavar: str, help: str, default: Any = None, **settings: Any) -> Any:
    """Return a positional argument of a command, to be the default of a parameter.

    Parameters
    ----------
    metavar : str
        What the argument is called.
    help : str
        The help text.
    default : object
        The value if the argument is not given; ``...`` makes it required.
    **settings : object
        More arguments of ``typer.Argument``.

    Returns
    -------
    ArgumentInfo
        The argument.
    """
    return typer.Argument(default, metavar=metavar, help=help, **settings)


JSON = flag("--json", "Print the table as JSON.")
NO_PROGRESS = flag("--no-progress", "Do not show a progress bar.")
FORCE = flag("--force", "Replace existing files.")
WRITABLE_FORMAT = option(
    "--to NAME",
    "Format to write: native (lossless), openai, anthropic or atif.",
    default="native",
    autocompletion=complete_from(lambda: ("native", "openai", "anthropic", "atif")),
)
RESERVE = option(
    "--reserve TOKENS",
    "Tokens of the limit to keep free, usually for the reply (8000, 8k).",
    parser=_parse_reserve,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the commands that read recordings; those that a command does not have are None.

    The fields up to ``on_error`` are fields of ``Spec``.
    """

    FIRST = ("data", "answer_model", "strategies", "limits", "model", "reserve")
    "the options that come before those of the command itself"

    data: list[str] | None = argument(
        "PATH…",
        "Recordings: files, folders, globs, URLs (s3://…, zip://*::logs.zip), bundled:NAME, "
        "dataset:NAME.",
        default=...,
    )
    strategies: list[str] | None = option(
        "--strategy -s STRATEGY", autocompletion=complete_strategy
    )
    limits: list[str] | None = option(
        "--limit -l N",
        "Context window: tokens (16000, 16k) or a share of each recording's length (0.25, 25%). "
        "May be repeated.",
    )
    model: str | None = option(
        "--model -m MODEL",
        "Model whose tokenizer, prices and rules apply to all recordings [each recording's own].",
    )
    reserve: int | None = RESERVE
    min_recall: float | None = option(
        "--min-recall SHARE",
        "Far recall that a recommended strategy must keep, as a share of full history's [0.95].",
    )
    metrics: list[str] | None = option(
        "--metric NAME",
        "Metric to measure, as listed by ctxlab metrics [all]. May be repeated.",
        autocompletion=complete_from(_metric_names),
    )
    calls: str | None = option(
        f"--cache-mode {'|'.join(_CACHE_MODES)}",
        "Where a model's answers come from. auto: from .ctxlab/calls, else call the model; "
        "replay: from .ctxlab/calls only; record: call the model again [auto].",
        parser=_parse_cache_mode,
        autocompletion=complete_from(lambda: _CACHE_MODES),
    )
    where: list[str] | None = option(
        "--where -w CONDITION",
        "Keep recordings that match, such as messages>=50, tokens>=20k, model=claude*, id=a/*. "
        "May be repeated; all conditions must hold.",
    )
    sample: int | None = option("--sample N", "Use N of the recordings, at random.")
    seed: int | None = option("--seed N", "Random seed; the same N draws the same sample [0].")
    format: str | None = option(
        "--format NAME",
        "Format of the recordings, as listed by ctxlab formats [detected].",
        autocompletion=complete_from(_format_names),
    )
    on_error: str | None = option(
        "--on-error raise|skip",
        "Stop at a broken line, or skip it [raise].",
        autocompletion=complete_from(lambda: ("raise", "skip")),
    )
    answer_model: str = option(
        "--answer-model -a MODEL", "Model that answers; any name litellm knows.", default=...
    )
    replicates: int = option(
        "--replicates N", "Ask each question N times, to measure the model's own noise.", default=1
    )
    max_cost: float | None = option("--max-cost USD", "Stop before the cost exceeds this amount.")
    concurrency: int | None = option("--concurrency N", "Model calls to run at the same time [5].")
    dry_run: bool = flag("--dry-run", "Print the number of calls and their cost; call no model.")
    out: Path | None = option("--out DIR", parser=parse_out_folder)
    json: bool = JSON
    no_progress: bool = NO_PROGRESS

    @property
    def progress(self) -> bool | None:
        """False for no progress bar; None for one on a terminal only."""
        return False if self.no_progress else None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of an experiment that were given, with lists as tuples."""
        from ctxlab.evaluation.spec import Spec

        given = {name: getattr(self, name, None) for name in Spec.__struct_fields__}
        found = {name: value for name, value in given.items() if value not in (None, [])}
        return {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}

    def spec(self, **defaults: Any) -> Spec:
        """Return an experiment from the options.

        Parameters
        ----------
        **defaults : object
            Fields for which no option was given.

        Returns
        -------
        Spec
            The experiment.
        """
        from ctxlab.evaluation.spec import Spec

        return Spec(**defaults | self.changes)


def with_options(names: str = "", **helps: str) -> Callable[[Callable[..., None]], Any]:
    """Give a command shared options, which it gets together as its first argument.

    Parameters
    ----------
    names : str
        Fields of the class of the first argument, separated by spaces; empty for all.
    **helps : str
        Help texts that differ from those of the class. A metavar may stand before, with ``:: ``.

    Returns
    -------
    callable
        Decorates the command; its own options come after those that say what to replay.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        holder, *own = inspect.signature(function, eval_str=True).parameters.values()
        known = inspect.signature(holder.annotation, eval_str=True).parameters
        chosen = {name: known[name] for name in names.split() or known}
        for name, text in helps.items():
            metavar, _, help = text.rpartition(":: ")
            option = copy(chosen[name].default)
            option.help, option.metavar = help, metavar or option.metavar
            chosen[name] = chosen[name].replace(default=option)
        first = getattr(holder.annotation, "FIRST", ())
        parameters = [
            *(each for name, each in chosen.items() if name in first),
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
            *(each for name, each in chosen.items() if name not in first),
        ]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            shared = dict.fromkeys(known) | {name: values.pop(name) for name in chosen}
            function(holder.annotation(**shared), **values)

        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        return command

    return decorate


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
