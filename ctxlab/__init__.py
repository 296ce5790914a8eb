"""ctxlab replays recorded conversations through context strategies and measures what each does.

>>> import ctxlab
>>> ctxlab.count_tokens("hello world", "gpt-4o")
2

Importing it prints, reads and fetches nothing, and loads a part of it only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ctxlab.closeup import Replay, replay
    from ctxlab.context import Budget, Context
    from ctxlab.conversation import Compaction, Message, Probe, Recording, ToolCall, Usage
    from ctxlab.errors import CtxlabError
    from ctxlab.experiment import evaluate
    from ctxlab.formats import load
    from ctxlab.history import Form, History
    from ctxlab.metrics import per_request
    from ctxlab.models import Model, find_model
    from ctxlab.results import Results
    from ctxlab.strategies import (
        Pipeline,
        Strategy,
        chunked_window,
        full,
        nothing,
        observation_mask,
        oracle,
        panic,
        parse,
        random_drop,
        rolling_summary,
        sliding_window,
        tool_result_cap,
        tool_stubs,
    )
    from ctxlab.tokens import TokenCounter, count_tokens
    from ctxlab.validity import check
    from ctxlab.view import context_map, frontier

_HOMES = {
    "closeup": "Replay replay",
    "context": "Budget Context",
    "conversation": "Compaction Message Probe Recording ToolCall Usage",
    "errors": "CtxlabError",
    "experiment": "evaluate",
    "formats": "load",
    "history": "Form History",
    "metrics": "per_request",
    "models": "Model find_model",
    "results": "Results",
    "strategies": "Pipeline Strategy chunked_window full nothing observation_mask oracle panic parse "
    "random_drop rolling_summary sliding_window tool_result_cap tool_stubs",
    "tokens": "TokenCounter count_tokens",
    "validity": "check",
    "view": "context_map frontier",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: PLE0604  (the table is the list)
    *sorted(_HOME),  # pyright: ignore
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(f"ctxlab.{_HOME[name]}"), name)
        return value
    raise AttributeError(f"module 'ctxlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
