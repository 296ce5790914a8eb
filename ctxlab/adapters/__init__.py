"""Adapters that run strategies inside other agent frameworks.

There is one module per framework. A module imports its framework, so import only the one you use::

    from ctxlab.adapters.langchain import ContextMiddleware      # create_agent(middleware=[…])
    from ctxlab.adapters.openai_agents import context_filter     # RunConfig(call_model_input_filter=…)
    from ctxlab.adapters.pydantic_ai import context_processor    # ProcessHistory(…)
    from ctxlab.adapters.litellm import ContextHook              # litellm.callbacks = […]

Every adapter takes a strategy, the model whose tokens are counted, and the options of
``ctxlab.ContextManager``. A message that the strategy leaves unchanged is passed on as the framework's
own object. Leading system messages and tools may differ between calls. They count towards the budget and
are sent unchanged.
"""

from __future__ import annotations

from ctxlab.adapters.base import ConversationPool

__all__ = ["ConversationPool"]
