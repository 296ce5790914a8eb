"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
from contextlib import suppress

from ctxlab._utils.garbage import pause_garbage_collection


def test_the_collector_runs_again_after_a_failure() -> None:
    with suppress(ValueError), pause_garbage_collection():
        raise ValueError
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_disabled() -> None:
    gc.disable()
    try:
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
