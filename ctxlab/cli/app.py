"""The program ``ctxlab``. It registers the commands, runs them and prints a failure as one sentence.

Each command is one file in ``ctxlab/cli/commands``. A command imports the modules that it needs only
when it runs, so that ``ctxlab --help`` starts quickly.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from ctxlab._utils.signals import sigterm_as_keyboard_interrupt
from ctxlab.cli.commands import (
    cache,
    calibrate,
    canaries,
    chat,
    compare,
    config,
    convert,
    datasets,
    describe,
    eval,
    gate,
    lists,
    next_action,
    probe,
    products,
    recommend,
    report,
    serve,
    sessions,
    show,
    strategies,
    tune,
)
from ctxlab.cli.options import App, flag
from ctxlab.cli.output import one_line, print_note
from ctxlab.errors import CtxlabError

_EXIT_FAILED, _EXIT_CANCELLED = 2, 130

app = App(
    name="ctxlab",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("eval", short_help="Evaluate strategies on recordings.")(eval.command)
app.command("compare", short_help="Test differences between strategies.")(compare.command)
app.command("tune", short_help="Search for good strategy parameters.")(tune.command)
app.command("recommend", short_help="Recommend a setting of your product.")(recommend.command)
app.command("products", short_help="Compare the defaults of products.")(products.command)
app.command("report", short_help="Write a run as one HTML file.")(report.command)
app.command("gate", short_help="Check that strategies meet budgets (CI).")(gate.command)
app.command("canaries", short_help="Insert facts and measure which are kept.")(canaries.command)
app.command("next-action", short_help="Predict recorded tool calls.")(next_action.command)
app.command("probe", short_help="Ask a model about recordings.")(probe.command)
app.command("chat", short_help="Chat with an agent about a folder.")(chat.command)
app.command("describe", short_help="Summarize what recordings contain.")(describe.command)
app.command("show", short_help="Show what a request contains.")(show.command)
app.command("convert", short_help="Write recordings in another format.")(convert.command)
app.command("calibrate", short_help="Fit token counts to a provider's bills.")(calibrate.command)
app.command("strategies", short_help="List the strategies.")(strategies.command)
app.command("formats", short_help="List the formats of recordings.")(lists.formats)
app.command("metrics", short_help="List the metrics.")(lists.metrics)
app.command("config", short_help="Show the settings of agents.")(config.command)
app.add_typer(datasets.app, name="datasets", short_help="Download public recordings.")
app.add_typer(cache.app, name="cache", short_help="Show or delete stored token counts.")
app.add_typer(sessions.app, name="sessions", short_help="List, read and search stored chats.")
app.add_typer(serve.app, name="serve", short_help="Serve sessions over MCP or HTTP.")


def _print_version(requested: bool) -> None:
    if requested:
        from ctxlab import __version__

        print(f"ctxlab {__version__}")
        raise typer.Exit


@app.callback()
def _describe(
    version: bool = flag(
        "--version -V", "Show the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Measure what context strategies of LLM agents cost and which information they lose.

    A context strategy decides which messages an agent sends to its model. ctxlab replays recorded
    conversations through strategies and measures every request. It works offline and calls no model,
    unless a strategy names one. To see an example, run: ctxlab eval

    ctxlab chat runs an agent with these strategies. Its sessions can be replayed like recordings.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    A failure is printed as one sentence. If the environment variable ``CTXLAB_DEBUG`` is set, the
    traceback is printed as well.

    Parameters
    ----------
    argv : sequence of str, optional
        Command line arguments, without the program's name. None uses ``sys.argv``.

    Returns
    -------
    int
        Exit code. 0: success. 1: a check failed (``ctxlab gate``). 2: invalid input or an unexpected
        failure. 130: cancelled by SIGINT or SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            if "" not in sys.path:  # allow strategies from Python files in the current folder
                sys.path.append("")
            with sigterm_as_keyboard_interrupt():
                words = None if argv is None else list(argv)
                code = _build_command().main(words, prog_name="ctxlab", standalone_mode=False)
                sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            code = _EXIT_CANCELLED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            return _report_failure(error, sys.argv[1:] if argv is None else argv)
    if code == _EXIT_CANCELLED:  # some versions of typer return the code instead of raising
        print("Cancelled", file=sys.stderr)
    return code if isinstance(code, int) else 0


@functools.cache
def _build_command() -> Any:
    """Build the click command that parses all arguments. It is cached, since building it is slow."""
    return typer.main.get_command(app)


def _report_failure(error: Exception, argv: Sequence[str]) -> int:
    if os.environ.get("CTXLAB_DEBUG"):
        traceback.print_exc()
    if isinstance(error, CtxlabError):
        message = str(error)
    elif hasattr(error, "format_message"):  # an error of click's parser
        said = one_line(error.format_message()).rstrip(".")
        message = f"{said}; see {_command_path(error, argv)} --help"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    else:
        why = f": {error}" if str(error) else ""
        message = f"unexpected {type(error).__name__}{why} (CTXLAB_DEBUG=1 shows the traceback)"
    print_note(message)
    return _EXIT_FAILED


def _command_path(error: Exception, argv: Sequence[str]) -> str:
    """Return the command whose arguments are wrong, such as ``ctxlab eval``."""
    if context := getattr(error, "ctx", None):
        return str(context.command_path)
    known = _build_command()
    return " ".join(["ctxlab", *[word for word in argv if word in known.commands][:1]])


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    print_note(f"warning: {message}")
