"""The agent: tools, a loop with a cap, and a conversation that is stored as it goes.

A tool is a typed function; what its types and its docstring say is what the model is told. Here a
script answers in the model's place; without ``client`` the provider is asked, through litellm.

>>> from ctxlab.agent import Agent, ToolCallFinished, TurnFinished
>>> from ctxlab.messages.types import Message, ToolCall
>>> from ctxlab.llm import ScriptedClient
>>> def count_lines(path: str, blank: bool = False) -> int:
...     '''Counts the lines of a file.
...
...     Args:
...         path: from the root of the workspace
...         blank: also those that are empty
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

``AgentSession.start(store, agent)`` stores it as it goes, and
``AgentSession.resume(store, id, agent)`` goes on with it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
