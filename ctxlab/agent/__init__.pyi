"""Public names of `ctxlab.agent`. `__init__.py` imports each name on first access."""

from .events import AgentEvent as AgentEvent
from .events import TextDelta as TextDelta
from .events import ToolCallFinished as ToolCallFinished
from .events import ToolCallStarted as ToolCallStarted
from .events import TurnFinished as TurnFinished
from .events import TurnResult as TurnResult
from .events import event_to_dict as event_to_dict
from .loop import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from .loop import Agent as Agent
from .loop import ConversationObserver as ConversationObserver
from .session import AgentSession as AgentSession
from .tools.processes import ProcessManager as ProcessManager
from .tools.result import ERROR_TYPES as ERROR_TYPES
from .tools.result import ToolResult as ToolResult
from .tools.tool import Tool as Tool
from .tools.tool import tool_from_function as tool_from_function
from .tools.workspace import workspace_tools as workspace_tools
