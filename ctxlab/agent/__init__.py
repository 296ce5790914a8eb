"""Agents that call a model and tools in a loop, and can store their conversation.

A tool is a Python function with type annotations. The model receives a description of the tool,
which is built from the annotations and the docstring. In the following example, a scripted client
replaces the model. Without ``client``, the agent calls the model's provider through litellm.

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

``AgentSession.start(store, agent)`` stores each message of the conversation when it is added.
``AgentSession.resume(store, id, agent)`` continues a stored conversation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
