"""Options that several commands take stand here once: which recordings to read, and how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ctxlab._utils.humanize import parse_quantity
from ctxlab.errors import ReadError, SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec

__all__ = [
    "AsJson",
    "CacheModeOption",
    "FormatName",
    "Limits",
    "ModelName",
    "NoProgress",
    "OnErrorPolicy",
    "Paths",
    "Reserve",
    "Sample",
    "Seed",
    "Where",
    "drop_unset",
    "load_experiment",
    "make_spec",
    "parse_cache_mode",
    "parse_reserve",
    "suggest_on_error_skip",
]

Paths: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        help="Recordings: files, folders, globs, addresses (s3://…, zip://*::logs.zip), "
        "bundled:NAME, dataset:NAME.",
    ),
]
FormatName: TypeAlias = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Read the recordings as this format."),
]
OnErrorPolicy: TypeAlias = Annotated[
    str | None,
    typer.Option("--on-error", metavar="raise|skip", help="What a broken line does [raise]."),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only recordings such as messages>=50, tokens>=20k, model=claude*, id=a/*. May be "
        "repeated: all must hold.",
    ),
]
Sample: TypeAlias = Annotated[
    int | None, typer.Option("--sample", metavar="N", help="Draw N of them at random.")
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Of the sample: the same N draws the same [0]."),
]
Limits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        "-l",
        metavar="N",
        help="Context window: tokens (16000, 16k) or a share of each recording's own length (0.25, "
        "25%). May be repeated.",
    ),
]
ModelName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Whose tokenizer, prices and rules apply to all recordings [each recording's own].",
    ),
]
Reserve: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS", help="Tokens of the limit kept free, for the reply say (8000, 8k)."
    ),
]


def parse_cache_mode(text: str) -> str:
    """One of the modes that ``--cache-mode`` takes; raises ``SpecError`` for anything else."""
    if text not in _CACHE_MODES:
        raise SpecError(f"--cache-mode: expected {' or '.join(_CACHE_MODES)}, got {text!r}")
    return text


_CACHE_MODES = ("auto", "replay", "record")

CacheModeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(_CACHE_MODES),
        parser=parse_cache_mode,
        help="Where a model's answers come from: auto takes those kept in .ctxlab/calls and asks for "
        "the rest, replay asks nothing, record asks anew [auto].",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
NoProgress: TypeAlias = Annotated[bool, typer.Option("--no-progress", help="Show no bar.")]


def make_spec(paths: list[str], **options: Any) -> Spec:
    """What the options ask to be read; those that were not given are left to the experiment."""
    from ctxlab.evaluation.spec import Spec

    return Spec(data=tuple(paths), **drop_unset(**options))


def drop_unset(**options: Any) -> dict[str, Any]:
    """The options that were given, as an experiment has them: what may be repeated is a tuple.

    >>> drop_unset(limits=["16k"], where=[], model=None, seed=0)
    {'limits': ('16k',), 'seed': 0}
    """
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in options.items()
        if value not in (None, [])
    }


def load_experiment(paths: list[str], overrides: dict[str, Any]) -> tuple[Spec, Path | None]:
    """The experiment that was asked for, and the saved run whose data it reads once more."""
    from msgspec.structs import replace

    from ctxlab.evaluation.spec import Spec, is_spec, read_spec
    from ctxlab.formats.io.datasets import bundled_path

    experiments = [path for path in paths if is_spec(path)]
    data = tuple(path for path in paths if path not in experiments)
    if len(experiments) > 1:
        raise SpecError(f"one experiment at a time, not {' and '.join(experiments)}")
    if data:
        overrides |= {"data": data, "folder": ""}
    if data and not experiments:
        return Spec(**overrides), None
    path = Path(experiments[0]) if experiments else bundled_path("evals/quickstart.toml")
    spec = read_spec(path)
    if path.suffix != ".toml" and overrides.keys() & {"data", "model"}:
        # The profiles of a saved run are those of its models, and say nothing of others.
        overrides |= {"profiles": None}
    spec = replace(spec, **overrides)
    return spec, None if data or path.suffix == ".toml" else path


@contextmanager
def suggest_on_error_skip(policy: str) -> Iterator[None]:
    """A broken line that stops a command says which option reads on."""
    try:
        yield
    except ReadError as error:
        if error.line is None or policy == "skip":
            raise
        hint = f"{error.reason}; --on-error skip leaves it out"
        raise ReadError(error.path, error.line, hint) from None


def parse_reserve(text: str | None) -> int | None:
    """Tokens kept free for the reply, as people write a number; None where nothing is said."""
    if text is None:
        return None
    parsed = parse_quantity(text)
    if parsed is None or parsed[1] or parsed[0] != int(parsed[0]):
        raise SpecError(f"reserve: {text!r} is not 0 or more tokens; write 8000 or 8k")
    return int(parsed[0])
