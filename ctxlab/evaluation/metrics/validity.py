"""Validity of the requests: whether the provider would accept them. Nothing is repaired.

If a valid recording is edited in place and no edit separates a tool call from its results, its
requests are valid by construction, except for the rule about the first speaker. Any other request
is checked message by message (``ctxlab.messages.validation``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score


class ValidityMetric(Metric):
    """Requests that violate the rules of the recording's provider (``PreparedRecording.provider``)."""

    columns = (
        Column("faults", "violations of the provider's API rules in the request", "faults"),
        Column("invalid", "1 if the provider would reject the request", "0 or 1"),
    )
    scores = (
        Score.rate("invalid_rate", "requests that the provider would reject", "invalid").printed(
            "invalid\n%", "invalid: requests that the provider would reject"
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        faults = np.array([trace.violation_counts for trace in traces], dtype=np.float64)
        return {"faults": faults, "invalid": (faults > 0).astype(np.float64)}


validity = ValidityMetric()
