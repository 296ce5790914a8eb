"""Progress is shown where a person looks: on a terminal and in a notebook, never in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import TypeVar

__all__ = ["track", "track_bytes"]

_Item = TypeVar("_Item")
_REFRESH_SECONDS = 0.1
"seconds between two drawings"


def track(
    items: Iterable[_Item], description: str, total: int | None = None, show: bool | None = None
) -> Iterator[_Item]:
    """The items, one by one, with a bar on standard error that goes away when it is done.

    ``total``: how many there are; None is as many as a list holds, else nobody knows. ``show``: None
    decides by who is looking.
    """
    if not (_is_interactive() if show is None else show):
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if total is None and isinstance(items, Sequence):
        total = len(items)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # No thread of its own draws the bar: beside threads nothing can be forked, and work would be slow.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    with bar as progress:
        task, last_refresh = progress.add_task(description, total=total), 0.0
        for item in items:
            yield item
            progress.advance(task)
            if monotonic() - last_refresh > _REFRESH_SECONDS:
                progress.refresh()
                last_refresh = monotonic()


def track_bytes(
    chunks: Iterable[bytes],
    description: str,
    total: int,
    completed: int = 0,
    show: bool | None = None,
) -> Iterator[bytes]:
    """The chunks of a transfer, one by one, with a bar as ``track`` has it that counts bytes.

    ``total``: how many there are to be; ``completed``: how many of them were there before.
    """
    if not (_is_interactive() if show is None else show):
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total, completed=completed)
        for chunk in chunks:
            progress.advance(task, len(chunk))
            yield chunk


def _is_interactive() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"
