"""What the commands have in common that ask a model: the bill that is told before, and the client."""

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

__all__ = [
    "AnswerModel",
    "Concurrency",
    "DryRun",
    "MaxCost",
    "Replicates",
    "add_spec_to_manifest",
    "apply_to_recordings",
    "estimate_json",
    "estimate_text",
    "make_client",
    "note_cost_terms",
    "note_kept_answers_on_cancel",
]

AnswerModel: TypeAlias = Annotated[
    str,
    typer.Option(
        "--answer-model", "-a", metavar="MODEL", help="Who is asked; any name that litellm knows."
    ),
]
Replicates: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Times that each is asked: shows the model's own noise.")
]
MaxCost: TypeAlias = Annotated[
    float | None, typer.Option(metavar="USD", help="Stop before so many dollars are passed.")
]
Concurrency: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Questions under way at a time [5].")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what it would take, and ask nothing.")
]

_Result = TypeVar("_Result")


def make_client(spec: Spec, max_cost: float | None, concurrency: int | None) -> CachedClient:
    """Whom a command asks: answers are kept, and no more is spent than is allowed."""
    from ctxlab.llm import MAX_CONCURRENT_CALLS
    from ctxlab.llm.batch import build_cost_limited_client

    if concurrency is not None and concurrency < 1:
        raise SpecError(f"concurrency: 1 or more, not {concurrency}")
    return build_cost_limited_client(
        max_cost, spec.calls, concurrency=concurrency or MAX_CONCURRENT_CALLS
    )


def apply_to_recordings(spec: Spec, function: Callable[[Iterable[Recording]], _Result]) -> _Result:
    """What ``function`` makes of the recordings; they are read once more when they are asked about.

    What was left out is said here, whether or not all goes well.
    """
    with report_skipped() as (on_skip, rows):

        def recordings() -> Iterator[Recording]:
            for recording in spec.recordings(on_skip):
                rows.update(recording.skipped)
                yield recording

        return function(recordings())


def estimate_text(estimate: RequestEstimate, model: str, calls: str) -> str:
    """What comes behind a number of questions: what is known of them, and what the others cost.

    >>> from ctxlab.llm.batch import RequestEstimate
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "auto")
    ', 300 on disk or asked twice, at most $12.30 with gpt-5-mini'
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "replay")
    ', 300 on disk or asked twice; 100 have no answer: --cache-mode auto asks gpt-5-mini'
    """
    known = f", {estimate.known:,} on disk or asked twice" if estimate.known else ""
    if estimate.known == estimate.questions:
        return f"{known}: nothing to ask {model}"
    if calls == "replay":
        left = estimate.questions - estimate.known
        verb = "has" if left == 1 else "have"
        return f"{known}; {left:,} {verb} no answer: --cache-mode auto asks {model}"
    places = 2 if estimate.usd >= 1 else 4
    price = (
        "at no known price"
        if estimate.usd != estimate.usd
        else f"at most ${estimate.usd:,.{places}f}"
    )
    return f"{known}, {price} with {model}"


def estimate_json(parts: Iterable[tuple[str, RequestEstimate]]) -> str:
    """What it would take as one JSON array: an object a model that is asked.

    ``usd`` is the most that questions cost whose answer is not on disk; null where that is not known.
    """
    from ctxlab.cli.render.format import to_json_array

    return to_json_array({"model": model, **each._asdict()} for model, each in parts)


@contextmanager
def note_kept_answers_on_cancel(spec: Spec) -> Iterator[None]:
    """Who interrupts is told that nothing of what was answered is lost."""
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    try:
        yield
    except KeyboardInterrupt:
        if spec.calls != "replay":
            print_note(
                f"what was answered is kept in {DEFAULT_CACHE_FOLDER}, and the same command goes on "
                "there"
            )
        raise


def _format_usd(usd: float) -> str:
    """Dollars as they were typed, with cents where there are no smaller parts.

    >>> _format_usd(5), _format_usd(0.004), _format_usd(1250.5)
    ('$5.00', '$0.004', '$1,250.50')
    """
    return f"${usd:,.2f}" if round(usd, 2) == usd else f"${usd:,.15g}"


def note_cost_terms(spec: Spec, max_cost: float | None) -> None:
    """Nobody should be surprised by a bill: what is asked, until when, and what is not known before."""
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    if spec.calls == "replay":
        print_note(f"nothing is asked: answers are those kept in {DEFAULT_CACHE_FOLDER}")
    elif max_cost is not None:
        kept = f"what is answered by then is kept in {DEFAULT_CACHE_FOLDER}"
        print_note(f"it stops before {_format_usd(max_cost)} are passed; {kept}")
    if spec.strategy_models:
        within = ", within the same bound" if max_cost is not None else ""
        print_note(
            f"strategies ask {', '.join(spec.strategy_models)} themselves: what that takes is not known "
            f"before and comes on top{within}"
        )


def add_spec_to_manifest(results: Results, spec: Spec) -> None:
    """What was read stands in the manifest, so that it can be read again from anywhere."""
    import os

    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(spec)
    fields["folder"] = os.path.abspath(spec.folder or ".")
    fields["profiles"] = results.manifest["spec"]["profiles"]
    del fields["metrics"]
    results.manifest["spec"] = fields
