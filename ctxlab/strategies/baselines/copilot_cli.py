"""Baseline of GitHub Copilot CLI, which summarises in the background; its source is not public."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.strategies.base import Strategy
from ctxlab.strategies.baselines.base import Baseline, ComposedStrategy
from ctxlab.strategies.baselines.codex import user_messages
from ctxlab.strategies.baselines.common.compaction import MAX_SUMMARY_TOKENS
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.triggers.background import background

_ALL = 10**9
"Number of tokens of user messages to keep: all of them."


@dataclass(frozen=True, repr=False)
class infinite_session(ComposedStrategy):
    """Writes a summary while the agent works on, and installs it some requests later.

    The summary and all user messages replace the messages that were there when it was begun.

    Examples
    --------
    >>> infinite_session().compose()
    background(user_messages(trigger=0, user_tokens=1000000000), target=0.8, requests=3)
    """

    background_threshold: float = 0.8
    "share of the available tokens above which the summary is written"
    blocking_threshold: float = 0.95
    "share of the available tokens above which the agent waits for the summary"
    requests: int = 3
    "number of requests that are sent while the summary is written"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def compose(self) -> Strategy:
        """Return the compaction in the background, with the parameters of this strategy.

        Returns
        -------
        Strategy
            Strategy that compacts in the background.
        """
        start, block = self.background_threshold, self.blocking_threshold
        inner = user_messages(0, _ALL, self.summary_tokens, self.model)
        return background(inner, start, block, target=start, requests=self.requests)


_PLACE = "@github/copilot-sdk, CopilotClient"
_NOTE = "Copilot CLI itself has no such setting (copilot-cli issue 3026)"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "copilot_cli",
        infinite_session(),
        "GitHub Copilot CLI 1.0, as documented on 2026-11-27; Copilot SDK 1.0.14 (npm)",
        "https://docs.github.com/en/copilot/concepts/agents/copilot-cli/context-management",
        "At 0.8 of the context, a summary is written in the background. Together with all messages of "
        "the user, it replaces the messages that were there when it was begun; the agent waits for it "
        "at 0.95. The algorithm is not published. In two recorded sessions, the summary came at 160,095 "
        "and 160,540 of 200,000 tokens, quoted the user's messages in one message with the summary, and "
        "was followed by the 2 and 4 steps that were made meanwhile; ctxlab assumes 3. The shares are "
        "of the tokens that are available for messages. Not implemented: the state of plans and to-do "
        "lists, which Copilot adds to the summary.",
        settings=(
            Setting(
                "background_threshold",
                "typescript",
                _PLACE,
                "createSession.infiniteSessions",
                "{ backgroundCompactionThreshold: {json} }",
                _NOTE,
                threshold="share",
            ),
            Setting(
                "blocking_threshold",
                "typescript",
                _PLACE,
                "createSession.infiniteSessions",
                "{ bufferExhaustionThreshold: {json} }",
                _NOTE,
                alternatives=(),
            ),
            *unavailable("requests", "summary_tokens", "model", note="of ctxlab"),
        ),
        formats=("copilot-cli",),
    ),
)
