"""Show progress in notebooks, and on standard error if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ctxlab._utils.numbers import format_bytes

if TYPE_CHECKING:
    import rich.progress

_Item = TypeVar("_Item")
_REFRESH_SECONDS = 0.1
"Minimum number of seconds between two redraws of a progress bar."
_DELAY_SECONDS = 0.5
"A notebook shows no progress of what takes less time than this."
_NOTEBOOK_REFRESH_SECONDS = 0.25
_BAR_WIDTH = 24


class Counted(Generic[_Item]):
    """Iterator that counts the items it yields, and estimates their total number.

    The estimate uses the ``__length_hint__`` of the iterator, which says how many items may be left.

    >>> items = Counted([1, 2, 3])
    >>> next(items), items.count, items.total
    (1, 1, 3)
    """

    def __init__(self, items: Iterable[_Item]) -> None:
        self._items = iter(items)
        self.count = 0
        self._finished = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Item:
        try:
            item = next(self._items)
        except StopIteration:
            self._finished = True
            raise
        self.count += 1
        return item

    @property
    def total(self) -> int | None:
        """Estimated number of items; None if unknown."""
        left = 0 if self._finished else length_hint(self._items)
        return self.count + left if left or self._finished else None


def track(
    items: Iterable[_Item], description: str, total: int | None = None, show: bool | None = None
) -> Iterator[_Item]:
    """Yield the items and show a progress bar, which disappears after the last item.

    ``total`` is the number of items. If it is None, the length of ``items`` is used. If ``items`` has no
    length either, the bar shows no total. If ``show`` is None, the bar is shown in a notebook, or if
    standard error is a terminal.
    """
    if total is None and isinstance(items, Sequence):
        total = len(items)
    with show_count(description, show) as update:
        update(0, total)
        for number, item in enumerate(items, start=1):
            yield item
            update(number, total)


@contextmanager
def show_count(
    description: str, show: bool | None = None
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar within the ``with`` block, and yield a function that updates it.

    The arguments of the function are the number of completed items and the total, or None if the total
    is unknown. If ``show`` is None, the bar is shown in a notebook, or if standard error is a terminal.
    """
    if _in_notebook() and show is not False:
        with _NotebookLine(description) as line:
            yield line.update
        return
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda completed, total: None
        return
    # auto_refresh would start a thread, which makes os.fork unsafe and slows down the main thread.
    columns = ("MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn")
    with _make_bar(*columns, auto_refresh=False, rate=True) as progress:
        task, last_refresh = progress.add_task(description, total=None), 0.0

        def update(completed: int, total: int | None) -> None:
            nonlocal last_refresh
            progress.update(task, completed=completed, total=total)
            if monotonic() - last_refresh > _REFRESH_SECONDS:
                progress.refresh()
                last_refresh = monotonic()

        yield update


def track_bytes(
    chunks: Iterable[bytes], description: str, total: int, completed: int, show: bool | None
) -> Iterator[bytes]:
    """Yield the chunks of a download and show a progress bar in bytes.

    ``total`` is the size of the whole file in bytes. ``completed`` is the number of bytes that an
    earlier, interrupted download transferred. If ``show`` is None, the bar is shown in a notebook, or if
    standard error is a terminal.
    """
    if _in_notebook() and show is not False:
        with _NotebookLine(description, format_bytes) as line:
            for chunk in chunks:
                completed += len(chunk)
                line.update(completed, total)
                yield chunk
        return
    if not (sys.stderr.isatty() if show is None else show):
        yield from chunks
        return
    with _make_bar("DownloadColumn", "TimeRemainingColumn") as progress:
        task = progress.add_task(description, total=total, completed=completed)
        for chunk in chunks:
            progress.advance(task, len(chunk))
            yield chunk


def _make_bar(
    *columns: str, auto_refresh: bool = True, rate: bool = False
) -> rich.progress.Progress:
    """Create a progress bar with a description, the bar, and the named columns of ``rich.progress``.

    If ``rate`` is True, the last column shows the number of items per second.
    """
    import rich.console
    import rich.progress as kit

    class RateColumn(kit.ProgressColumn):
        def render(self, task: kit.Task) -> str:
            return "" if task.speed is None else f"{task.speed:,.3g}/s"

    shown = [kit.TextColumn("{task.description}"), kit.BarColumn()]
    shown += [getattr(kit, name)() for name in columns]
    shown += [RateColumn()] if rate else []
    console = rich.console.Console(stderr=True)
    return kit.Progress(*shown, console=console, transient=True, auto_refresh=auto_refresh)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class _NotebookLine:
    """Line of text in the output of a notebook's cell, which is emptied at the end.

    A widget would be stored in the notebook, where nothing can show it later. What takes less than
    half a second shows no line at all.
    """

    def __init__(self, description: str, write: Callable[[int], str] = "{:,}".format) -> None:
        self._description, self._write = description, write
        self._handle: Any = None
        self._start = monotonic()
        self._next = self._start + _DELAY_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            self._handle.update({}, raw=True)

    def update(self, completed: int, total: int | None) -> None:
        """Show the number of completed items, if the last change is not too recent."""
        import IPython.display

        now = monotonic()
        if now < self._next:
            return
        self._next = now + _NOTEBOOK_REFRESH_SECONDS
        shown = {"text/plain": self._describe(completed, total, now - self._start)}
        if self._handle is None:
            display: Any = IPython.display.display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def _describe(self, completed: int, total: int | None, seconds: float) -> str:
        count, seconds = self._write(completed), max(seconds, 0.0)
        if not total:
            return f"{self._description}: {count} in {seconds:.0f} s"
        filled = min(_BAR_WIDTH, _BAR_WIDTH * completed // total)
        bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
        left = (
            f", about {seconds * max(total - completed, 0) / completed:.0f} s left"
            if completed
            else ""
        )
        return f"{self._description} {bar} {count} of {self._write(total)}{left}"
