"""Validity of the requests: whether the provider would accept them as they are.

If the recording is valid and a strategy keeps each tool call together with its results, a request
can violate only one rule: the first message must have the right role. In this case only that rule
is checked. Any other request is checked message by message (``ctxlab.messages.validation``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score


class ValidityMetric(Metric):
    """Share of requests that violate the provider's API rules (``PreparedRecording.provider``)."""

    columns = (
        Column(
            "faults",
            "violations of the provider's API rules in the request",
            "faults",
            integer=True,
        ),
        Column("invalid", "1 if the provider would reject the request", "0 or 1", integer=True),
        Column(
            "newly_invalid",
            "1 if the provider would reject the request, but would accept the full history",
            "0 or 1",
            integer=True,
        ),
    )
    scores = (
        Score.rate(
            "invalid_rate", "share of requests that the provider would reject", "invalid"
        ).printed("invalid\n%", "invalid: share of requests that the provider would reject"),
        Score.rate(
            "newly_invalid_rate",
            "share of requests that the provider would reject, but not the full history",
            "newly_invalid",
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        faults = np.array([trace.violation_counts for trace in traces], dtype=np.float64)
        invalid = faults > 0
        # A recording may be invalid itself. This is no fault of a strategy.
        new = invalid & ~np.array(prepared.invalid_requests) if invalid.any() else invalid
        flags = {"invalid": invalid, "newly_invalid": new}
        return {"faults": faults, **{key: flag.astype(np.float64) for key, flag in flags.items()}}


validity = ValidityMetric()
