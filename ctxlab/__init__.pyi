"""What `import ctxlab` offers; `__init__.py` loads each from here when it is first asked for."""

from .agent.manager import (
    ContextManager as ContextManager,
)
from .agent.manager import (
    build_messages as build_messages,
)
from .context.budget import (
    Budget as Budget,
)
from .context.context import (
    Context as Context,
)
from .context.history import (
    Form as Form,
)
from .context.history import (
    History as History,
)
from .errors import (
    CtxlabError as CtxlabError,
)
from .evaluation.canaries import (
    plant as plant,
)
from .evaluation.comparison import (
    Comparison as Comparison,
)
from .evaluation.comparison import (
    compare as compare,
)
from .evaluation.comparison import (
    equal_tokens as equal_tokens,
)
from .evaluation.describe import (
    describe as describe,
)
from .evaluation.experiment import (
    evaluate as evaluate,
)
from .evaluation.gate import (
    check_budgets as check_budgets,
)
from .evaluation.metrics import (
    per_request as per_request,
)
from .evaluation.plots import (
    cliff as cliff,
)
from .evaluation.plots import (
    context_map as context_map,
)
from .evaluation.plots import (
    frontier as frontier,
)
from .evaluation.probing import (
    Agreement as Agreement,
)
from .evaluation.probing import (
    Exam as Exam,
)
from .evaluation.probing import (
    agree as agree,
)
from .evaluation.probing import (
    examine as examine,
)
from .evaluation.refetch import (
    refetches as refetches,
)
from .evaluation.replay import (
    Replay as Replay,
)
from .evaluation.replay import (
    replay as replay,
)
from .evaluation.results import (
    Results as Results,
)
from .evaluation.survival import (
    Survival as Survival,
)
from .evaluation.survival import (
    survival_of as survival_of,
)
from .evaluation.tuning import (
    Tuning as Tuning,
)
from .evaluation.tuning import (
    tune as tune,
)
from .formats import (
    load as load,
)
from .messages.types import (
    Compaction as Compaction,
)
from .messages.types import (
    Message as Message,
)
from .messages.types import (
    Probe as Probe,
)
from .messages.types import (
    Recording as Recording,
)
from .messages.types import (
    ToolCall as ToolCall,
)
from .messages.types import (
    Usage as Usage,
)
from .messages.validation import (
    check as check,
)
from .strategies import (
    Pipeline as Pipeline,
)
from .strategies import (
    Strategy as Strategy,
)
from .strategies import (
    chunked_window as chunked_window,
)
from .strategies import (
    full as full,
)
from .strategies import (
    nothing as nothing,
)
from .strategies import (
    observation_mask as observation_mask,
)
from .strategies import (
    oracle as oracle,
)
from .strategies import (
    panic as panic,
)
from .strategies import (
    parse as parse,
)
from .strategies import (
    random_drop as random_drop,
)
from .strategies import (
    recorded as recorded,
)
from .strategies import (
    rolling_summary as rolling_summary,
)
from .strategies import (
    sliding_window as sliding_window,
)
from .strategies import (
    tool_result_cap as tool_result_cap,
)
from .strategies import (
    tool_stubs as tool_stubs,
)
from .tokens.calibration import (
    Calibration as Calibration,
)
from .tokens.calibration import (
    calibrate as calibrate,
)
from .tokens.counter import (
    TokenCounter as TokenCounter,
)
from .tokens.counter import (
    count_tokens as count_tokens,
)
from .tokens.models import (
    Model as Model,
)
from .tokens.models import (
    find_model as find_model,
)
from .tokens.profiles import (
    Profile as Profile,
)

__version__: str
