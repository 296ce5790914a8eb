"""Adapters that run strategies inside other agent frameworks.

Each framework has its own module, which imports the framework. Import only the modules that you
need::

    from ctxlab.adapters.langchain import ContextMiddleware      # create_agent(middleware=[…])
    from ctxlab.adapters.openai_agents import context_filter     # RunConfig(call_model_input_filter=…)
    from ctxlab.adapters.pydantic_ai import context_processor    # ProcessHistory(…)
    from ctxlab.adapters.litellm import ContextHook              # litellm.callbacks = […]

Every adapter takes the arguments of ``ConversationPool``: a strategy, the name of a model, and the
options of ``ctxlab.ContextManager``. Messages that the strategy does not change are sent as the
framework's own objects. The tools, and the system messages at the beginning of a conversation, may
differ between calls. They count towards the budget and are sent unchanged.
"""

from __future__ import annotations

from ctxlab.adapters.base import ConversationPool

__all__ = ["ConversationPool"]
