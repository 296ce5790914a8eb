"""What the commands have in common that ask a model: the bill that is told before, and the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from ctxlab.cli.output import (
    left_out,
    note,
)
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec
    from ctxlab.llm import CachedClient
    from ctxlab.llm.batch import Estimate
    from ctxlab.messages.types import Recording

__all__ = [
    "AnswerModel",
    "Concurrency",
    "DryRun",
    "MaxCost",
    "Replicates",
    "client_of",
    "completed",
    "estimate_json",
    "foreseen",
    "kept_when_cancelled",
    "say_terms",
    "taken",
]

AnswerModel: TypeAlias = Annotated[
    str,
    typer.Option(
        "--answer-model", "-a", metavar="M", help="Who is asked; any name that litellm knows."
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

_Found = TypeVar("_Found")


def client_of(spec: Spec, max_cost: float | None, concurrency: int | None) -> CachedClient:
    """Whom a command asks: answers are kept, and no more is spent than is allowed."""
    from ctxlab.llm import AT_A_TIME
    from ctxlab.llm.batch import paid_client

    if concurrency is not None and concurrency < 1:
        raise SpecError(f"concurrency: 1 or more, not {concurrency}")
    return paid_client(max_cost, spec.calls, concurrency=concurrency or AT_A_TIME)


def foreseen(spec: Spec, look: Callable[[Iterable[Recording]], _Found]) -> _Found:
    """What ``look`` makes of the recordings; they are read once more when they are asked about.

    What was left out is said here, whether or not all goes well.
    """
    with left_out() as (on_skip, rows):

        def recordings() -> Iterator[Recording]:
            for recording in spec.recordings(on_skip):
                rows.update(recording.skipped)
                yield recording

        return look(recordings())


def taken(each: Estimate, model: str, calls: str) -> str:
    """What comes behind a number of questions: what is known of them, and what the others cost.

    >>> from ctxlab.llm.batch import Estimate
    >>> taken(Estimate(400, 300, 9000, 12.3), "gpt-5-mini", "auto")
    ', 300 on disk or asked twice, at most $12.30 with gpt-5-mini'
    >>> taken(Estimate(400, 300, 9000, 12.3), "gpt-5-mini", "replay")
    ', 300 on disk or asked twice; 100 have no answer: --calls auto asks gpt-5-mini'
    """
    known = f", {each.known:,} on disk or asked twice" if each.known else ""
    if each.known == each.questions:
        return f"{known}: nothing to ask {model}"
    if calls == "replay":
        left = each.questions - each.known
        verb = "has" if left == 1 else "have"
        return f"{known}; {left:,} {verb} no answer: --calls auto asks {model}"
    places = 2 if each.usd >= 1 else 4
    price = "at no known price" if each.usd != each.usd else f"at most ${each.usd:,.{places}f}"
    return f"{known}, {price} with {model}"


def estimate_json(parts: Iterable[tuple[str, Estimate]]) -> str:
    """What it would take as one JSON array: an object a model that is asked.

    ``usd`` is the most that questions cost whose answer is not on disk; null where that is not known.
    """
    from ctxlab.cli.render.format import as_json

    return as_json({"model": model, **each._asdict()} for model, each in parts)


@contextmanager
def kept_when_cancelled(spec: Spec) -> Iterator[None]:
    """Who interrupts is told that nothing of what was answered is lost."""
    from ctxlab.llm import CALLS

    try:
        yield
    except KeyboardInterrupt:
        if spec.calls != "replay":
            note(f"what was answered is kept in {CALLS}, and the same command goes on there")
        raise


def _written(usd: float) -> str:
    """Dollars as they were typed, with cents where there are no smaller parts.

    >>> _written(5), _written(0.004), _written(1250.5)
    ('$5.00', '$0.004', '$1,250.50')
    """
    return f"${usd:,.2f}" if round(usd, 2) == usd else f"${usd:,.15g}"


def say_terms(spec: Spec, max_cost: float | None) -> None:
    """Nobody should be surprised by a bill: what is asked, until when, and what is not known before."""
    from ctxlab.llm import CALLS

    if spec.calls == "replay":
        note(f"nothing is asked: answers are those kept in {CALLS}")
    elif max_cost is not None:
        kept = f"what is answered by then is kept in {CALLS}"
        note(f"it stops before {_written(max_cost)} are passed; {kept}")
    if spec.asked:
        within = ", within the same bound" if max_cost is not None else ""
        note(
            f"strategies ask {', '.join(spec.asked)} themselves: what that takes is not known before "
            f"and comes on top{within}"
        )


def completed(found: Results, spec: Spec) -> None:
    """What was read stands in the manifest, so that it can be read again from anywhere."""
    import os

    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(spec)
    fields["folder"] = os.path.abspath(spec.folder or ".")
    fields["profiles"] = found.manifest["spec"]["profiles"]
    del fields["metrics"]
    found.manifest["spec"] = fields
