"""Baseline of Claude Code, based on its logs and documentation; its source code is not public."""

from __future__ import annotations

from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import fresh_start

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "claude_code",
        fresh_start(trigger=0.775),
        "Claude Code 2.1.5 to 2.1.32, from recorded sessions and the documentation",
        "https://code.claude.com/docs/en/context-window",
        "One summary replaces the whole conversation, even during a turn. In recorded sessions, "
        "Claude Code compacted automatically at 155,144 to 171,646 of 200,000 tokens and kept no "
        "message. The exact threshold is not documented; ctxlab uses 0.775 of the window. Not "
        "implemented: Claude Code also clears older tool results before the compaction, and reads "
        "recent files again after it. If the clearing was logged, recorded() repeats it.",
    ),
)
