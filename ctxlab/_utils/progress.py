"""Progress bars on standard error, shown on a terminal and in a notebook, but not in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import rich.progress

_Item = TypeVar("_Item")
_REFRESH_SECONDS = 0.1
"seconds between two redraws"


def track(
    items: Iterable[_Item], description: str, total: int | None = None, show: bool | None = None
) -> Iterator[_Item]:
    """Yield the items and show a progress bar, which disappears at the end.

    ``total`` is the number of items; None uses the length of a sequence, and shows no total for other
    iterables. ``show=None`` shows the bar if standard error is a terminal or in a notebook.
    """
    if not (_is_interactive() if show is None else show):
        yield from items
        return
    if total is None and isinstance(items, Sequence):
        total = len(items)
    # auto_refresh would start a thread, which makes forking unsafe and slows down the work.
    with _make_bar("MofNCompleteColumn", "TimeElapsedColumn", auto_refresh=False) as progress:
        task, last_refresh = progress.add_task(description, total=total), 0.0
        for item in items:
            yield item
            progress.advance(task)
            if monotonic() - last_refresh > _REFRESH_SECONDS:
                progress.refresh()
                last_refresh = monotonic()


def track_bytes(
    chunks: Iterable[bytes], description: str, total: int, completed: int, show: bool | None
) -> Iterator[bytes]:
    """Yield the chunks of a transfer and show a progress bar in bytes.

    ``total`` is the size of the whole transfer and ``completed`` the part that was transferred
    earlier, both in bytes. ``show`` works as in ``track``.
    """
    if not (_is_interactive() if show is None else show):
        yield from chunks
        return
    with _make_bar("DownloadColumn", "TimeRemainingColumn") as progress:
        task = progress.add_task(description, total=total, completed=completed)
        for chunk in chunks:
            progress.advance(task, len(chunk))
            yield chunk


def _make_bar(*columns: str, auto_refresh: bool = True) -> rich.progress.Progress:
    """Return a progress bar that shows the named columns of ``rich.progress`` after the bar."""
    import rich.console
    import rich.progress as kit

    shown = [kit.TextColumn("{task.description}"), kit.BarColumn()]
    shown += [getattr(kit, name)() for name in columns]
    console = rich.console.Console(stderr=True)
    return kit.Progress(*shown, console=console, transient=True, auto_refresh=auto_refresh)


def _is_interactive() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"
