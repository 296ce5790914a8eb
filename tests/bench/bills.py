"""Compare ctxlab's token counts with the tokens that the provider billed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from replay import corpus
from table import Line

from ctxlab.messages.types import Message, Recording
from ctxlab.tokens.billing import billed_input_tokens, relative_errors, sum_recorded_context
from ctxlab.tokens.calibration import calibrate
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.profiles import UNCALIBRATED

_MODEL = "claude-opus-4-5"
_UNIT = "of billed"
_SETS = ("claude-code-entireio", "pi-mono")


def claude(quick: bool) -> Iterator[Line]:
    """Yield relative errors of the counts of recorded sessions.

    The fixed number of tokens of a session is taken from its first bill. The calibration of each session
    is fitted to the other sessions only.
    """
    recordings = [r for name in _SETS for r in corpus(name) if len(billed_input_tokens(r)) > 1]
    if not recordings:
        yield Line("token counts for Claude", "no real sessions: set CTXLAB_DATA")
        return
    found = calibrate(recordings, _MODEL)
    sessions = f"{found.profile.sessions} sessions, {found.profile.requests:,} requests"
    yield Line("calibrated: median of |counted - billed| / billed", sessions,
               [found.profile.error], at_most=0.03, unit=_UNIT)  # fmt: skip
    calm = [each.error for each in found.sessions if not each.unsaid]
    yield Line("  median, only sessions without unlogged changes",
               f"{len(calm)} sessions", [float(np.median(calm))], unit=_UNIT)  # fmt: skip
    raw = TokenCounter(_MODEL, UNCALIBRATED)
    yield Line("  90 % of the requests are within", sessions, [found.profile.error_90], unit=_UNIT)

    def uncalibrated(message: Message) -> int:
        return raw.count_message(message) + raw.count_reasoning(message)

    yield Line("o200k uncalibrated, reasoning included", sessions,
               [_off(recordings, uncalibrated)], unit=_UNIT)  # fmt: skip
    if quick:
        return
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise the import uses the network
    import litellm

    def by_litellm(message: Message) -> int:
        return int(litellm.token_counter(model=_MODEL, messages=[message.to_dict()]))

    yield Line("litellm.token_counter, message by message", sessions,
               [_off(recordings, by_litellm)], unit=_UNIT)  # fmt: skip


def _off(recordings: Sequence[Recording], count: Callable[[Message], int]) -> float:
    off: list[Any] = []
    for recording in recordings:
        amounts = np.array([[count(message)] for message in recording.messages], np.float64)
        totals, _ = sum_recorded_context(recording, amounts, lambda message: [count(message)])
        off.append(
            relative_errors(
                totals[:, 0], np.array(list(billed_input_tokens(recording).values()), np.float64)
            )
        )
    return float(np.median(np.concatenate(off)))
