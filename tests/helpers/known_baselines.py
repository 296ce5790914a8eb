"""Parameters under which baselines act on small logs, for tests of all baselines."""

from __future__ import annotations

ACTING: dict[str, str] = {
    "anthropic.clear_tool_uses": "trigger=3000, clear_tool_inputs=True",
    "anthropic.compaction": "trigger=4500",
    "deepseek": "headroom_tokens=500",
    "deepagents.offload": "tool_tokens=100",
    "langchain.clear_tool_uses": "trigger=3000",
    "langchain.summarization": "trigger=('tokens', 4000)",
    "pydantic_ai_harness.tiered": "target_tokens=2000, keep_messages=6",
    "pydantic_ai.summarization": "trigger=('tokens', 4000), keep=('messages', 10)",
    "llama_index.memory": "token_limit=5000, token_flush_size=500",
    "openai.compact": "trigger=4500",
    "openai_agents.tool_output_trimmer": "max_output_chars=50, preview_chars=20",
    "openclaw": "keep_recent_tokens=1500, mid_turn=True",
    "openclaw.api_key": "keep_recent_tokens=1500, mid_turn=True",
    "pi": "reserve_tokens=1000, keep_recent_tokens=1500",
    "pi.v0_80": "reserve_tokens=1000, keep_recent_tokens=1500",
    "roo": "max_tokens=500",
    "vercel.prune_messages": "tool_calls='before-last-6-messages'",
}
"""Parameters under which a baseline acts on small logs, where its defaults do not."""
