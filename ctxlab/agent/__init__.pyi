"""What `ctxlab.agent` offers; `__init__.py` loads each from here when it is first asked for."""

from .events import (
    Called as Called,
)
from .events import (
    Done as Done,
)
from .events import (
    Event as Event,
)
from .events import (
    Outcome as Outcome,
)
from .events import (
    Returned as Returned,
)
from .events import (
    TextPiece as TextPiece,
)
from .events import (
    event_to_dict as event_to_dict,
)
from .loop import (
    DEFAULT_STRATEGY as DEFAULT_STRATEGY,
)
from .loop import (
    Agent as Agent,
)
from .session import (
    Live as Live,
)
from .tools.processes import (
    Processes as Processes,
)
from .tools.result import (
    ERROR_TYPES as ERROR_TYPES,
)
from .tools.result import (
    ToolResult as ToolResult,
)
from .tools.tool import (
    Tool as Tool,
)
from .tools.tool import (
    tool_of as tool_of,
)
from .tools.workspace import (
    workspace_tools as workspace_tools,
)
