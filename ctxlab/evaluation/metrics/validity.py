"""Whether a provider would accept the requests: counted, never silently repaired.

While a valid recording is edited in place and no edit parts a tool call from its results, its requests
are valid by provenance, but for the rule about who speaks first. Any other request is looked at message
by message (``ctxlab.messages.validation.check``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score

__all__ = ["ValidityMetric"]


class ValidityMetric:
    """Requests that break a rule of the API of the recording's model
    (``PreparedRecording.provider``).
    """

    columns = (
        Column("faults", "rules of the provider's API that the request breaks", "faults"),
        Column("invalid", "whether the provider would refuse the request", "0 or 1"),
    )
    scores = (
        Score(
            "invalid_rate",
            "share of requests that the provider would refuse",
            "share",
            "ratio",
            "invalid",
            better="lower",
            heading="invalid\n%",
            legend="invalid: a provider would refuse them",
        ),
    )
    observers: ClassVar[Mapping[str, RequestObserver]] = {}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """See ``columns``."""
        faults = np.array([trace.violation_counts for trace in traces], dtype=np.float64)
        return {"faults": faults, "invalid": (faults > 0).astype(np.float64)}


validity = ValidityMetric()
