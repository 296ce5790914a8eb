"""Fit a token profile for a family of models to the billed tokens of recorded requests.

The billed tokens of a request have two parts. The fixed part, such as the system prompt and the
tool definitions, is not in the log. The other part is in the log: text, tool calls and, if the
client sends it back, hidden reasoning. It is modelled as a sum of counted tokens, characters, tool
calls and reasoning tokens, each multiplied by a weight. These weights are the profile. The fixed
part cancels out in the differences between consecutive requests, so the weights are fitted to these
differences. The fit is a robust regression (Huber), in which outliers have little influence, such as
a client that clears old tool results without recording it. Recorded compactions are applied before
the fit.

The error is measured by cross-validation: for each cluster, the weights are fitted to all
recordings outside the cluster, and the error is measured on the recordings of the cluster. The fixed
part of these recordings is estimated from their first bill only, as in a live conversation.

References
----------
- Huber, P. J. (1964). "Robust estimation of a location parameter." Annals of Mathematical
  Statistics 35(1), 73-101.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, Recording
from ctxlab.tokens.billing import (
    BilledSession,
    FloatArray,
    billed_input_tokens,
    build_billed_session,
    relative_errors,
    sum_recorded_context,
)
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile, find_profile, profile_key

if TYPE_CHECKING:
    import pandas as pd

_WEIGHTS = ("ratio", "per_char", "per_call", "reasoning")
"fitted fields of a profile, in the order of the columns of ``_BilledRequests.counts``"
_DIGITS = (4, 4, 1, 4)
"number of decimals to which each weight is rounded"
_MIN_DIFFERENCES = 30
"minimum number of differences between consecutive bills that a fit needs"


@dataclass(frozen=True)
class Calibration:
    """A fitted token profile with the error of each recording.

    Examples
    --------
    >>> import ctxlab
    >>> from ctxlab import Message, Recording, Usage
    >>> messages, billed = [], 2000  # tokens of a system prompt that the log omits
    >>> for turn in range(1, 40):
    ...     text = "The reader splits lines. " * turn + "0.125 " * (turn * 7 % 11)
    ...     messages.append(Message("user", text))
    ...     billed += round(1.2 * ctxlab.count_tokens(text, "claude-opus-4-5"))
    ...     messages.append(Message("assistant", "Yes.", usage=Usage(input=billed, output=2)))
    >>> found = ctxlab.calibrate([Recording("log", tuple(messages))], "claude-opus-4-5")
    >>> found.frame["requests"].tolist(), found.skipped
    ([39], {})
    """

    profile: TokenProfile
    "the fitted profile"
    sessions: tuple[BilledSession, ...]
    "comparison for each recording; its error is that of weights fitted without its cluster"
    skipped: dict[str, int]
    "number of skipped recordings by reason"

    @property
    def frame(self) -> pd.DataFrame:
        """The comparisons in ``sessions`` as a data frame: one row per recording, fields as columns."""
        import pandas as pd

        return pd.DataFrame([vars(session) for session in self.sessions])

    def save(self, folder: str | Path = ".") -> Path:
        """Save the profile in a project folder, so that ``find_profile`` uses it for this project.

        Parameters
        ----------
        folder : str or Path, optional
            Folder of the project.

        Returns
        -------
        Path
            Path of the profile file.
        """
        return self.profile.save(Path(folder))


@dataclass(frozen=True)
class _BilledRequests:
    """Counted and billed tokens of the billed requests of one recording."""

    recording: Recording
    fixed: int
    "counted tokens of each request besides its messages: tool definitions, opening of the reply"
    counts: FloatArray
    "one row per request: counted tokens, characters, tool calls, counted tokens of reasoning"
    images: FloatArray
    "tokens of images per request, to which no weight applies"
    billed: FloatArray
    compacted: NDArray[np.bool_]
    "per request: True if a compaction is recorded between the previous request and this one"

    @property
    def cluster(self) -> str:
        """Cluster of the recording."""
        return self.recording.cluster or self.recording.id


def calibrate(
    recordings: Iterable[Recording], model: str, source: str = "own sessions"
) -> Calibration:
    """Fit a token profile for the family of a model to recordings with billed usage.

    Recordings of other families and recordings without billed usage are skipped and counted in
    ``Calibration.skipped``.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings with the usage that the provider billed.
    model : str
        Name of a model of the family to calibrate.
    source : str, optional
        Description of the recordings, stored in the profile.

    Returns
    -------
    Calibration
        Fitted profile with the error of each recording.

    Raises
    ------
    SpecError
        If the tokenizer of the model is public, if too few requests have billed usage, or if the
        billed tokens do not grow with the messages.

    Examples
    --------
    >>> import ctxlab
    >>> from ctxlab import Message, Recording, Usage
    >>> messages, billed = [], 2000  # tokens of a system prompt that the log omits
    >>> for turn in range(1, 40):
    ...     text = "The reader splits lines. " * turn + "0.125 " * (turn * 7 % 11)
    ...     messages.append(Message("user", text))
    ...     billed += round(1.2 * ctxlab.count_tokens(text, "claude-opus-4-5"))
    ...     messages.append(Message("assistant", "Yes.", usage=Usage(input=billed, output=2)))
    >>> found = ctxlab.calibrate([Recording("log", tuple(messages))], "claude-opus-4-5")
    >>> found.profile.requests, abs(found.profile.fixed - 2000) < 100
    (39, True)
    """
    counter = TokenCounter(model, UNCALIBRATED)
    if counter.exact:
        raise SpecError(f"the tokenizer of {model} is public, so its counts need no calibration")
    skipped: Counter[str] = Counter()
    known, key = [], profile_key(model)
    for recording in recordings:
        if profile_key(recording.model or model) != key:
            skipped[f"recording of {recording.model}"] += 1
        elif (bill := _collect_billed_requests(recording, counter)) is None:
            skipped["recording without billed usage"] += 1
        else:
            known.append(bill)
    figures = _fit_weights(known)
    if figures is None:
        others = f" (skipped: {', '.join(skipped)})" if skipped else ""
        what = f"{_MIN_DIFFERENCES} pairs of consecutive billed requests for {key}"
        advice = f"add recordings that contain billed usage{others}"
        raise SpecError(f"Expected at least {what}, got {len(_diff_requests(known)[1])}; {advice}")
    if not figures[:2].sum() > 0:
        raise SpecError(
            f"the billed tokens of {key} do not grow with the messages; check that the recorded usage "
            "of each reply covers its whole request"
        )
    sessions, off = [], []
    for cluster in dict.fromkeys(bill.cluster for bill in known):
        others_fit = _fit_weights([bill for bill in known if bill.cluster != cluster])
        best = _build_profile(figures if others_fit is None else others_fit)
        weights = [getattr(best, name) for name in _WEIGHTS]
        for bill in (bill for bill in known if bill.cluster == cluster):
            expected = bill.counts @ weights + bill.images + best.billed_tokens(bill.fixed, 0)
            sessions.append(build_billed_session(bill.recording, expected, bill.compacted))
            if others_fit is not None:
                off.append(relative_errors(expected, bill.billed))
    pooled = np.concatenate(off) if off else None
    profile = msgspec.structs.replace(
        _build_profile(figures, find_profile(model)),
        family=key,
        fixed=int(np.median([session.fixed for session in sessions])),
        error=None if pooled is None else round(float(np.median(pooled)), 4),
        error_90=None if pooled is None else round(float(np.quantile(pooled, 0.9)), 4),
        sessions=len(sessions),
        requests=sum(session.requests for session in sessions),
        models=tuple(dict.fromkeys(b.recording.model for b in known if b.recording.model)),
        source=source,
    )
    return Calibration(profile, tuple(sessions), dict(skipped))


def _collect_billed_requests(recording: Recording, counter: TokenCounter) -> _BilledRequests | None:
    billed = np.array(list(billed_input_tokens(recording).values()), np.float64)
    if len(billed) < 2:
        return None

    def row(message: Message) -> list[float]:
        text, chars, images = counter.count_parts(message)
        return [text, chars, len(message.tool_calls), counter.count_reasoning(message), images]

    amounts = np.array([row(message) for message in recording.messages], np.float64)
    totals, compacted = sum_recorded_context(recording, amounts, row)
    fixed = counter.count_tools(recording.tools) + counter.REPLY_TOKENS
    return _BilledRequests(recording, fixed, totals[:, :-1], totals[:, -1], billed, compacted)


def _diff_requests(recordings: Sequence[_BilledRequests]) -> tuple[FloatArray, FloatArray]:
    """Return the increase in counts and in billed tokens from each request to the next.

    A request is left out if a compaction was recorded since the previous request.
    """
    added, cost = [np.zeros((0, len(_WEIGHTS)))], [np.zeros(0)]
    for bill in recordings:
        usable = ~bill.compacted[1:]
        added.append(np.diff(bill.counts, axis=0)[usable])
        cost.append(np.diff(bill.billed - bill.images)[usable])
    return np.concatenate(added), np.concatenate(cost)


def _fit_weights(recordings: Sequence[_BilledRequests]) -> FloatArray | None:
    """Fit the weights in the order of ``_WEIGHTS``; return None if there are too few bills.

    Weights are not negative: the most negative weight is set to 0, and the remaining weights are
    fitted again. A weight is nan if too few requests have data for it.
    """
    added, cost = _diff_requests(recordings)
    if len(cost) < _MIN_DIFFERENCES:
        return None
    figures = np.full(len(_WEIGHTS), np.nan)
    seen = np.flatnonzero((added > 0).sum(axis=0) >= _MIN_DIFFERENCES // 3)
    while len(seen):
        figures[seen] = _fit_huber(added[:, seen], cost)
        if (figures[seen] >= 0).all():
            break
        worst = seen[figures[seen].argmin()]
        figures[worst] = 0
        seen = seen[seen != worst]
    return figures


def _fit_huber(added: FloatArray, cost: FloatArray) -> FloatArray:
    """Fit weights that convert each row of counts in ``added`` to the billed tokens in ``cost``.

    The fit uses iterated least squares with Huber's weights: a residual beyond 1.345 standard
    deviations has less influence on the fit.
    """
    weights = np.ones(len(cost))
    figures = np.zeros(added.shape[1])
    for _ in range(60):
        root = np.sqrt(weights)
        solved = np.linalg.lstsq(added * root[:, None], cost * root, rcond=None)[0]
        figures = solved.astype(np.float64)
        off = np.abs(cost - added @ figures)
        deviation = max(1.4826 * float(np.median(off)), 1e-9)
        weights = np.minimum(1, 1.345 * deviation / np.maximum(off, 1e-9))
    return figures


def _build_profile(figures: FloatArray, basis: TokenProfile = UNCALIBRATED) -> TokenProfile:
    """Build a profile with the fitted weights; a weight that is nan is taken from ``basis``."""
    known = [getattr(basis, name) for name in _WEIGHTS]
    weights = np.where(np.isnan(figures), known, figures).tolist()
    return TokenProfile(**dict(zip(_WEIGHTS, map(round, weights, _DIGITS), strict=True)))
