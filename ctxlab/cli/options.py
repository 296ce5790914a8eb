"""Declare the options of commands, and format the help texts of commands.

Options that several commands share are fields of a data class, such as ``Options``. The decorator
``with_options`` adds them to a command.
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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from ctxlab._utils.humanize import parse_quantity
from ctxlab.cli.saving import parse_out_folder
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.cli.render.table import TableView
    from ctxlab.evaluation.spec import Spec

READING = " where sample seed format columns clusters"
"""Fields of ``Options`` that select the recordings to read, as an argument of ``with_options``."""
TABLE = " sort top shown csv"
"""Fields of ``Options`` that choose what of a table is printed, as an argument of ``with_options``."""
ASKING = " replicates max_cost calls concurrency dry_run"
"""Fields of ``Options`` for commands that ask a model, as an argument of ``with_options``."""

_OPTION_WIDTH = 24
"widest option in the help that has its description on the same line"
_CACHE_MODES = ("auto", "replay", "record")


def _parse_cache_mode(text: str) -> str:
    if text not in _CACHE_MODES:
        raise SpecError(f"--cache-mode: expected auto, replay or record, got {text!r}")
    return text


def _use_cache(context: typer.Context, no_cache: bool) -> bool:
    """Turn the cache of token counts off until the command ends."""
    if no_cache:
        from ctxlab.tokens.count_cache import without_count_cache

        context.with_resource(without_count_cache())
    return no_cache


def _parse_reserve(text: str) -> int:
    parsed = parse_quantity(text)
    if parsed is None or parsed[1] or parsed[0] != int(parsed[0]):
        raise SpecError(f"--reserve: expected 0 or more tokens, such as 8000 or 8k, got {text!r}")
    return int(parsed[0])


def _parse_fixed(text: str) -> int | str:
    parsed = parse_quantity(text)
    if text == "recorded":
        return text
    if parsed is None or parsed[1] or parsed[0] != int(parsed[0]):
        raise SpecError(
            f"--fixed: expected recorded or 0 or more tokens, such as 25k, got {text!r}"
        )
    return int(parsed[0])


def complete_from(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes names in the shell.

    Parameters
    ----------
    names : callable
        Function that returns all names that can be completed. It is called at each completion.

    Returns
    -------
    callable
        Function that takes the typed beginning of a name and returns the names that start with it.
    """

    def complete(incomplete: str) -> list[str]:
        """Return the names that start with the typed text."""
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
"""Function that completes names of strategies in the shell."""


def option(usage: str, help: str = "", default: Any = None, **settings: Any) -> Any:
    """Declare an option of a command.

    Use the returned object as the default of a parameter of the command's function.

    Parameters
    ----------
    usage : str
        Names of the option. If the option takes a value, a placeholder of the value follows, as in
        ``"--limit -l N"``.
    help : str
        Help text.
    default : object
        Value if the option is omitted. ``...`` makes the option required.
    **settings : object
        More arguments of ``typer.Option``.

    Returns
    -------
    OptionInfo
        Declaration of the option.
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    metavar = words[-1] if len(names) < len(words) else None
    return typer.Option(default, *names, metavar=metavar, help=help, **settings)


def flag(usage: str, help: str, **settings: Any) -> Any:
    """Declare an option without a value. It is True if it is given, and False otherwise.

    Parameters
    ----------
    usage : str
        Names of the option, such as ``"--yes -y"``.
    help : str
        Help text.
    **settings : object
        More arguments of ``typer.Option``.

    Returns
    -------
    OptionInfo
        Declaration of the option.
    """
    return option(usage, help, default=False, **settings)


def argument(metavar: str, help: str, default: Any = None, **settings: Any) -> Any:
    """Declare a positional argument of a command.

    Use the returned object as the default of a parameter of the command's function.

    Parameters
    ----------
    metavar : str
        Placeholder of the argument in the help, such as ``"PATH…"``.
    help : str
        Help text.
    default : object
        Value if the argument is omitted. ``...`` makes the argument required.
    **settings : object
        More arguments of ``typer.Argument``.

    Returns
    -------
    ArgumentInfo
        Declaration of the argument.
    """
    return typer.Argument(default, metavar=metavar, help=help, **settings)


JSON = flag("--json", "Print the result as JSON.")
NO_PROGRESS = flag("--no-progress", "Do not show a progress bar.")
FORCE = flag("--force", "Replace output files that already exist.")
WRITABLE_FORMAT = option(
    "--to NAME",
    "Format to write: native, openai, anthropic or atif. Only native keeps all data.",
    default="native",
    autocompletion=complete_from(lambda: ("native", "openai", "anthropic", "atif")),
)
RESERVE = option(
    "--reserve TOKENS",
    "Part of the limit to keep free for the reply, in tokens, such as 8000 or 8k.",
    parser=_parse_reserve,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that the commands for recordings share.

    A field is None if the command does not have the option. The fields from ``data`` to ``on_error``
    are fields of ``Spec`` with the same names.
    """

    FIRST = ("data", "answer_model", "strategies", "limits", "model", "reserve")
    "fields that the help lists before the command's own options"
    SECTIONS = MappingProxyType(
        {
            "Recordings": ("where", "sample", "seed", "format", "columns", "clusters", "on_error"),
            "Cost and limits": ("cache_ttl", "fixed", "fixed_in_limit", "reasoning"),
            "Closed loop": ("closed_loop", "max_refetches", "repeatable", "latency"),
            "Model calls": ("calls", "replicates", "max_cost", "concurrency", "dry_run"),
            "Output": ("out", "sort", "top", "shown", "json", "csv", "no_cache", "no_progress"),
        }
    )
    "fields by the heading of the section in which the help lists them; the others come first"

    data: list[str] | None = argument(
        "PATH…",
        "Recordings to read: files, folders, globs, URLs (s3://…, zip://*::logs.zip), "
        "bundled:NAME (a data set that is part of ctxlab), dataset:NAME (see ctxlab datasets) or "
        "hf:OWNER/NAME[:SPLIT] (a data set of the Hugging Face hub).",
        default=...,
    )
    strategies: list[str] | None = option(
        "--strategy -s STRATEGY", autocompletion=complete_strategy
    )
    limits: list[str] | None = option(
        "--limit -l N",
        "Maximum size of a request and its reply: tokens (16000, 16k) or a share of each "
        "recording's length (0.25, 25%). May be repeated. Default: 25% and 50%, or the limits "
        "of the experiment file if one is named.",
    )
    model: str | None = option(
        "--model -m MODEL",
        "Model used for the token counts, prices and validity checks of all recordings. Default: "
        "the model that each recording names, else gpt-5.",
    )
    reserve: int | None = RESERVE
    cache_ttl: str | None = option(
        "--cache-ttl 5m|1h|recorded",
        "How long the provider's prompt cache keeps what a request writes, where it sells two "
        "lifetimes (Claude): 5m, 1h (dearer), or recorded: as each recording was billed, including "
        "the requests that found the cache expired; 5m where no bills are recorded. Default: recorded.",
        autocompletion=complete_from(lambda: ("5m", "1h", "recorded")),
    )
    fixed: int | None = option(
        "--fixed TOKENS|recorded",
        "Tokens of each request that no log contains (system prompt, tool definitions) and that the "
        "cost includes: a number, 0 for none, or recorded: estimated from the bills of each recording, "
        "0 without bills. Token counts never include them. Default: recorded.",
        parser=_parse_fixed,
    )
    fixed_in_limit: bool = flag(
        "--fixed-in-limit",
        "Count the tokens of --fixed in the limits, as a context window does. Coding agents send 25,000 "
        "to 50,000 of them.",
    )
    reasoning: str | None = option(
        "--reasoning auto|keep|current_turn|clear|recorded",
        "Hidden reasoning of earlier replies that requests contain: keep (of all replies), current_turn "
        "(of those since the last message of the user), clear (none), or auto: by the rule of each "
        "model's provider. It then counts towards the limit. recorded: token counts do not contain it, "
        "and the cost follows the bills. Default: recorded.",
        autocompletion=complete_from(lambda: ("auto", "keep", "current_turn", "clear", "recorded")),
    )
    min_recall: float | None = option(
        "--min-recall SHARE",
        "Minimum recall of a recommended strategy, as a share of the recall of full history. The "
        "recommendation names the recall score that it uses. Default: 0.95.",
    )
    metrics: list[str] | None = option(
        "--metric NAME",
        "Metric to measure; ctxlab metrics lists the names. May be repeated. Default: all metrics but "
        "closed_loop.",
        autocompletion=complete_from(_metric_names),
    )
    closed_loop: bool = flag(
        "--closed-loop",
        "Also replay each configuration with an agent that repeats tool calls to fetch what it needs "
        "and no longer holds, and add the cost of these requests.",
    )
    max_refetches: int | None = option(
        "--max-refetches K",
        "With --closed-loop: maximum number of repeated calls before one action. Default: 5.",
    )
    repeatable: list[str] | None = option(
        "--repeatable NAME",
        "With --closed-loop: a tool, or a shell command by its first words ('$ kubectl get'), that the "
        "agent can repeat; '!NAME' for one that it cannot. May be repeated. ctxlab knows the read-only "
        "tools of common agents.",
    )
    latency: float | None = option(
        "--latency SECONDS",
        "With --closed-loop: assumed time of one request, in seconds. Default: 5.",
    )
    calls: str | None = option(
        f"--cache-mode {'|'.join(_CACHE_MODES)}",
        "Source of model replies. auto reads the cache .ctxlab/calls and calls the model if a reply "
        "is missing. replay only reads the cache. record calls the model for every reply and "
        "stores the new replies. Default: auto.",
        parser=_parse_cache_mode,
        autocompletion=complete_from(lambda: _CACHE_MODES),
    )
    where: list[str] | None = option(
        "--where -w CONDITION",
        "Use only recordings that meet this condition, such as messages>=50, tokens>=20k, "
        "model=claude* or id=a/*. May be repeated; a recording must meet all conditions.",
    )
    sample: int | None = option("--sample N", "Use a random sample of N recordings.")
    seed: int | None = option(
        "--seed N", "Seed for random choices, such as the sample. Default: 0."
    )
    format: str | None = option(
        "--format NAME",
        "Format of the recordings; ctxlab formats lists the names. Default: detected for each file.",
        autocompletion=complete_from(_format_names),
    )
    columns: str | None = option(
        "--input-columns FIELD=COLUMN,…",
        "Columns of tables that are read (Parquet, CSV, TSV, JSONL), such as "
        "messages=history,id=key,cluster=repo, or role=speaker,content=text,id=thread,order=turn if "
        "each row is a message. Default: columns with known names.",
    )
    clusters: str | None = option(
        "--clusters FILE",
        "TSV or CSV file with the columns file and cluster. Each recording gets the cluster of its "
        "file.",
    )
    on_error: str | None = option(
        "--on-error raise|skip",
        "How to treat a malformed line, and a named file that cannot be read: raise stops with an "
        "error; skip omits the line or file and counts it. Default: raise.",
        autocompletion=complete_from(lambda: ("raise", "skip")),
    )
    answer_model: str = option(
        "--answer-model -a MODEL", "Model to ask, by its litellm name (gpt-5-mini).", default=...
    )
    replicates: int = option(
        "--replicates N", "Ask each question N times to measure how answers vary.", default=1
    )
    max_cost: float | None = option(
        "--max-cost USD", "Maximum cost in US dollars. The run stops before it costs more."
    )
    concurrency: int | None = option(
        "--concurrency N", "Maximum number of concurrent model calls. Default: 5."
    )
    dry_run: bool = flag(
        "--dry-run", "Print the number of model calls and their cost, without calling a model."
    )
    no_cache: bool = flag(
        "--no-cache",
        "Count all tokens anew, and store no counts. The result is the same; see ctxlab cache.",
        callback=_use_cache,
    )
    out: Path | None = option("--out DIR", parser=parse_out_folder)
    sort: str | None = option(
        "--sort COLUMN",
        "Sort the rows within each limit by this column, the best first: the lowest cost, the highest "
        "recall. -COLUMN reverses the order. --csv prints the names of the columns.",
    )
    top: int | None = option(
        "--top N",
        "Print only the first N strategies within each limit. Controls are printed as well.",
        min=1,
    )
    shown: str | None = option(
        "--columns A,B,…", "Print these columns, and the strategy and its limit."
    )
    json: bool = JSON
    csv: bool = flag("--csv", "Print the result as CSV, with all columns unless --columns is set.")
    no_progress: bool = NO_PROGRESS

    @property
    def progress(self) -> bool | None:
        """False to show no progress bar; None to show one only on a terminal."""
        return False if self.no_progress else None

    @property
    def view(self) -> TableView:
        """Rows and columns to print."""
        from ctxlab.cli.render.table import TableView

        if self.json and self.csv:
            raise SpecError("expected --json or --csv, got both; use only one of them")
        names = (name.strip() for name in (self.shown or "").split(","))
        return TableView(self.sort or "", self.top, tuple(filter(None, names)))

    @property
    def changes(self) -> dict[str, Any]:
        """Values of the options that are set, by field of ``Spec``; lists are converted to tuples."""
        from ctxlab.evaluation.spec import Spec

        given = {name: getattr(self, name, None) for name in Spec.__struct_fields__}
        found = {k: v for k, v in given.items() if v is not None and v is not False and v != []}
        return {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}

    def spec(self, **defaults: Any) -> Spec:
        """Create an experiment from the options.

        Parameters
        ----------
        **defaults : object
            Values for fields of the experiment that no option sets.

        Returns
        -------
        Spec
            Experiment with the values of the options.
        """
        from ctxlab.evaluation.spec import Spec

        return Spec(**defaults | self.changes)


def with_options(names: str = "", **helps: str) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds shared options to a command.

    The command receives the values of the shared options as one object, in its first parameter. The
    annotation of this parameter is a data class whose fields are options, such as ``Options``.

    Parameters
    ----------
    names : str
        Fields of the data class to add, separated by spaces. An empty string adds all fields.
    **helps : str
        New help texts by field. They replace the help texts of the data class. To replace also the
        placeholder of the value, write it before the help text: ``"SPACE:: Search space."``.

    Returns
    -------
    callable
        Decorator of the command's function. The help first lists the shared options in the class
        attribute ``FIRST``, then the command's own options, then the other shared options.
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
        for title, fields in getattr(holder.annotation, "SECTIONS", {}).items():
            for name in chosen.keys() & set(fields):
                option = copy(chosen[name].default)
                option.rich_help_panel = title
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
    r"""Convert a docstring to a help text that keeps the line breaks of examples and indented blocks.

    Parameters
    ----------
    text : str, optional
        Docstring of a command.

    Returns
    -------
    str or None
        Help text; None if ``text`` is None. A backspace character before a paragraph tells click not
        to wrap the paragraph.

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
    """A command whose help lists options by section, and does not wrap the lines of examples."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*args, help=keep_blocks(help), **settings)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options by section."""
        titles = ("Arguments", "Options", *Options.SECTIONS)
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                title = "Arguments" if each.param_type_name == "argument" else "Options"
                sections[getattr(each, "rich_help_panel", None) or title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=_OPTION_WIDTH)


class _Group(TyperGroup):
    """A command with subcommands. If it is run without a subcommand, it prints its help."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*args, help=keep_blocks(help), **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """A program with commands, or a command with subcommands.

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
        """Return a decorator that registers a function as a command.

        Parameters
        ----------
        name : str, optional
            Name of the command. None derives it from the name of the function.
        cls : type, optional
            Class of the command.
        **settings : object
            More arguments of ``typer.Typer.command``.

        Returns
        -------
        callable
            Decorator that registers a function and returns it unchanged.
        """
        return super().command(name, cls=cls, **settings)
