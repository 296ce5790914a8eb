"""Context strategies. To add one, add a module to this folder and list it in ``registry.py``."""

from ctxlab.strategies.base import (
    BaseStrategy,
    FunctionStrategy,
    Pipeline,
    Strategy,
    as_strategy,
    models_used,
)
from ctxlab.strategies.controls import (
    full,
    message_oracle,
    nothing,
    oracle,
    random_decay,
    random_drop,
)
from ctxlab.strategies.excerpt_memory import excerpt_memory
from ctxlab.strategies.file_sessions import file_sessions
from ctxlab.strategies.metric_controls import (
    base64_text,
    line_list,
    name_list,
    names_in_place,
    word_list,
)
from ctxlab.strategies.middle_out import first_and_last, middle_out
from ctxlab.strategies.observation_mask import observation_mask
from ctxlab.strategies.offload import offload
from ctxlab.strategies.panic import panic
from ctxlab.strategies.pinned import pinned
from ctxlab.strategies.recent_images import recent_images
from ctxlab.strategies.recorded import recorded
from ctxlab.strategies.registry import STRATEGIES, parse_strategy, register_strategy
from ctxlab.strategies.retrieval import retrieval
from ctxlab.strategies.rolling_summary import rolling_summary
from ctxlab.strategies.stale_results import stale_results
from ctxlab.strategies.table_of_contents import contents
from ctxlab.strategies.tool_result_cap import tool_result_cap
from ctxlab.strategies.tool_stubs import tool_stubs
from ctxlab.strategies.triggers.background import background
from ctxlab.strategies.triggers.idle import idle
from ctxlab.strategies.triggers.in_batches import in_batches
from ctxlab.strategies.triggers.on_expiry import on_expiry
from ctxlab.strategies.triggers.when_it_pays import when_it_pays
from ctxlab.strategies.truncate_arguments import shorten_arguments
from ctxlab.strategies.windows import chunked_window, sliding_window

__all__ = ["BaseStrategy", "FunctionStrategy", "Pipeline", "Strategy", "as_strategy", "models_used"]
__all__ += ["STRATEGIES", "parse_strategy", "register_strategy"]
__all__ += ["chunked_window", "first_and_last", "middle_out", "panic", "sliding_window"]
__all__ += ["observation_mask", "recent_images", "shorten_arguments", "stale_results"]
__all__ += ["contents", "excerpt_memory", "file_sessions", "retrieval", "rolling_summary"]
__all__ += ["offload", "pinned", "tool_result_cap", "tool_stubs"]
__all__ += ["background", "idle", "in_batches", "on_expiry", "when_it_pays"]
__all__ += [
    "full",
    "message_oracle",
    "nothing",
    "oracle",
    "random_decay",
    "random_drop",
    "recorded",
]
__all__ += ["base64_text", "line_list", "name_list", "names_in_place", "word_list"]
