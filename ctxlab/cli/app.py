"""``ctxlab`` is one small program: each command is a file, and failures are caught here alone.

Commands import what they need when they run, so that ``ctxlab --help`` answers at once.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ctxlab._utils.signals import sigterm_as_keyboard_interrupt
from ctxlab.cli.commands import (
    calibrate,
    canaries,
    chat,
    compare,
    convert,
    datasets,
    describe,
    eval,
    gate,
    lists,
    next_action,
    probe,
    serve,
    sessions,
    strategies,
    tune,
)
from ctxlab.cli.output import one_line, print_note
from ctxlab.errors import CtxlabError

__all__ = ["app", "main"]

_EXIT_FAILED, _EXIT_CANCELLED = 2, 130

app = typer.Typer(
    name="ctxlab",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("eval", short_help="Replay recordings and measure every request.")(eval.command)
app.command("compare", short_help="Say how strategies differ, and how sure that is.")(
    compare.command
)
app.command("tune", short_help="Search the parameters of strategies.")(tune.command)
app.command("gate", short_help="Check strategies against their budgets.")(gate.command)
app.command("canaries", short_help="Plant facts and see which are kept.")(canaries.command)
app.command("next-action", short_help="Ask a model for the next tool call.")(next_action.command)
app.command("probe", short_help="Ask a model the questions of recordings.")(probe.command)
app.command("chat", short_help="Talk with an agent about a folder.")(chat.command)
app.command("describe", short_help="Say what recordings hold.")(describe.command)
app.command("convert", short_help="Write recordings in another format.")(convert.command)
app.command("calibrate", short_help="Learn from bills how a model counts.")(calibrate.command)
app.command("strategies", short_help="List the strategies.")(strategies.command)
app.command("formats", short_help="List the formats of recordings.")(lists.formats)
app.command("metrics", short_help="List what is measured.")(lists.metrics)
app.add_typer(datasets.app, name="datasets", short_help="List and fetch published recordings.")
app.add_typer(sessions.app, name="sessions", short_help="List, read and search kept chats.")
app.add_typer(serve.app, name="serve", short_help="Serve sessions, by MCP or HTTP.")


def _print_version(requested: bool) -> None:
    if requested:
        from ctxlab import __version__

        print(f"ctxlab {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main_callback(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Which context strategy should an agent use, what does it save, and what does it forget?

    ctxlab replays recorded conversations through context strategies and measures every request.
    It works offline and calls no model, unless a strategy names one. Begin with: ctxlab eval.
    ctxlab chat is an agent on the same strategies, whose sessions are recordings.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code and never shows a traceback.

    0: done. 1: a check was made and does not hold (``ctxlab gate``). 2: bad input or an unexpected
    failure, in one sentence; ``CTXLAB_DEBUG=1`` shows the traceback. 130: cancelled, by SIGINT or
    SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            _add_current_folder_to_path()
            with sigterm_as_keyboard_interrupt():
                code = _build_command().main(
                    None if argv is None else list(argv),
                    prog_name="ctxlab",
                    standalone_mode=False,
                )
                sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            code = _EXIT_CANCELLED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            return _report_failure(error, sys.argv[1:] if argv is None else argv)
    if code == _EXIT_CANCELLED:  # which some versions of typer return and others raise
        print("Cancelled", file=sys.stderr)
    return code if isinstance(code, int) else 0


@functools.cache
def _build_command() -> Any:
    """The parser of all commands, which takes a while to make."""
    return typer.main.get_command(app)


def _add_current_folder_to_path() -> None:
    """A strategy of one's own is imported from the current folder, after all that is installed."""
    if "" not in sys.path:
        sys.path.append("")


def _report_failure(error: Exception, argv: Sequence[str]) -> int:
    if os.environ.get("CTXLAB_DEBUG"):
        traceback.print_exc()
    if isinstance(error, CtxlabError):
        print_note(str(error))
        return _EXIT_FAILED
    if hasattr(error, "format_message"):  # how the parser of the command line complains
        message = one_line(error.format_message()).rstrip(".")
        print_note(f"{message}; {_command_path(error, argv)} --help shows what there is")
        return _EXIT_FAILED
    if isinstance(error, OSError) and error.filename is not None:
        print_note(f"{error.filename}: {error.strerror}")
        return _EXIT_FAILED
    message = f": {error}" if str(error) else ""
    print_note(f"unexpected {type(error).__name__}{message} (CTXLAB_DEBUG=1 shows where)")
    return _EXIT_FAILED


def _command_path(error: Exception, argv: Sequence[str]) -> str:
    """The command that was meant, whose help says what it takes."""
    if context := getattr(error, "ctx", None):
        return str(context.command_path)
    known: Any = typer.main.get_command(app)
    return " ".join(["ctxlab", *[word for word in argv if word in known.commands][:1]])


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    print_note(f"warning: {message}")
