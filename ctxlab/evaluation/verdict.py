"""Recommend the cheapest strategy that keeps enough recall, in one paragraph.

Recall is the headline score here (``HEADLINE_SCORE``). A strategy qualifies if all of its requests fit
the limit, if the provider would accept each of its requests for which it would accept the full history,
and if it can be deployed: controls and strategies that need the log of a recording never qualify. The
decision uses the point estimates. The paragraph says what the intervals add:

- If the interval of the difference between the strategy and the required recall contains 0, the
  recordings do not settle whether the strategy has this recall on other recordings. The paragraph then
  contains the smallest difference that they could show (see ``ctxlab.evaluation.bootstrap``).
- The strategy is compared with chance (``random_drop``) only if chance sent equally many tokens.

The cheapest of many rows that reach a minimum is chosen partly by chance, and its recall on the
recordings that chose it is optimistic. If it was chosen on other recordings (the
tuning set of ``ctxlab tune``), its figures are reported whether or not they reach the minimum, and are
unbiased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import describe_limit, format_dollars
from ctxlab.evaluation.bootstrap import POWER, RatioDifference, ratio_difference
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.recall import FAR_TOKENS, HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.strategies.registry import is_control

if TYPE_CHECKING:
    import pandas as pd

ConfigurationKey: TypeAlias = tuple[float, str]
"""Key of a configuration: the limit, and the strategy as a string."""
HeadlineSums: TypeAlias = Callable[[Sequence[ConfigurationKey]], tuple[FloatArray, FloatArray]]
"""Function that returns the numerators and denominators of the headline score for configurations, as
arrays of shape ``(clusters, configurations)``."""


class Choice(NamedTuple):
    """Configuration that is chosen on the rows of a leaderboard."""

    key: ConfigurationKey
    "limit and strategy of the configuration"
    qualifies: bool
    "True if it is the cheapest qualifying one; False if none qualifies, and it is only the nearest"


_REQUIRED_COLUMNS = frozenset(
    {
        HEADLINE_SCORE,
        "far_arguments",
        "cost_usd",
        "tokens_mean",
        "overflow_rate",
        "newly_invalid_rate",
    }
)
_ROUNDING_TOLERANCE = 1e-12
_EQUAL_TOKENS = 0.05
"largest difference of the mean tokens, as a share, at which a strategy is compared with chance"
_MAX_DIGITS = 6
MIN_FAR_ARGUMENTS = 10
"""minimum number of arguments of tool calls with a far need for a recommendation; far recall computed
from fewer arguments is not reliable"""
_MAX_FALLBACK_RATE = 0.05
"the verdict mentions the share of fallbacks among a strategy's summaries if it exceeds this"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"[A-Za-z_][\w.]*(?![\w.]*=)")
"name in a strategy expression, but not the name of a parameter"


def control_name(strategy: str) -> str:
    """Return the name of the first control in a strategy, also inside a pipeline or another strategy.

    ``full`` is a control only if it is the whole strategy, because it changes nothing in a pipeline.

    Parameters
    ----------
    strategy : str
        Strategy as a string, such as ``"oracle() | panic()"``.

    Returns
    -------
    str
        Name of the control; an empty string if the strategy contains no control.

    Examples
    --------
    >>> control_name("oracle() | panic()"), control_name("full()"), control_name("full() | panic()")
    ('oracle', 'full', '')
    >>> control_name("in_batches(recorded(), trigger=0.9)")
    'recorded'
    """
    names = _NAME.findall(_QUOTED.sub("", strategy))
    return next((n for n in names if is_control(n) and (n != "full" or len(names) == 1)), "")


def control_names(leaderboard: pd.DataFrame) -> pd.Series[str]:
    """Return the name of the control in the strategy of each leaderboard row.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard with the column ``strategy``.

    Returns
    -------
    pandas.Series of str
        Names as ``control_name`` returns them; empty strings for strategies without a control.
    """
    return leaderboard["strategy"].map(control_name)


def usable_rows(leaderboard: pd.DataFrame) -> pd.Series[bool]:
    """Find the leaderboard rows whose requests fit the limit and would be accepted by the provider.

    A row is usable if none of its requests overflows, and if the provider would accept each of its
    requests for which it would accept the full history.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation. If it has no column ``overflow_rate`` or
        ``newly_invalid_rate``, the condition on this column is not checked.

    Returns
    -------
    pandas.Series of bool
        True for each usable row.
    """
    import pandas as pd

    fit = pd.Series(True, index=leaderboard.index)
    for flaw in ("overflow_rate", "newly_invalid_rate"):
        if flaw in leaderboard:
            fit &= leaderboard[flaw] <= 0
    return fit


def qualifying_rows(leaderboard: pd.DataFrame, min_recall: float = 0.95) -> pd.DataFrame:
    """Return the leaderboard rows that qualify for a recommendation, cheapest first.

    A row qualifies if it is usable (see ``usable_rows``), is not a control and keeps enough recall.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation.
    min_recall : float, default 0.95
        Minimum of the headline recall score, as a share of its value for full history.

    Returns
    -------
    pandas.DataFrame
        Qualifying rows; empty if none qualifies or the data does not support a recommendation.
    """
    if no_verdict_reason(leaderboard):
        return leaderboard.iloc[:0]
    usable = _usable_candidates(leaderboard)
    goal = _required_recall(leaderboard, min_recall)
    keeps = usable[usable[HEADLINE_SCORE] >= goal - _ROUNDING_TOLERANCE]
    return keeps.sort_values(["cost_usd", "tokens_mean"], kind="stable")


def choose_configuration(leaderboard: pd.DataFrame, min_recall: float = 0.95) -> Choice | None:
    """Choose the cheapest qualifying row, or the nearest one if no row qualifies.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation, or the trials of a search.
    min_recall : float, default 0.95
        Minimum of the headline recall score, as a share of its value for full history.

    Returns
    -------
    Choice or None
        Cheapest row of ``qualifying_rows``. If there is none, the usable row with the highest recall.
        None if no row is usable or the data does not support a recommendation.
    """
    keeps = qualifying_rows(leaderboard, min_recall)
    if len(keeps):
        return Choice(_key(keeps.iloc[0]), qualifies=True)
    usable = _usable_candidates(leaderboard)
    if usable.empty or no_verdict_reason(leaderboard):
        return None
    nearest = usable.sort_values(HEADLINE_SCORE, kind="stable", na_position="first").iloc[-1]
    return Choice(_key(nearest), qualifies=False)


def is_confirmed(tuned: Choice, leaderboard: pd.DataFrame, min_recall: float = 0.95) -> bool:
    """Return True if a configuration qualifies on the tuning set and on the held-out set.

    Parameters
    ----------
    tuned : Choice
        Configuration that was chosen on the tuning set.
    leaderboard : pandas.DataFrame
        Leaderboard of the held-out set.
    min_recall : float, default 0.95
        Minimum of the headline recall score, as a share of its value for full history.

    Returns
    -------
    bool
        True if the configuration can be recommended.
    """
    keeps = qualifying_rows(leaderboard, min_recall)
    return tuned.qualifies and tuned.key in zip(keeps["limit"], keeps["strategy"], strict=True)


def leaderboard_verdict(
    leaderboard: pd.DataFrame,
    headline_sums: HeadlineSums,
    min_recall: float = 0.95,
    tuned: Choice | None = None,
) -> str:
    """Recommend a strategy of a leaderboard in one paragraph.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation.
    headline_sums : HeadlineSums
        Function that returns the sums of the headline score, such as ``Results.headline_sums``.
    min_recall : float, default 0.95
        Minimum of the headline recall score, as a share of its value for full history.
    tuned : Choice, optional
        Configuration that was chosen on a tuning set. The leaderboard is that of a held-out set, and
        only measures this configuration. None chooses a configuration on the leaderboard itself.

    Returns
    -------
    str
        Paragraph that names the cheapest qualifying strategy. If none qualifies, it names the
        strategy with the highest recall or says why there is no recommendation. With ``tuned``, it
        recommends this configuration only if it also qualifies on the held-out set. Otherwise it
        says what happened, and which strategy would be the cheapest to qualify there.
    """
    if said := no_verdict_reason(leaderboard):
        return said
    choice = tuned or choose_configuration(leaderboard, min_recall)
    goal = _required_recall(leaderboard, min_recall)
    if choice is None:
        return f"No strategy has {_format_goal(goal, min_recall, goal)}: {_flaw(leaderboard)}."
    best = _find_row(leaderboard, choice.key)
    full = leaderboard[control_names(leaderboard) == "full"]
    figures, saving, last = _format_figures(best, goal), _format_saving(best, full), ""
    wanted = _format_goal(goal, min_recall, best[HEADLINE_SCORE])
    if tuned is None and choice.qualifies:
        first = f"The cheapest strategy with {wanted} is {_format_key(best)}: {figures}{saving}"
    elif tuned is None:
        first = f"No strategy has {wanted}; the nearest is {_format_key(best)}: {figures}"
    else:
        confirmed = is_confirmed(tuned, leaderboard, min_recall)
        measured = f"On {len(headline_sums([tuned.key])[0])} held-out clusters"
        first = (
            f"{_tuned_sentence(tuned, best, confirmed, min_recall)}. "
            f"{measured}, it {_format_outcome(best, goal)}: {figures}{saving}"
        )
        last = "" if confirmed else _optimistic_sentence(tuned, leaderboard, goal, min_recall)
    sentences = [
        first,
        _floor_sentence(best, full, headline_sums, min_recall),
        _chance_sentence(best, leaderboard, headline_sums),
        _fallback_sentence(best),
        last,
    ]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def no_verdict_reason(leaderboard: pd.DataFrame) -> str:
    """Return the reason why the data supports no recommendation.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation, or the trials of a search.

    Returns
    -------
    str
        One sentence; an empty string if there is no such reason.
    """
    if not set(leaderboard) >= _REQUIRED_COLUMNS:
        return "No recommendation: it needs the metrics usage, validity, cost and recall."
    far = leaderboard["far_arguments"].max()
    if not far > 0:
        return (
            f"No tool call uses anything last mentioned more than {FAR_TOKENS:,} tokens earlier, so "
            f"{HEADLINE_LABEL} cannot compare the strategies."
        )
    if far < MIN_FAR_ARGUMENTS:
        label = f"{HEADLINE_LABEL[:1].upper()}{HEADLINE_LABEL[1:]}"
        arguments = pluralize(round(far), "argument")
        return f"{label} is based on {arguments}, too few to compare strategies."
    control = control_names(leaderboard)
    if (control != "").all():
        return "Only controls were compared, which are never recommended."
    full = leaderboard[control == "full"]
    if len(full) and not full["overflow_rate"].max() > 0:
        return "Full history fits at every request under every limit, so no strategy is needed."
    return ""


def _usable_candidates(board: pd.DataFrame) -> pd.DataFrame:
    return board[usable_rows(board) & (control_names(board) == "")]


def _flaw(board: pd.DataFrame) -> str:
    """Return why no row is usable."""
    chosen = board[control_names(board) == ""]
    fitting = chosen[chosen["overflow_rate"] <= 0]
    if fitting.empty:
        return "every strategy exceeds its limit at some request"
    return (
        "of each strategy that fits, the provider would reject requests for which it would "
        f"accept the full history (at least {fitting['newly_invalid_rate'].min():.2%})"
    )


def _find_row(board: pd.DataFrame, key: ConfigurationKey) -> Any:
    limit, strategy = key
    return board[(board["limit"] == limit) & (board["strategy"] == strategy)].iloc[0]


def _tuned_sentence(tuned: Choice, best: Any, confirmed: bool, min_recall: float) -> str:
    """Name a configuration that was chosen on a tuning set, and say if it is recommended."""
    wanted = f"a {HEADLINE_LABEL} of at least {min_recall:g} times that of full history"
    cheapest = f"cheapest strategy with {wanted} on the tuning set"
    if confirmed:
        return f"Recommended: {_format_key(best)}, the {cheapest}"
    if tuned.qualifies:
        return f"No recommendation. The {cheapest} is {_format_key(best)}"
    nearest = f"the nearest is {_format_key(best)}"
    return f"No recommendation. No strategy has {wanted} on the tuning set; {nearest}"


def _format_outcome(row: Any, goal: float) -> str:
    """Say if a strategy reaches the required recall, fits its limit and makes requests invalid."""
    recall, over, invalid = row[HEADLINE_SCORE], row["overflow_rate"], row["newly_invalid_rate"]
    reaches = "reaches" if recall >= goal - _ROUNDING_TOLERANCE else "falls below"
    fits = f"exceeds its limit at {over:.2%} of requests" if over > 0 else "fits at every request"
    share = f"{invalid:.2%} of requests" if invalid > 0 else "no request"
    return (
        f"{reaches} this minimum ({format_apart(goal, recall)}), {fits} and makes {share} invalid"
    )


def _optimistic_sentence(tuned: Choice, board: pd.DataFrame, goal: float, min_recall: float) -> str:
    """Name the configuration that the held-out set would have chosen instead of the tuned one."""
    keeps = qualifying_rows(board, min_recall)
    if keeps.empty:
        return "No configuration of the frontier qualifies on the held-out set"
    row = keeps.iloc[0]
    if _key(row) == tuned.key:
        return ""
    return (
        "On the held-out set, the cheapest configuration of the frontier that qualifies is "
        f"{_format_key(row)}: {_format_figures(row, goal)}. These figures are optimistic, because the "
        "held-out set both chose and measured this configuration"
    )


def _required_recall(board: pd.DataFrame, min_recall: float) -> float:
    """Return the recall that a strategy needs: a share of the recall of full history, or of 1."""
    full = board[control_names(board) == "full"]
    return min_recall * (float(full[HEADLINE_SCORE].max()) if len(full) else 1.0)


def format_apart(value: float, other: float) -> str:
    """Format a share with two decimal places, or with more if ``other`` would look the same.

    Parameters
    ----------
    value : float
        Share to format.
    other : float
        Share that is printed beside it.

    Returns
    -------
    str
        Share with as many decimal places as are needed to tell it from ``other``, at most six.

    Examples
    --------
    >>> format_apart(0.947, 0.95), format_apart(0.95, 0.947), format_apart(0.95, 0.7)
    ('0.947', '0.950', '0.95')
    """
    return f"{value:.{_digits_apart(value, other)}f}"


def _digits_apart(value: float, other: float) -> int:
    if np.isnan(value) or np.isnan(other) or abs(value - other) <= _ROUNDING_TOLERANCE:
        return 2
    places = (n for n in range(2, _MAX_DIGITS) if f"{value:.{n}f}" != f"{other:.{n}f}")
    return next(places, _MAX_DIGITS)


def _format_goal(goal: float, min_recall: float, beside: float) -> str:
    required = format_apart(goal, beside)
    return f"a {HEADLINE_LABEL} of at least {required} ({min_recall:g} times that of full history)"


def _format_key(row: Any) -> str:
    return f"{row['strategy']} at {describe_limit(row['limit'])}"


def _format_figures(row: Any, goal: float) -> str:
    digits = _digits_apart(row[HEADLINE_SCORE], goal)
    recall = f"{HEADLINE_LABEL} {format_with_interval(row, HEADLINE_SCORE, digits)}"
    cost = format_dollars(row["cost_usd"]) if row["cost_usd"] > 0 else "at no known price"
    return f"{recall}, {cost}"


def format_with_interval(row: Any, score: str, digits: int = 2) -> str:
    """Format a share of a leaderboard row with its interval.

    Parameters
    ----------
    row : pandas.Series or mapping
        Row of a leaderboard.
    score : str
        Name of the score.
    digits : int, default 2
        Number of decimal places.

    Returns
    -------
    str
        Value with its interval in parentheses.

    Examples
    --------
    >>> format_with_interval({"recall": 0.8, "recall_low": 0.7, "recall_high": 0.85}, "recall")
    '0.80 (0.70–0.85)'
    """
    low, high = row[f"{score}_low"], row[f"{score}_high"]
    bounds = f"{low:.{digits}f}–{high:.{digits}f}"
    bounds = "too few clusters for an interval" if np.isnan(low) else bounds
    return f"{row[score]:.{digits}f} ({bounds})"


def _format_saving(row: Any, full: pd.DataFrame) -> str:
    """Format how much less or more a strategy costs than sending the full history."""
    if full.empty or not full["cost_usd"].max() > 0 or np.isnan(row["cost_usd"]):
        return ""
    share = 1 - row["cost_usd"] / full["cost_usd"].max()
    more = "less" if share >= 0 else "more"
    return f", {abs(share):.0%} {more} than the full history would cost if it fitted"


def _floor_sentence(
    best: Any, full: pd.DataFrame, headline_sums: HeadlineSums, min_recall: float
) -> str:
    """Say if the recordings do not settle on which side of the required recall the strategy is."""
    top, bottom = headline_sums([_key(best)])
    if len(full):
        other = full.iloc[int(full[HEADLINE_SCORE].to_numpy().argmax())]
        whole, per = headline_sums([_key(other)])
    else:
        whole, per = bottom, bottom
    found = ratio_difference(top[:, 0], bottom[:, 0], min_recall * whole[:, 0], per[:, 0])
    if np.isnan(found.low) or found.low >= 0 or found.high < 0:
        return ""
    return (
        "These recordings do not settle on which side of this minimum it would be on other recordings: "
        f"the difference is {_format_difference(found)}, and {_power_clause(found)}"
    )


def _chance_sentence(best: Any, board: pd.DataFrame, headline_sums: HeadlineSums) -> str:
    """Compare the strategy with the random control that sent equally many tokens."""
    random = board[control_names(board) == "random_drop"]
    apart = (random["tokens_mean"] / best["tokens_mean"] - 1).abs()
    equal = random[apart <= _EQUAL_TOKENS + _ROUNDING_TOLERANCE]
    if equal.empty:
        return (
            "It is not compared with chance, because no random_drop row sent equally many tokens "
            f"(±{_EQUAL_TOKENS:.0%})"
        )
    rival = equal.iloc[int(apart[equal.index].to_numpy().argmin())]
    mine, theirs = best[HEADLINE_SCORE], rival[HEADLINE_SCORE]
    its = f"that of random_drop at equal tokens ({format_apart(theirs, mine)}"
    top, bottom = headline_sums([_key(best), _key(rival)])
    found = ratio_difference(top[:, 0], bottom[:, 0], top[:, 1], bottom[:, 1])
    if np.isnan(found.low):
        verb = "above" if mine > theirs + _ROUNDING_TOLERANCE else "no better than"
        return f"Its {HEADLINE_LABEL} is {verb} {its}; no interval)"
    its = f"{its}; difference {_format_difference(found)})"
    if found.low > 0:
        return f"Its {HEADLINE_LABEL} is above {its}"
    if found.high < 0:
        return (
            f"Its {HEADLINE_LABEL} is below {its}, so choosing messages at random would keep more"
        )
    return (
        f"These recordings do not settle whether its {HEADLINE_LABEL} differs from {its}; "
        f"{_power_clause(found)}"
    )


def _key(row: Any) -> ConfigurationKey:
    return row["limit"], row["strategy"]


def _format_difference(found: RatioDifference) -> str:
    """Format a difference of shares with its interval."""
    value, low, high = (
        f"{'−' if part < 0 else '+'}{abs(part):.3f}"
        for part in (found.estimate, found.low, found.high)
    )
    return f"{value}, 95 % {low} to {high}"


def _power_clause(found: RatioDifference) -> str:
    return (
        f"the smallest difference that they could show is {found.detectable:.3f} "
        f"({POWER * 100:.0f} % power, {found.clusters} clusters)"
    )


def _fallback_sentence(row: Any) -> str:
    """Return a warning if too many summaries were made without the model; else an empty string."""
    share = row.get("fallback_rate", 0.0)
    if not share > _MAX_FALLBACK_RATE:
        return ""
    return f"{share:.0%} of its summaries are fallbacks, made without its model"
