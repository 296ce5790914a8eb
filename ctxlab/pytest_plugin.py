"""A pytest plugin that replays recordings and fails a test if the scores of a strategy violate bounds.

pytest loads the plugin automatically if ctxlab is installed. The plugin imports the rest of ctxlab
only when a test uses the fixture or the marker::

    def test_masking_keeps_what_is_needed(ctxlab_replay):
        found = ctxlab_replay("logs/", "observation_mask(keep=10) | panic", 8000)
        assert found.overflow_rate == 0
        assert found.recall_far_held >= 0.6

    @pytest.mark.ctxlab_budget(
        "logs/", "observation_mask(keep=10) | panic", 8000,
        max_overflow_rate=0, min_recall_far_held=0.6,
        baseline="tests/budgets.json", margin_tokens_mean="2 %",
    )
    def test_masking_holds():
        pass

Paths are relative to the root folder of pytest. A baseline file stores the scores of an earlier run;
``margin_SCORE`` limits how much worse the score may be than in that run.
``pytest --ctxlab-update`` overwrites the baseline files. If a bound cannot be checked, for example
because the data or the baseline file is missing, the setup of the test fails, which pytest reports
as an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ctxlab.evaluation.gate.check import GateResults
    from ctxlab.evaluation.results import Results

_MARKER_HELP = (
    "ctxlab_budget(data, strategy, limit, *, model, reserve, cache_ttl, fixed, reasoning, "
    "max_SCORE, min_SCORE, baseline, margin_SCORE, name): replay recordings and fail if a score "
    "violates a bound"
)
_UPDATE_OPTION = "--ctxlab-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--ctxlab-update``, which overwrites the baseline files.

    Parameters
    ----------
    parser : pytest.Parser
        Parser of pytest's command line.
    """
    group = parser.getgroup("ctxlab")
    group.addoption(
        _UPDATE_OPTION,
        action="store_true",
        help="overwrite the baselines of ctxlab_budget markers with the current scores",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``ctxlab_budget``, so that ``--strict-markers`` accepts it.

    Parameters
    ----------
    config : pytest.Config
        Configuration of the pytest session.
    """
    config.addinivalue_line("markers", _MARKER_HELP)
    config.stash[_REPLAY_CACHE] = {}
    if config.getoption(_UPDATE_OPTION) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(f"{_UPDATE_OPTION} needs a single process; remove -n, or pass -n 0")


@pytest.fixture(scope="session")
def ctxlab_replay(pytestconfig: pytest.Config) -> Callable[..., ReplayScores]:
    """Return a function that replays recordings through a strategy.

    ``ctxlab_replay(data, strategy, limit, model="", *, reserve=0, cache_ttl="recorded",
    fixed="recorded", reasoning="recorded")`` returns ``ReplayScores``; the options have the meaning of
    ``ctxlab.evaluate``. ``data`` is a path to recordings, a ``Recording``, a list of paths or a list of
    recordings. A second call with the same arguments returns the scores of the first call.

    Parameters
    ----------
    pytestconfig : pytest.Config
        Configuration of the pytest session.

    Returns
    -------
    callable
        The function ``ctxlab_replay``.
    """

    def replay(
        data: Any,
        strategy: Any,
        limit: float | str,
        model: str = "",
        *,
        reserve: int = 0,
        cache_ttl: str = "recorded",
        fixed: int | str = "recorded",
        reasoning: str = "recorded",
    ) -> ReplayScores:
        options = {"reserve": reserve, "cache_ttl": cache_ttl, "fixed": fixed}
        options["reasoning"] = reasoning
        return _replay_once(pytestconfig, data, strategy, limit, model, options)

    return replay


class ReplayScores:
    """Scores of one strategy at one limit. Each column of the leaderboard is an attribute.

    Parameters
    ----------
    results : Results
        Results of the replay.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        "complete results of the replay"
        row = results.leaderboard().iloc[0]
        self.scores: dict[str, Any] = {str(name): row[name] for name in row.index}
        "row of the leaderboard: column name → value"

    def __getattr__(self, name: str) -> Any:
        """Return the value of a leaderboard column, such as ``recall_far_held``."""
        figures = self.__dict__.get("scores", {})
        if name in figures:
            return figures[name]
        if name.startswith("_"):
            raise AttributeError(name)
        from ctxlab.errors import UnknownName

        raise AttributeError(str(UnknownName("score", name, figures)))

    def __repr__(self) -> str:
        """Return a one-line description: the strategy and all scores except 0 and nan."""
        names = [score.name for score in self.results.scores]
        known = {name: self.scores[name] for name in names if self.scores[name] != 0}
        shown = ", ".join(f"{name}={v:.4g}" for name, v in known.items() if v == v)
        return f"<{self.scores['strategy']}: {shown}>"


_REPLAY_CACHE = pytest.StashKey[dict[Any, tuple[Any, "ReplayScores"]]]()
_BROKEN_BOUNDS = pytest.StashKey[list[str]]()


def _replay_once(
    config: pytest.Config,
    data: Any,
    strategy: Any,
    limit: float | str,
    model: str,
    options: dict[str, Any],
) -> ReplayScores:
    """Replay the recordings, or return the cached scores of a replay with the same arguments."""
    from pathlib import Path

    from ctxlab._utils.humanize import parse_limit
    from ctxlab.errors import SpecError
    from ctxlab.evaluation.experiment import evaluate
    from ctxlab.evaluation.metrics import DEFAULT_METRICS
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording
    from ctxlab.strategies import as_strategy, parse_strategy

    several = [data] if isinstance(data, (str, Path, Recording)) else list(data)
    recordings = [each for each in several if isinstance(each, Recording)]
    if recordings and len(recordings) < len(several):
        raise SpecError("data: expected only paths or only recordings, got a list of both")
    chosen = parse_strategy(strategy) if isinstance(strategy, str) else as_strategy(strategy)
    # Recordings are compared by id(), which stays unique because the cache keeps a reference to them.
    which = tuple(str(id(one)) if recordings else str(one) for one in several)
    key = (which, chosen, parse_limit(limit), model, *options.values())
    done = config.stash[_REPLAY_CACHE]
    if key not in done:
        paths = () if recordings else tuple(map(str, several))
        folder = config.rootpath
        results = evaluate(
            recordings or Spec(data=paths, folder=str(folder)).recordings(),
            chosen,
            limit,
            model,
            **options,
            metrics=DEFAULT_METRICS,
            data=paths,
            progress=False,
            project=folder,
        )
        done[key] = (several, ReplayScores(results))
    return done[key][1]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replay the recordings of a test's ``ctxlab_budget`` markers and check the bounds.

    If a score violates a bound, the finding is stored, and ``pytest_runtest_call`` fails the test. If a
    bound cannot be checked, the setup fails, which pytest reports as an error.

    Parameters
    ----------
    item : pytest.Item
        The test that is about to run.
    """
    bind_arguments = inspect.signature(_check_budget).bind
    broken: list[str] = []
    names: set[str] = set()
    for marker in item.iter_markers("ctxlab_budget"):
        from ctxlab.errors import CtxlabError

        try:
            asked = bind_arguments(item, names, *marker.args, **marker.kwargs)
        except TypeError as error:
            pytest.fail(f"ctxlab_budget: {error}", pytrace=False)
        try:
            gate = _check_budget(*asked.args, **asked.kwargs)
        except CtxlabError as error:
            pytest.fail(f"ctxlab_budget: {error}", pytrace=False)
        broken += [finding.sentence for finding in gate.breaches]
    item.stash[_BROKEN_BOUNDS] = broken


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail the test, without running it, if a score violates a bound of one of its markers.

    Parameters
    ----------
    item : pytest.Item
        The test that is about to run.
    """
    if broken := item.stash.get(_BROKEN_BOUNDS, []):
        pytest.fail("\n".join(broken), pytrace=False)


def _check_budget(
    item: pytest.Item,
    names: set[str],
    data: Any,
    strategy: Any,
    limit: Any,
    *,
    model: str = "",
    reserve: int = 0,
    cache_ttl: str = "recorded",
    fixed: int | str = "recorded",
    reasoning: str = "recorded",
    baseline: Any = None,
    name: str = "",
    **bounds: Any,
) -> GateResults:
    """Check the bounds of one ``ctxlab_budget`` marker of a test.

    The arguments of the marker are ``data`` and all parameters after it. ``names`` is a set with the
    ``name`` arguments of the test's earlier markers. The ``name`` of this marker is added to the set.
    """
    from pathlib import Path

    from ctxlab._utils.humanize import parse_limit
    from ctxlab.errors import SpecError
    from ctxlab.evaluation.gate import baseline as stored
    from ctxlab.evaluation.gate.check import GateResults, check_results
    from ctxlab.evaluation.gate.config import GateBudget, parse_bounds

    table = _bounds_table(bounds)
    if bool(table["margin"]) != (baseline is not None):
        raise SpecError("expected both margin_SCORE and baseline, or neither; got only one of them")
    if name in names:
        raise SpecError(f"several markers have name={name!r}; give each marker a different name")
    names.add(name)
    options = {"reserve": reserve, "cache_ttl": cache_ttl, "fixed": fixed}
    options["reasoning"] = reasoning
    results = _replay_once(item.config, data, strategy, limit, model, options).results
    ((chosen, _),) = results.configurations
    of = " / ".join(filter(None, (item.nodeid, name)))
    budget = GateBudget(of, "", chosen, parse_limit(limit), parse_bounds(table, results.scores))
    file, then = item.config.rootpath / (baseline or ""), None
    if baseline is not None:
        parts = stored.read_baseline(file)
        if item.config.getoption(_UPDATE_OPTION):
            new = stored.make_experiment_baseline(results, [budget], margins_only=True)
            parts = {**parts, of: new}
            stored.write_baseline(parts, file)
        then = parts.get(of)
    found = check_results(results, [budget], then, Path(baseline or ""), f"pytest {_UPDATE_OPTION}")
    return GateResults(tuple(found))


def _bounds_table(bounds: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Convert keywords such as ``max_overflow_rate=0`` to the nested table of a budget file.

    The result contains, for each kind of bound (``max``, ``min``, ``margin``), a dict from the name
    of a score to its bound.
    """
    from ctxlab.errors import SpecError, UnknownName
    from ctxlab.evaluation.gate.config import BOUND_KINDS

    table: dict[str, dict[str, Any]] = {kind: {} for kind in BOUND_KINDS}
    for key, value in bounds.items():
        kind, _, score = key.partition("_")
        if kind not in table or not score:
            known = ("model", "reserve", "cache_ttl", "fixed", "reasoning", "baseline", "name")
            raise UnknownName("key", key, (*known, *(f"{each}_SCORE" for each in BOUND_KINDS)))
        table[kind][score] = value
    if not bounds:
        raise SpecError("expected a bound, got none; pass max_SCORE, min_SCORE or margin_SCORE")
    return table
