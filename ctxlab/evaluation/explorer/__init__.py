"""Explorer: a widget that leads from the frontier to a recording, a request, a lost need and its source.

``answers`` has the data, without any widget. ``widget`` shows it in a notebook, and is imported only
when an explorer is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import DEFAULT_LIMITS, StrategyLike, as_list, resolve_strategy
from ctxlab.strategies.registry import DEFAULT_LINEUP

if TYPE_CHECKING:
    from ctxlab.evaluation.explorer.widget import Explorer
    from ctxlab.evaluation.results import Results
    from ctxlab.messages.types import Recording

__all__ = ["explore", "explore_results"]


def explore(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_LINEUP,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    **options: Any,
) -> Explorer:
    """Replay recordings through strategies, and show the results in an explorer.

    A click on a point of the frontier shows a recording; a click on a lost need shows the request that
    missed it and the message that held it.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay. They stay in memory.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies; the default lineup if left out.
    limits : float, str or iterable of them, optional
        One or several limits; see ``ctxlab.evaluate``.
    **options : object
        Further arguments of ``ctxlab.evaluate``, such as ``model`` or ``reserve``.

    Returns
    -------
    Explorer
        Widget, which a notebook shows. Elsewhere it shows itself as a static picture.

    Raises
    ------
    SpecError
        If an argument is invalid.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
    >>> explorer = ctxlab.explore(recordings, ["full", "sliding_window()"], 8000)
    >>> explorer.replay
    <coding-agent/check-digits-1 through sliding_window(): 120 requests>
    """
    loaded = list(recordings)
    chosen = [resolve_strategy(each) for each in as_list(strategies)]
    results = evaluate(loaded, chosen, limits, **options)
    return explore_results(results, loaded, strategies=chosen)


def explore_results(
    results: Results,
    recordings: Iterable[Recording] = (),
    *,
    recording: str | None = None,
    strategy: str | None = None,
    against: str | None = None,
    limit: float | str | None = None,
    strategies: Iterable[StrategyLike] = (),
) -> Explorer:
    """Show results in an explorer; see ``Results.explore``.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    recordings : iterable of Recording, optional
        Recordings of the run that are in memory.
    recording, strategy, against : str, optional
        Recording and strategies to show first.
    limit : float or str, optional
        Limit to show first, such as ``8000`` or ``"50%"``.
    strategies : iterable of Strategy, str or callable, optional
        Strategies of the run that are not part of ctxlab.

    Returns
    -------
    Explorer
        Widget, which a notebook shows.

    Raises
    ------
    UnknownName
        If the results have no such recording, strategy or limit.
    """
    from ctxlab.evaluation.explorer.answers import ExplorerAnswers
    from ctxlab.evaluation.explorer.widget import Explorer

    own = [resolve_strategy(each) for each in as_list(strategies)]
    answers = ExplorerAnswers(results, recordings, own)
    return Explorer(answers, answers.choose(recording, strategy, against, limit))
