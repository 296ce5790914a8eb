"""Baselines of LangChain: the function ``trim_messages``, and two middlewares of its agents."""

from __future__ import annotations

from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.langchain.clearing import clear_tool_uses
from ctxlab.strategies.baselines.langchain.summarization import summarization
from ctxlab.strategies.baselines.langchain.trim import trim_messages

_URL = "https://github.com/langchain-ai/langchain/blob"
_MIDDLEWARE_URL = f"{_URL}/langchain%3D%3D1.4.7/libs/langchain_v1/langchain/agents/middleware"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "langchain.trim_messages",
        trim_messages(),
        "langchain-core 1.7.2",
        f"{_URL}/langchain-core%3D%3D1.7.2/libs/core/langchain_core/messages/utils.py",
        "Keeps the newest messages that fit, without the system prompt. A cut may separate "
        "results from their calls. With start_on='human' an agent's run may end up empty.",
        (
            "",
            "max_tokens=4000",
            "max_tokens=6000, start_on='human', include_system=True",
            "max_tokens=3000, start_on='ai', include_system=True",
        ),
    ),
    Baseline(
        "langchain.summarization",
        summarization(),
        "langchain 1.4.7",
        f"{_MIDDLEWARE_URL}/summarization.py",
        "Never summarises unless a trigger is given; then keeps 20 messages. The summariser "
        "sees the last 4,000 tokens of the older part, from a user message on. If these tokens "
        "contain no user message, a placeholder replaces the summary. The product accepts a "
        "token counter; here it is ctxlab's. If the model fails, the product's run ends; here "
        "the summary is extracted.",
        (
            "trigger=('messages', 30), model='gpt-5-mini'",
            "trigger=('fraction', 0.5), keep=('fraction', 0.2), model='gpt-5-mini'",
            "trigger=(('tokens', 5000), ('messages', 40)), keep=('tokens', 2000), "
            "trim_tokens_to_summarize=None, model='gpt-5-mini'",
            "trigger=('tokens', 3000), keep=('messages', 6), model='gpt-5-mini'",
        ),
    ),
    Baseline(
        "langchain.clear_tool_uses",
        clear_tool_uses(),
        "langchain 1.4.7",
        f"{_MIDDLEWARE_URL}/context_editing.py",
        "Clears all tool results but the last 3 above 100,000 tokens, measured before "
        "clearing. With clear_at_least it clears the same oldest results at each request and "
        "no more, because the edit does not persist.",
        (
            "trigger=3000",
            "trigger=2000, keep=0, clear_tool_inputs=True",
            "trigger=4000, keep=1, clear_at_least=1500",
            "trigger=1000, keep=2, exclude_tools=('Read', 'bash'), placeholder='gone'",
        ),
    ),
)
