"""litellm is imported late, since it takes seconds, without a word, and in spite of Ctrl+C whole."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import threading
import warnings
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ctxlab.llm.streaming import STREAM_OPTIONS

__all__ = ["load_litellm", "start_import"]


def _import_litellm() -> Any:
    # Without this litellm fetches its table of prices from the network when it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = importlib.import_module("litellm")
        made.suppress_debug_info = True  # else each error prints an advertisement
        # An answer made up by litellm itself: what it builds with the first call, and warns of, is
        # built here.
        mock = {"messages": [{"role": "user", "content": "-"}], "mock_response": "-"}
        ask = functools.partial(made.completion, model="openai/gpt-4o", **mock)
        ask()
        list(ask(**STREAM_OPTIONS))
    return made


_import_lock = threading.Lock()
_pending_import: list[Future[Any]] = []


def _run_import(loading: Future[Any]) -> None:
    try:
        with _import_lock:
            loading.set_result(_import_litellm())
    except BaseException as error:
        _pending_import.clear()  # the next call tries again
        loading.set_exception(error)


def _wait_at_exit(loading: Future[Any]) -> None:
    """A program that ends waits for the import: a thread that stops in it may hold locks for ever."""
    if not loading.done():
        warnings.simplefilter("ignore")  # those of the import, which say nothing to whoever leaves
    with suppress(BaseException):
        loading.exception()


def start_import() -> Future[Any]:
    """litellm, or its import while that is under way.

    It is imported in a thread of its own: Ctrl+C, which only the main one hears, would leave half of
    it behind, on which every later call fails; and it leaves an event loop open in whoever calls it.
    """
    if known := _pending_import[:1]:
        return known[0]
    loading: Future[Any] = Future()
    try:
        _pending_import.append(loading)
        atexit.register(_wait_at_exit, loading)
        threading.Thread(target=_run_import, args=(loading,), daemon=True).start()
    except BaseException:
        _pending_import.clear()
        raise
    return loading


def load_litellm() -> Any:
    """litellm, imported with the first call: it takes seconds."""
    return start_import().result()
