"""Agents: tools, a loop with an iteration limit, and conversations that are stored as they proceed.

A tool is a typed function. The model is told what its types and its docstring say. In this example
a script replies instead of a model; without ``client`` the provider is called through litellm.

>>> from ctxlab.agent import Agent, ToolCallFinished, TurnFinished
>>> from ctxlab.messages.types import Message, ToolCall
>>> from ctxlab.llm import ScriptedClient
>>> def count_lines(path: str, blank: bool = False) -> int:
...     '''Count the lines of a file.
...
...     Args:
...         path: path from the root of the workspace
...         blank: also count empty lines
...     '''
...     return 42
>>> call = ToolCall("c1", "count_lines", '{"path": "a.py"}')
>>> client = ScriptedClient(Message("assistant", tool_calls=(call,)), "It has 42 lines.")
>>> agent = Agent("gpt-4o", tools=[count_lines], client=client, system="Be brief.")
>>> for event in agent.stream("How long is a.py?"):
...     if isinstance(event, ToolCallFinished):
...         print(event.call.name, event.result.data)
...     elif isinstance(event, TurnFinished):
...         print(event.result.text, event.result.iterations)
count_lines 42
It has 42 lines. 2
>>> [message.role for message in agent.manager.history]
['system', 'user', 'assistant', 'tool', 'assistant']

``AgentSession.start(store, agent)`` stores the conversation as it proceeds, and
``AgentSession.resume(store, id, agent)`` continues a stored one.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
