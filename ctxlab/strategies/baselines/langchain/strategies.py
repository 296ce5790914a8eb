"""Baselines of LangChain: the function ``trim_messages`` and two middlewares for agents."""

from __future__ import annotations

from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.langchain.clearing import clear_tool_uses
from ctxlab.strategies.baselines.langchain.summarization import summarization
from ctxlab.strategies.baselines.langchain.trim import trim_messages
from ctxlab.strategies.baselines.settings import Setting, arguments, unavailable

_URL = "https://github.com/langchain-ai/langchain/blob"
_MIDDLEWARE_URL = f"{_URL}/langchain%3D%3D1.5.2/libs/langchain_v1/langchain/agents/middleware"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "langchain.trim_messages",
        trim_messages(),
        "langchain-core 1.8.3",
        f"{_URL}/langchain-core%3D%3D1.8.3/libs/core/langchain_core/messages/utils.py",
        "Keeps the newest messages that fit, without the system prompt. A cut may separate results "
        "from their calls. With start_on='human', no message is kept if the task does not fit and "
        "no other user message follows.",
        (
            "",
            "max_tokens=4000",
            "max_tokens=6000, start_on='human', include_system=True",
            "max_tokens=3000, start_on='ai', include_system=True",
        ),
        settings=arguments(
            "langchain_core.messages", "trim_messages", "max_tokens", "start_on", "include_system"
        ),
    ),
    Baseline(
        "langchain.summarization",
        summarization(),
        "langchain 1.5.2",
        f"{_MIDDLEWARE_URL}/summarization.py",
        "Summarises only if a trigger is given; the newest 20 messages are kept. The summariser "
        "gets the last 4,000 tokens of the older messages, starting with a user message. If these "
        "tokens contain no user message, a placeholder replaces the summary. LangChain accepts a "
        "token counter as a parameter; ctxlab uses its own. If the model fails, LangChain's run "
        "ends; ctxlab makes an extractive summary.",
        (
            "trigger=('messages', 30), model='gpt-5-mini'",
            "trigger=('fraction', 0.5), keep=('fraction', 0.2), model='gpt-5-mini'",
            "trigger=(('tokens', 5000), ('messages', 40)), keep=('tokens', 2000), "
            "trim_tokens_to_summarize=None, model='gpt-5-mini'",
            "trigger=('tokens', 3000), keep=('messages', 6), model='gpt-5-mini'",
        ),
        settings=(
            Setting(
                "trigger",
                "python",
                "langchain.agents.middleware",
                "SummarizationMiddleware.trigger",
                "{value}",
                note="several sizes are a list",
            ),
            *arguments(
                "langchain.agents.middleware",
                "SummarizationMiddleware",
                "keep",
                "trim_tokens_to_summarize",
                "model",
            ),
            *unavailable("summary_tokens", note="of ctxlab"),
        ),
    ),
    Baseline(
        "langchain.clear_tool_uses",
        clear_tool_uses(),
        "langchain 1.5.2",
        f"{_MIDDLEWARE_URL}/context_editing.py",
        "Clears all tool results except the newest 3 when the conversation has more than 100,000 "
        "tokens, counted before clearing. With clear_at_least, it clears the same oldest results "
        "in each request and no others, because LangChain does not store the cleared conversation.",
        (
            "trigger=3000",
            "trigger=2000, keep=0, clear_tool_inputs=True",
            "trigger=4000, keep=1, clear_at_least=1500",
            "trigger=1000, keep=2, exclude_tools=('Read', 'bash'), placeholder='gone'",
        ),
        settings=arguments(
            "langchain.agents.middleware",
            "ClearToolUsesEdit",
            "trigger",
            "clear_at_least",
            "keep",
            "clear_tool_inputs",
            "exclude_tools",
            "placeholder",
        ),
    ),
)
