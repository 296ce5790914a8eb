"""What `import ctxlab` offers; `__init__.py` loads each from here when it is first asked for."""

from .budget import (
    Budget as Budget,
)
from .calibration import (
    Calibration as Calibration,
)
from .calibration import (
    calibrate as calibrate,
)
from .canaries import (
    plant as plant,
)
from .closeup import (
    Replay as Replay,
)
from .closeup import (
    replay as replay,
)
from .comparison import (
    Comparison as Comparison,
)
from .comparison import (
    compare as compare,
)
from .comparison import (
    equal_tokens as equal_tokens,
)
from .context import (
    Context as Context,
)
from .conversation import (
    Compaction as Compaction,
)
from .conversation import (
    Message as Message,
)
from .conversation import (
    Probe as Probe,
)
from .conversation import (
    Recording as Recording,
)
from .conversation import (
    ToolCall as ToolCall,
)
from .conversation import (
    Usage as Usage,
)
from .errors import (
    CtxlabError as CtxlabError,
)
from .exams import (
    Agreement as Agreement,
)
from .exams import (
    Exam as Exam,
)
from .exams import (
    agree as agree,
)
from .exams import (
    examine as examine,
)
from .experiment import (
    evaluate as evaluate,
)
from .formats import (
    load as load,
)
from .gate import (
    check_budgets as check_budgets,
)
from .history import (
    Form as Form,
)
from .history import (
    History as History,
)
from .manager import (
    ContextManager as ContextManager,
)
from .manager import (
    build_messages as build_messages,
)
from .metrics import (
    per_request as per_request,
)
from .models import (
    Model as Model,
)
from .models import (
    find_model as find_model,
)
from .profiles import (
    Profile as Profile,
)
from .refetch import (
    refetches as refetches,
)
from .results import (
    Results as Results,
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
from .survey import (
    describe as describe,
)
from .survival import (
    Survival as Survival,
)
from .survival import (
    survival_of as survival_of,
)
from .tokens import (
    TokenCounter as TokenCounter,
)
from .tokens import (
    count_tokens as count_tokens,
)
from .tuning import (
    Tuning as Tuning,
)
from .tuning import (
    tune as tune,
)
from .validity import (
    check as check,
)
from .view import (
    cliff as cliff,
)
from .view import (
    context_map as context_map,
)
from .view import (
    frontier as frontier,
)

__version__: str
