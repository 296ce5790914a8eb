"""Every HTTP request that a client makes is counted, whatever became of it."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ctxlab.messages.types import Usage

__all__ = ["Ledger", "Totals"]


class Totals(NamedTuple):
    """What a client's calls took so far; ``attempts`` is the sum of the three that follow it."""

    attempts: int = 0
    "HTTP requests"
    answered: int = 0
    failed: int = 0
    "the provider answered with an error, for which nothing is billed"
    interrupted: int = 0
    "no answer that could be read: timeouts, cut connections, nonsense; may have been billed"
    prompt: int = 0
    "input tokens as billed for what was answered"
    completion: int = 0
    "output tokens as billed for what was answered"
    usd: float = 0.0
    "what that cost; nan once a call had no known price"


class Ledger:
    """Totals that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals()
        self._silent = 0

    @property
    def totals(self) -> Totals:
        """As they stand."""
        with self._lock:
            return self._totals

    def answered(self, usage: Usage, usd: float) -> None:
        """A request was answered."""
        with self._lock:
            was = self._totals
            self._silent = 0
            self._totals = was._replace(
                attempts=was.attempts + 1,
                answered=was.answered + 1,
                prompt=was.prompt + usage.prompt,
                completion=was.completion + usage.output,
                usd=was.usd + usd,
            )

    def failed(self) -> None:
        """A request was answered with an error."""
        with self._lock:
            was = self._totals
            self._totals = was._replace(attempts=was.attempts + 1, failed=was.failed + 1)

    def interrupted(self) -> None:
        """A request got no answer that could be read."""
        with self._lock:
            was = self._totals
            self._totals = was._replace(attempts=was.attempts + 1, interrupted=was.interrupted + 1)

    def declined(self) -> None:
        """A provider that will not answer one request is there all the same."""
        with self._lock:
            self._silent = 0

    def silent(self) -> int:
        """A call stayed without an answer; returns how many in a row did."""
        with self._lock:
            self._silent += 1
            return self._silent
