"""A client that gives replies as they come gives them one by one, and all at once, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing

from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import (
    Reply,
    Request,
)

__all__ = ["Each"]


class Each(ABC):
    """The rest of a client's protocol, made from ``complete_each``."""

    def complete(self, request: Request, /) -> Reply:
        """The reply; raises ``ModelRefused`` or ``ModelUnavailable``."""
        (reply,) = self.complete_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """The replies in order; what stayed unanswered stands as its error, a refusal is raised."""
        with closing(self.complete_each(requests)) as replies:
            return [reply for _, reply in sorted(replies, key=lambda pair: pair[0])]

    @abstractmethod
    def complete_each(
        self, requests: Sequence[Request], /
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """The replies as they come, each with the place of its request."""
