"""Import litellm in a background thread, because the import takes seconds.

The import prints nothing, and Ctrl+C does not interrupt it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from ctxlab.llm.streaming import STREAM_OPTIONS


def _import_litellm() -> Any:
    # Otherwise litellm fetches its price table from the network at import.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with _ignore_warnings(r"(litellm|pydantic|openai|httpx|aiohttp|asyncio)\b"):
        made: Any = importlib.import_module("litellm")
        made.suppress_debug_info = True  # otherwise each error prints an advertisement
        # The first call of litellm creates more objects and warns; make that call now, with a mock.
        for options in ({}, STREAM_OPTIONS):
            mock = {"messages": [{"role": "user", "content": "-"}], "mock_response": "-", **options}
            list(made.completion(model="openai/gpt-4o", **mock))
    return made


@contextmanager
def _ignore_warnings(modules: str) -> Iterator[None]:
    """Ignore warnings of modules whose names match a regular expression.

    Filters apply to all threads. ``warnings.catch_warnings`` would undo what other threads change in
    the meantime, so only this filter is removed.
    """
    warnings.filterwarnings("ignore", module=modules)
    added = warnings.filters[0]
    try:
        yield
    finally:
        with suppress(ValueError):  # another thread has removed it
            warnings.filters.remove(added)  # type: ignore[attr-defined]


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
    """Wait at program exit until the import has ended.

    If the thread of the import were stopped earlier, it might never release its locks.
    """
    if not loading.done():
        warnings.simplefilter("ignore")  # warnings of the import do not help a user who exits
    with suppress(BaseException):
        loading.exception()


def start_import() -> Future[Any]:
    """Start the import of litellm in a background thread, unless it has started already.

    The import does not run in the main thread, for two reasons. Ctrl+C could interrupt it there and
    leave the module incomplete, so that every later call would fail. The import also leaves an
    event loop open in the thread in which it runs.

    Returns
    -------
    concurrent.futures.Future
        Future whose result is the module ``litellm``.
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
    """Return the module ``litellm``, and import it first if necessary.

    The first call waits several seconds for the import.

    Returns
    -------
    module
        The imported module ``litellm``.
    """
    return start_import().result()
