"""What `import ctxlab` offers; `__init__.py` loads each from here when it is first asked for."""

from .agent.manager import (
    ContextManager as ContextManager,
)
from .agent.manager import (
    build_messages as build_messages,
)
from .context.context import (
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
    plant_canaries as plant_canaries,
)
from .evaluation.comparison import (
    Comparison as Comparison,
)
from .evaluation.comparison import (
    compare_strategies as compare_strategies,
)
from .evaluation.comparison import (
    find_equal_tokens_limit as find_equal_tokens_limit,
)
from .evaluation.describe import (
    describe as describe,
)
from .evaluation.experiment import (
    evaluate as evaluate,
)
from .evaluation.gate import (
    run_gate as run_gate,
)
from .evaluation.metrics import (
    per_request_metric as per_request_metric,
)
from .evaluation.plots import (
    plot_context_map as plot_context_map,
)
from .evaluation.plots import (
    plot_frontier as plot_frontier,
)
from .evaluation.plots import (
    plot_survival as plot_survival,
)
from .evaluation.probing import (
    NextActionResults as NextActionResults,
)
from .evaluation.probing import (
    QAResults as QAResults,
)
from .evaluation.probing import (
    evaluate_next_action as evaluate_next_action,
)
from .evaluation.probing import (
    run_qa as run_qa,
)
from .evaluation.refetch import (
    find_refetches as find_refetches,
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
    SurvivalResults as SurvivalResults,
)
from .evaluation.survival import (
    measure_survival as measure_survival,
)
from .evaluation.tuning import (
    TuningResults as TuningResults,
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
    find_violations as find_violations,
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
    parse_strategy as parse_strategy,
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
    TokenProfile as TokenProfile,
)

__version__: str
