"""Validity of the requests: whether the provider would accept them. Nothing is repaired.

If a valid recording is edited in place and no edit separates a tool call from its results, its
requests are valid by construction, except for the rule about the first speaker. Any other request
is checked message by message (``ctxlab.messages.validation``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score


class ValidityMetric:
    """Requests that violate the rules of the recording's provider (``PreparedRecording.provider``)."""

    columns = (
        Column("faults", "violations of the provider's API rules in the request", "faults"),
        Column("invalid", "1 if the provider would reject the request", "0 or 1"),
    )
    "figures of each request"
    scores = (
        Score(
            "invalid_rate",
            "share of requests that the provider would reject",
            "share",
            "ratio",
            "invalid",
            better="lower",
            heading="invalid\n%",
            legend="invalid: requests that the provider would reject",
        ),
    )
    "figures of a run and of the leaderboard"
    observers: ClassVar[Mapping[str, RequestObserver]] = {}
    "no observers are needed"

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """Compute ``columns`` for each trace.

        Parameters
        ----------
        prepared : PreparedRecording
            The recording that was replayed.
        traces : sequence of Trace
            One trace per configuration.

        Returns
        -------
        mapping of str to numpy.ndarray of shape (traces, requests)
            Figures by column name.
        """
        faults = np.array([trace.violation_counts for trace in traces], dtype=np.float64)
        return {"faults": faults, "invalid": (faults > 0).astype(np.float64)}


validity = ValidityMetric()
