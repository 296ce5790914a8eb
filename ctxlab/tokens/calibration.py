"""What a provider billed for recorded requests teaches how its models count.

A request's bill is what the log does not hold (system prompt, tool definitions), the same all session,
and what it does: text, tool calls and, where it is sent back, hidden reasoning. Text costs by its
tokens and its characters, since what one vocabulary merges another may not. From one request to
the next only what was added matters, so the family's figures are fitted to those differences, with
Huber's weights (Huber 1964): where a client cleared old results without a word the bill falls, and
that one difference does not pull. Recorded compactions are carried out first. Reasoning has a
figure of its own, since smeared over the text it would make every tool result look dearer.

The error is measured on sessions that were left out of the fit, cluster by cluster, and a session's
fixed part is then known from its first bill alone, as it would be live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ctxlab.errors import SpecError
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.tokens.billing import (
    Session,
    bills,
    compare,
    errors,
    in_view,
)
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.profiles import (
    BUILT_IN,
    UNCALIBRATED,
    Profile,
    key_of,
    stored_at,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    _Table: TypeAlias = NDArray[np.float64]

__all__ = ["Calibration", "calibrate"]

_FIGURES = 4
_LEAST = 30
"differences between bills, below which nothing is fitted"


@dataclass(frozen=True)
class Calibration:
    """A profile that was fitted, and what it leaves unexplained."""

    profile: Profile
    sessions: tuple[Session, ...]
    "each with the error that it had while it was left out of the fit"
    passed_over: dict[str, int]
    "what could not be learned from: reason → how many"

    @property
    def frame(self) -> pd.DataFrame:
        """A row a session."""
        import pandas as pd

        return pd.DataFrame([vars(session) for session in self.sessions])

    def save(self, folder: str | Path = ".") -> Path:
        """Stores the profile in a project, where later runs find it; returns the file."""
        path = stored_at(self.profile.family, Path(folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self.profile)) + b"\n")
        return path


@dataclass(frozen=True)
class _Bills:
    """The billed requests of one recording."""

    recording: Recording
    fixed: int
    "counted tokens of each request that are no messages"
    counts: _Table
    "requests × (counted tokens, characters, tool calls, counted tokens of reasoning)"
    images: _Table
    "requests × tokens of images, which no figure scales"
    billed: _Table
    compacted: NDArray[np.bool_]
    "a compaction is recorded between this request and the one before"


def calibrate(
    recordings: Iterable[Recording], model: str, source: str = "own sessions"
) -> Calibration:
    """Fits a profile for the family of ``model`` to its recordings that carry the provider's usage.

    ``source`` is what the profile says of where it comes from. Recordings of other families and such
    without bills are passed over and counted in ``Calibration.passed_over``. Raises ``SpecError``
    for a model whose vocabulary is public, and where the bills are too few or do not grow with what
    was sent.
    """
    import numpy as np

    counter = TokenCounter(model, UNCALIBRATED)
    if counter.exact:
        raise SpecError(
            f"the vocabulary of {model} is public: its tokens are counted, not estimated"
        )
    passed_over: Counter[str] = Counter()
    known = []
    for recording in recordings:
        if key_of(recording.model or model) != key_of(model):
            passed_over[f"recording of {recording.model}"] += 1
        elif (bill := _bills(recording, counter)) is None:
            passed_over["recording without bills"] += 1
        else:
            known.append(bill)
    figures = _fitted(known)
    if figures is None:
        others = f" ({', '.join(passed_over)})" if passed_over else ""
        raise SpecError(
            f"{len(_differences(known)[1])} differences between bills of {key_of(model)} are too few "
            f"to learn from, {_LEAST} are needed: name recordings with the provider's usage{others}"
        )
    if not figures[:2].sum() > 0:
        raise SpecError(
            "the bills do not grow with what was sent: is the usage that of whole requests?"
        )
    sessions, off = [], []
    for cluster in dict.fromkeys(map(_cluster, known)):
        others_fit = _fitted([bill for bill in known if _cluster(bill) != cluster])
        for bill in known:
            if _cluster(bill) == cluster:
                best = _profile(figures if others_fit is None else others_fit)
                expected = _expected(bill, best)
                sessions.append(compare(bill.recording, expected, bill.compacted))
                if others_fit is not None:
                    off.append(errors(expected, bill.billed))
    pooled = np.concatenate(off) if off else None
    profile = msgspec.structs.replace(
        _profile(figures, BUILT_IN.get(key_of(model), UNCALIBRATED)),
        family=key_of(model),
        fixed=int(np.median([session.fixed for session in sessions])),
        error=None if pooled is None else round(float(np.median(pooled)), 4),
        error_90=None if pooled is None else round(float(np.quantile(pooled, 0.9)), 4),
        sessions=len(sessions),
        requests=sum(session.requests for session in sessions),
        models=tuple(dict.fromkeys(b.recording.model for b in known if b.recording.model)),
        source=source,
    )
    return Calibration(profile, tuple(sessions), dict(passed_over))


def _bills(recording: Recording, counter: TokenCounter) -> _Bills | None:
    import numpy as np

    billed = np.array(list(bills(recording).values()), np.float64)
    if len(billed) < 2:
        return None

    def row(message: Message) -> list[float]:
        text, chars, images = counter.parts(message)
        return [text, chars, len(message.tool_calls), counter.reasoning(message), images]

    amounts = np.array([row(message) for message in recording.messages], np.float64)
    totals, compacted = in_view(recording, amounts, row)
    fixed = counter.tools(recording.tools) + counter.REPLY
    return _Bills(recording, fixed, totals[:, :-1], totals[:, -1], billed, compacted)


def _differences(some: Sequence[_Bills]) -> tuple[_Table, _Table]:
    """What was added from one request to the next, and what that added to the bill."""
    import numpy as np

    added, cost = [np.zeros((0, _FIGURES))], [np.zeros(0)]
    for bill in some:
        grown = np.diff(bill.billed - bill.images)
        usable = ~bill.compacted[1:]
        added.append(np.diff(bill.counts, axis=0)[usable])
        cost.append(grown[usable])
    return np.concatenate(added), np.concatenate(cost)


def _fitted(some: Sequence[_Bills]) -> _Table | None:
    """Tokens for each counted token, character, tool call and token of reasoning; nan: never seen.

    No figure is below nothing: the one that comes out furthest below is left out and the rest fitted
    again.
    """
    import numpy as np

    added, cost = _differences(some)
    if len(cost) < _LEAST:
        return None
    figures = np.full(_FIGURES, np.nan)
    seen = np.flatnonzero((added > 0).sum(axis=0) >= _LEAST // 3)
    while len(seen):
        figures[seen] = _huber(added[:, seen], cost)
        if (figures[seen] >= 0).all():
            break
        worst = seen[figures[seen].argmin()]
        figures[worst] = 0
        seen = seen[seen != worst]
    return figures


def _huber(added: _Table, cost: _Table, bend: float = 1.345, rounds: int = 60) -> _Table:
    """Least squares in which what lies further than ``bend`` deviations off weighs ever less."""
    import numpy as np

    weights = np.ones(len(cost))
    figures = np.zeros(added.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weights)
        solved = np.linalg.lstsq(added * root[:, None], cost * root, rcond=None)[0]
        figures = solved.astype(np.float64)
        off = np.abs(cost - added @ figures)
        deviation = max(1.4826 * float(np.median(off)), 1e-9)
        weights = np.minimum(1, bend * deviation / np.maximum(off, 1e-9))
    return figures


def _profile(figures: _Table, basis: Profile = UNCALIBRATED) -> Profile:
    """The figures, and those of ``basis`` where nothing was seen."""
    known = (basis.ratio, basis.per_char, basis.per_call, basis.reasoning)
    ratio, per_char, per_call, reasoning = (
        was if figure != figure else float(figure)
        for figure, was in zip(figures, known, strict=True)
    )
    return Profile(
        ratio=round(ratio, 4),
        per_char=round(per_char, 4),
        per_call=round(per_call, 1),
        reasoning=round(reasoning, 4),
    )


def _expected(bill: _Bills, profile: Profile) -> _Table:
    figures = [profile.ratio, profile.per_char, profile.per_call, profile.reasoning]
    expected: _Table = bill.counts @ figures + bill.images + profile.tokens(bill.fixed, 0)
    return expected


def _cluster(bill: _Bills) -> str:
    return bill.recording.cluster or bill.recording.id
