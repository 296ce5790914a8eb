"""What `import ctxlab` offers; `__init__.py` loads each from here when it is first asked for."""

from .closeup import (
    Replay as Replay,
    replay as replay,
)
from .context import (
    Budget as Budget,
    Context as Context,
)
from .conversation import (
    Compaction as Compaction,
    Message as Message,
    Probe as Probe,
    Recording as Recording,
    ToolCall as ToolCall,
    Usage as Usage,
)
from .errors import (
    CtxlabError as CtxlabError,
)
from .experiment import (
    evaluate as evaluate,
)
from .formats import (
    load as load,
)
from .history import (
    Form as Form,
    History as History,
)
from .metrics import (
    per_request as per_request,
)
from .models import (
    Model as Model,
    find_model as find_model,
)
from .results import (
    Results as Results,
)
from .strategies import (
    Pipeline as Pipeline,
    Strategy as Strategy,
    chunked_window as chunked_window,
    full as full,
    nothing as nothing,
    observation_mask as observation_mask,
    oracle as oracle,
    panic as panic,
    parse as parse,
    random_drop as random_drop,
    rolling_summary as rolling_summary,
    sliding_window as sliding_window,
    tool_result_cap as tool_result_cap,
    tool_stubs as tool_stubs,
)
from .tokens import (
    TokenCounter as TokenCounter,
    count_tokens as count_tokens,
)
from .validity import (
    check as check,
)
from .view import (
    context_map as context_map,
    frontier as frontier,
)

__version__: str
