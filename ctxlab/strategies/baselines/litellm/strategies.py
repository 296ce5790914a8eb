"""litellm: trimming that shortens messages in the middle until the request is small enough."""

from __future__ import annotations

from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.litellm.trim import trim_messages

__all__ = ["MODULE_BASELINES"]

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="litellm.trim_messages",
        strategy=trim_messages(),
        product_version="litellm 1.106.2",
        url="https://github.com/BerriAI/litellm/blob/v1.106.2/litellm/utils.py",
        description=(
            "Keeps the newest messages of 0.75 of the window, shortens those that do not fit in the "
            "middle, goes on with older ones that still do, and parts pairs. A call without text "
            "that does not fit makes it fail, and then all is sent untrimmed. It counts as its "
            "tokenizer for OpenAI's models does, in pieces of 1,024 characters; for other models "
            "ctxlab's vocabulary stands in, and images are counted by ctxlab."
        ),
        package="litellm",
        conformance_options=("", "max_tokens=4000", "max_tokens=1500"),
    ),
)
