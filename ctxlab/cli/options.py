"""Options that several commands share: which recordings to read, and how."""

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

Paths: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        help="Recordings: files, folders, globs, URLs (s3://…, zip://*::logs.zip), bundled:NAME, "
        "dataset:NAME.",
    ),
]
FormatName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the recordings, as listed by ctxlab formats [detected].",
    ),
]
OnErrorPolicy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--on-error", metavar="raise|skip", help="Stop at a broken line, or skip it [raise]."
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Keep recordings that match, such as messages>=50, tokens>=20k, model=claude*, id=a/*. "
        "May be repeated; all conditions must hold.",
    ),
]
Sample: TypeAlias = Annotated[
    int | None, typer.Option("--sample", metavar="N", help="Use N of the recordings, at random.")
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Random seed; the same N draws the same sample [0]."),
]
Limits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        "-l",
        metavar="N",
        help="Context window: tokens (16000, 16k) or a share of each recording's length (0.25, 25%). "
        "May be repeated.",
    ),
]
ModelName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model whose tokenizer, prices and rules apply to all recordings [each recording's own].",
    ),
]
Reserve: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS", help="Tokens of the limit to keep free, usually for the reply (8000, 8k)."
    ),
]


def parse_cache_mode(text: str) -> str:
    """Return a value of ``--cache-mode`` if it is one of the modes.

    Parameters
    ----------
    text : str
        The value.

    Returns
    -------
    str
        The same value.

    Raises
    ------
    SpecError
        If it is not a mode.
    """
    if text not in _CACHE_MODES:
        raise SpecError(f"--cache-mode: expected {' or '.join(_CACHE_MODES)}, got {text!r}")
    return text


_CACHE_MODES = ("auto", "replay", "record")

CacheModeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(_CACHE_MODES),
        parser=parse_cache_mode,
        help="Where a model's answers come from. auto: from .ctxlab/calls, else call the model; "
        "replay: from .ctxlab/calls only; record: call the model again [auto].",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
NoProgress: TypeAlias = Annotated[
    bool, typer.Option("--no-progress", help="Do not show a progress bar.")
]


def make_spec(paths: list[str], **options: Any) -> Spec:
    """Return an experiment from options; options that were not given keep their defaults.

    Parameters
    ----------
    paths : list of str
        Where the recordings are.
    **options : object
        Fields of the experiment; None and empty lists count as not given.

    Returns
    -------
    Spec
        The experiment.
    """
    from ctxlab.evaluation.spec import Spec

    return Spec(data=tuple(paths), **drop_unset(**options))


def drop_unset(**options: Any) -> dict[str, Any]:
    """Return the options that were given, with lists as tuples.

    Parameters
    ----------
    **options : object
        Options; None and empty lists count as not given.

    Returns
    -------
    dict
        The options that were given.

    Examples
    --------
    >>> drop_unset(limits=["16k"], where=[], model=None, seed=0)
    {'limits': ('16k',), 'seed': 0}
    """
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in options.items()
        if value not in (None, [])
    }


def load_experiment(paths: list[str], overrides: dict[str, Any]) -> tuple[Spec, Path | None]:
    """Read the experiment that a command was asked to run.

    Without any path it is the built-in quickstart.

    Parameters
    ----------
    paths : list of str
        Data, and at most one experiment file or saved run.
    overrides : dict
        Fields that options replace.

    Returns
    -------
    spec : Spec
        The experiment.
    run : Path or None
        The saved run whose data is read again, if there is one.

    Raises
    ------
    SpecError
        If several experiments are named.
    """
    from msgspec.structs import replace

    from ctxlab.evaluation.spec import Spec, is_spec, read_spec
    from ctxlab.formats.io.datasets import bundled_path

    experiments = [path for path in paths if is_spec(path)]
    data = tuple(path for path in paths if path not in experiments)
    if len(experiments) > 1:
        raise SpecError(
            f"expected one experiment, got {len(experiments)}: {' and '.join(experiments)}; run them "
            "one at a time"
        )
    if data:
        overrides |= {"data": data, "folder": ""}
    if data and not experiments:
        return Spec(**overrides), None
    path = Path(experiments[0]) if experiments else bundled_path("evals/quickstart.toml")
    spec = read_spec(path)
    if path.suffix != ".toml" and overrides.keys() & {"data", "model"}:
        # The token profiles of a saved run belong to its models and do not apply to others.
        overrides |= {"profiles": None}
    spec = replace(spec, **overrides)
    return spec, None if data or path.suffix == ".toml" else path


@contextmanager
def suggest_on_error_skip(policy: str) -> Iterator[None]:
    """Add a hint about ``--on-error skip`` to errors about a broken line.

    Parameters
    ----------
    policy : str
        The value of ``--on-error``; with ``"skip"`` errors are not changed.
    """
    try:
        yield
    except ReadError as error:
        if error.line is None or policy == "skip":
            raise
        hint = f"{error.reason}; --on-error skip skips the line"
        raise ReadError(error.path, error.line, hint) from None


def parse_reserve(text: str | None) -> int | None:
    """Return the value of ``--reserve`` in tokens.

    Parameters
    ----------
    text : str, optional
        A number as people write it, such as ``"8k"``.

    Returns
    -------
    int or None
        Tokens; None if the option was not given.

    Raises
    ------
    SpecError
        If it is not a whole number of tokens.
    """
    if text is None:
        return None
    parsed = parse_quantity(text)
    if parsed is None or parsed[1] or parsed[0] != int(parsed[0]):
        raise SpecError(
            f"--reserve: expected 0 or more whole tokens, such as 8000 or 8k, got {text!r}"
        )
    return int(parsed[0])
