"""Executors: functions that run tasks in this process, in worker processes, or on a Dask cluster.

An executor takes a function and tasks, and yields the result of each task. A task is read only when it
will soon be needed, so that any number of tasks fits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from ctxlab.errors import CtxlabError, SpecError
from ctxlab.evaluation.parallel import MAX_DEATHS, WORKER_DIED, map_parallel

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")

LOCAL = "local"
"""Address that starts a Dask cluster on this machine for the time of the run."""

_TASKS_PER_WORKER = 2  # the next task arrives while the worker computes
_RETRIES = 3  # of a task whose worker died


class Executor(Protocol):
    """Function that runs tasks."""

    def __call__(
        self,
        function: Callable[[_Task], _Answer],
        tasks: Iterable[_Task],
        *,
        on_death: Callable[[_Task], _Task],
    ) -> Iterator[_Answer]:
        """Yield ``function(task)`` for each task, in any order.

        If a worker dies, ``on_death`` returns the task to compute instead of that of the worker.
        """


def choose_executor(workers: int | None = None, scheduler: str | None = None) -> Executor:
    """Return the executor that runs tasks in worker processes or on a Dask cluster.

    Parameters
    ----------
    workers : int, optional
        Number of processes; 1 runs everything in this process. None uses all cores on Linux if no
        other thread runs, otherwise one. On a Dask cluster, the number of workers to start if
        ``scheduler`` is ``"local"``.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``, or ``"local"`` for a cluster
        on this machine. None uses processes.

    Returns
    -------
    Executor
        Function that runs tasks.

    Raises
    ------
    SpecError
        If ``scheduler`` is given and ``distributed`` is not installed.

    Examples
    --------
    >>> list(choose_executor(workers=1)(abs, [-1, 2], on_death=lambda task: task))
    [1, 2]
    """
    if scheduler is None:
        return partial(map_parallel, workers=workers)
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise SpecError(
            "scheduler: expected the package distributed, which is missing; pip install 'ctxlab[dask]'"
        ) from None
    return partial(_map_on_dask, workers=workers, scheduler=scheduler)


def _map_on_dask(
    function: Callable[[_Task], _Answer],
    tasks: Iterable[_Task],
    workers: int | None,
    scheduler: str,
    *,
    on_death: Callable[[_Task], _Task],
) -> Iterator[_Answer]:
    from distributed import Client, KilledWorker, LocalCluster, as_completed

    with ExitStack() as stack:  # closes the client first, also if a task fails
        place: Any = scheduler
        if scheduler == LOCAL:
            started = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            place = stack.enter_context(started)
        try:
            client = stack.enter_context(Client(place, timeout=10, set_as_default=False))
        except (OSError, ValueError) as error:
            raise SpecError(
                f"scheduler: cannot reach {scheduler} ({error}); start one with: dask scheduler"
            ) from None
        waiting = iter(tasks)
        running = as_completed(loop=client.loop)
        sent: dict[Any, tuple[_Task, int]] = {}  # with the number of deaths

        def submit(task: _Task, deaths: int = 0) -> None:
            # A task is pure: if its worker dies, Dask lets another compute it again, some times.
            future = client.submit(function, task, pure=False, retries=_RETRIES)
            sent[future.key] = task, deaths
            running.add(future)

        for task in islice(
            waiting, _TASKS_PER_WORKER * max(1, len(client.scheduler_info()["workers"]))
        ):
            submit(task)
        for future in running:
            task, deaths = sent.pop(future.key)
            try:
                answer = future.result()
            except KilledWorker:
                if deaths >= MAX_DEATHS:
                    raise CtxlabError(WORKER_DIED) from None
                submit(on_death(task), deaths + 1)
                continue
            future.release()
            yield answer
            for task in islice(waiting, 1):
                submit(task)
