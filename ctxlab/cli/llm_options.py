"""Options, cost estimates and clients of the commands that call a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from ctxlab.cli.output import print_note, report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec
    from ctxlab.llm import CachedClient
    from ctxlab.llm.batch import RequestEstimate
    from ctxlab.messages.types import Recording

AnswerModel: TypeAlias = Annotated[
    str,
    typer.Option(
        "--answer-model", "-a", metavar="MODEL", help="Model that answers; any name litellm knows."
    ),
]
Replicates: TypeAlias = Annotated[
    int,
    typer.Option(metavar="N", help="Ask each question N times, to measure the model's own noise."),
]
MaxCost: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="USD", help="Stop before the cost exceeds this many dollars."),
]
Concurrency: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Model calls to run at the same time [5].")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the number of calls and their cost; call no model.")
]

_Result = TypeVar("_Result")


def make_client(spec: Spec, max_cost: float | None, concurrency: int | None) -> CachedClient:
    """Return a client that caches answers and stops at a cost limit.

    Parameters
    ----------
    spec : Spec
        The experiment; its ``calls`` is the cache mode.
    max_cost : float, optional
        Limit in dollars; None sets no limit.
    concurrency : int, optional
        Calls that run at the same time; None takes the default.

    Returns
    -------
    CachedClient
        The client.

    Raises
    ------
    SpecError
        If ``concurrency`` is below 1.
    """
    from ctxlab.llm import MAX_CONCURRENT_CALLS
    from ctxlab.llm.batch import build_cost_limited_client

    if concurrency is not None and concurrency < 1:
        raise SpecError(f"--concurrency: expected 1 or more, got {concurrency}")
    return build_cost_limited_client(
        max_cost, spec.calls, concurrency=concurrency or MAX_CONCURRENT_CALLS
    )


def apply_to_recordings(spec: Spec, function: Callable[[Iterable[Recording]], _Result]) -> _Result:
    """Call a function with the recordings of an experiment and note what was not read.

    Parameters
    ----------
    spec : Spec
        The experiment.
    function : callable
        Takes an iterable of recordings, which is read once.

    Returns
    -------
    object
        The function's result.
    """
    with report_skipped() as (on_skip, rows):

        def recordings() -> Iterator[Recording]:
            for recording in spec.recordings(on_skip):
                rows.update(recording.skipped)
                yield recording

        return function(recordings())


def estimate_text(estimate: RequestEstimate, model: str, calls: str) -> str:
    """Return the end of the sentence that begins with a number of questions: how many cost what.

    Parameters
    ----------
    estimate : RequestEstimate
        Questions, cached questions, tokens and dollars.
    model : str
        The model that will be called.
    calls : str
        The cache mode.

    Returns
    -------
    str
        Text that begins with a comma, a semicolon or a colon.

    Examples
    --------
    >>> from ctxlab.llm.batch import RequestEstimate
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "auto")
    ', 300 cached or repeated, at most $12.30 with gpt-5-mini'
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "replay")
    ', 300 cached or repeated; 100 have no answer: --cache-mode auto asks gpt-5-mini'
    """
    known = f", {estimate.known:,} cached or repeated" if estimate.known else ""
    if estimate.known == estimate.questions:
        return f"{known}: no calls of {model} are needed"
    if calls == "replay":
        left = estimate.questions - estimate.known
        verb = "has" if left == 1 else "have"
        return f"{known}; {left:,} {verb} no answer: --cache-mode auto asks {model}"
    places = 2 if estimate.usd >= 1 else 4
    price = (
        "price unknown" if estimate.usd != estimate.usd else f"at most ${estimate.usd:,.{places}f}"
    )
    return f"{known}, {price} with {model}"


def estimate_json(parts: Iterable[tuple[str, RequestEstimate]]) -> str:
    """Return cost estimates as a JSON array with one object per model.

    ``usd`` is an upper bound for the questions that are not cached; null if the price is unknown.

    Parameters
    ----------
    parts : iterable of tuple of (str, RequestEstimate)
        Models and their estimates.

    Returns
    -------
    str
        The array.
    """
    from ctxlab.cli.render.format import to_json_array

    return to_json_array({"model": model, **each._asdict()} for model, each in parts)


@contextmanager
def note_kept_answers_on_cancel(spec: Spec) -> Iterator[None]:
    """Note on an interruption that the answers so far are stored.

    Parameters
    ----------
    spec : Spec
        The experiment; its ``calls`` is the cache mode.
    """
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    try:
        yield
    except KeyboardInterrupt:
        if spec.calls != "replay":
            print_note(
                f"the answers so far are stored in {DEFAULT_CACHE_FOLDER}; run the same command again "
                "to continue"
            )
        raise


def _format_usd(usd: float) -> str:
    """Format dollars with cents, or with more digits if needed to be exact.

    >>> _format_usd(5), _format_usd(0.004), _format_usd(1250.5)
    ('$5.00', '$0.004', '$1,250.50')
    """
    return f"${usd:,.2f}" if round(usd, 2) == usd else f"${usd:,.15g}"


def note_cost_terms(spec: Spec, max_cost: float | None) -> None:
    """Note what will be called, where it stops, and which costs cannot be estimated.

    Parameters
    ----------
    spec : Spec
        The experiment.
    max_cost : float, optional
        Limit in dollars.
    """
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    if spec.calls == "replay":
        print_note(f"no model is called: answers are read from {DEFAULT_CACHE_FOLDER}")
    elif max_cost is not None:
        kept = f"the answers until then are stored in {DEFAULT_CACHE_FOLDER}"
        print_note(f"the run stops before it costs more than {_format_usd(max_cost)}; {kept}")
    if spec.strategy_models:
        within = "; it counts towards the same limit" if max_cost is not None else ""
        print_note(
            f"strategies call {', '.join(spec.strategy_models)} themselves; that cost cannot be "
            f"estimated and is added{within}"
        )


def add_spec_to_manifest(results: Results, spec: Spec) -> None:
    """Store the experiment in the manifest, so that its data can be read again from any folder.

    Parameters
    ----------
    results : Results
        The results; their manifest is changed.
    spec : Spec
        The experiment.
    """
    import os

    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(spec)
    fields["folder"] = os.path.abspath(spec.folder or ".")
    fields["profiles"] = results.manifest["spec"]["profiles"]
    del fields["metrics"]
    results.manifest["spec"] = fields
