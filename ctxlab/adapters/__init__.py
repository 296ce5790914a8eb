"""Strategies inside other people's agents: a file a framework, thin, imported when it is used.

::

    from ctxlab.adapters.langchain import ContextMiddleware      # create_agent(middleware=[…])
    from ctxlab.adapters.openai_agents import context_filter     # RunConfig(call_model_input_filter=…)
    from ctxlab.adapters.pydantic_ai import context_processor    # ProcessHistory(…)
    from ctxlab.adapters.litellm import ContextHook              # litellm.callbacks = […]

All take a strategy, the model whose tokens count, and the options of ``ctxlab.ContextManager``. What the
strategy leaves alone is handed on as the very object that the framework gave. System messages at the
beginning and tools may change at each call; they take room and go on as they are.
"""

from __future__ import annotations

from ctxlab.adapters.base import ConversationPool

__all__ = ["ConversationPool"]
