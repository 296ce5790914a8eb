"""Carry out the actions on a desktop one after the other, in a thread of their own.

A display can stop answering at any moment, and calls of its library then wait forever. An action without
progress is therefore given up. The thread is left behind, and the next action starts with a new one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from ctxlab.errors import DesktopError
from ctxlab.serve.desktop.backend import DesktopBackend, Job

MAX_SILENCE = 4.5
"""Seconds without progress after which an action is given up."""

_POLL_SECONDS = 0.05
T = TypeVar("T")


class Task(Generic[T]):
    """An action that waits for its turn, is carried out, or has ended.

    Parameters
    ----------
    function : callable
        Function that gets the backend and the job of the action.
    """

    def __init__(self, function: Callable[[DesktopBackend, Job], T]) -> None:
        self.function = function
        self.job = Job()
        self.future: Future[T] = Future()
        self.started = False


class DesktopWorker:
    """Thread that owns the connection to a desktop.

    Parameters
    ----------
    connect : callable
        Function that connects to the desktop. It is called with the first action, and again after the
        desktop has gone.
    """

    def __init__(self, connect: Callable[[], DesktopBackend]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: Task[Any] | None = None
        self._closed = False

    def submit(self, function: Callable[[DesktopBackend, Job], T]) -> Task[T]:
        """Queue an action. Actions are carried out in the order of these calls.

        Parameters
        ----------
        function : callable
            Function that gets the backend and the job of the action.

        Returns
        -------
        Task
            The queued action; pass it to ``wait``.

        Raises
        ------
        DesktopError
            If the worker was closed.
        """
        task = Task(function)
        with self._lock:
            if self._closed:
                raise DesktopError("the server is ending")
            if self._thread is None:
                self._start_thread()
            self._tasks.put(task)
        return task

    def wait(self, task: Task[T]) -> T:
        """Wait for the result of an action.

        Parameters
        ----------
        task : Task
            Action that ``submit`` returned.

        Returns
        -------
        object
            What the function of the action returned.

        Raises
        ------
        DesktopError
            If the display did not answer.
        """
        while True:
            try:
                return task.future.result(_POLL_SECONDS)
            except TimeoutError:
                if task.future.done():
                    raise
            silent = time.monotonic() - task.job.last_progress
            if task.started and silent > MAX_SILENCE:
                self._give_up(task)
                raise DesktopError(
                    f"the display has not answered for {silent:.0f} s; check that it is running"
                )

    def close(self) -> None:
        """Stop the current action, so that it leaves the keyboard as it was, and end the thread."""
        with self._lock:
            self._closed = True
            thread, current = self._thread, self._current
            self._tasks.put(None)
        if current is not None:
            current.job.stop()
        if thread is not None:
            thread.join(MAX_SILENCE)

    def _start_thread(self) -> None:
        self._tasks = SimpleQueue()
        run = self._run
        self._thread = threading.Thread(
            target=run, args=(self._tasks,), name="desktop", daemon=True
        )
        self._thread.start()

    def _give_up(self, task: Task[Any]) -> None:
        """Leave a thread behind that is stuck in an action; hand its queued actions to a new one."""
        with self._lock:
            if self._current is not task or self._closed:
                return
            waiting, self._current = self._tasks, None
            self._start_thread()
            while not waiting.empty():
                self._tasks.put(waiting.get())
            waiting.put(None)

    def _run(self, tasks: SimpleQueue[Task[Any] | None]) -> None:
        backend: DesktopBackend | None = None
        while (task := tasks.get()) is not None:
            with self._lock:
                if tasks is not self._tasks:
                    break
                self._current = task
            task.job.step()
            task.started = True
            try:
                backend = backend or self._connect()
                result = task.function(backend, task.job)
            except BaseException as error:
                _close(backend)
                backend = None  # the next action connects again
                task.future.set_exception(error)
            else:
                task.future.set_result(result)
            with self._lock:
                if tasks is self._tasks:
                    self._current = None
        _close(backend)


def _close(backend: DesktopBackend | None) -> None:
    if backend is not None:
        backend.close()
