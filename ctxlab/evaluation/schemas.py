"""Columns of the tables that ctxlab returns and stores: type, unit and meaning of each.

``docs/tables.md`` is generated from this module, and tests compare it with real tables. The types are
those of pandas. ``text`` is ``str`` or ``object``, depending on the version of pandas. Whole numbers
in a column with missing values are ``Int64``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ctxlab.evaluation import describe
from ctxlab.evaluation.describe import Schema
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.products import COLUMNS as PRODUCT_COLUMNS
from ctxlab.evaluation.products import WITH_INTERVALS


class TableSchema(NamedTuple):
    """Columns of a table."""

    name: str
    "how the table is called in Python"
    rows: str
    "what a row is, and in which file the table is stored, if it is"
    columns: Schema
    "type, unit and meaning of each column, by name"


_ID: Schema = {
    "recording": ("category", "", "name of the recording"),
    "cluster": ("category", "", "recordings that depend on each other have the same cluster"),
    "strategy": ("category", "", "strategy, as text"),
    "limit": ("float64", "tokens", "limit as it was given; a share of the recording if at most 1"),
    "budget": ("int64", "tokens", "limit of this recording"),
}
_CONFIGURATION: Schema = {
    "strategy": ("text", "", "strategy, as text"),
    "limit": ("float64", "tokens", "limit as it was given; a share of the recording if at most 1"),
}
_COMPACTION: Schema = {
    "request": ("int64", "request", "number of the request"),
    "position": ("int64", "message", "position of the message that answers the request"),
    "tokens_before": ("int64", "tokens", "size of this request without the compaction"),
    "tokens_after": ("int64", "tokens", "size of the request"),
    "freed": ("int64", "tokens", "`tokens_before - tokens_after`"),
    "freed_share": ("float64", "share", "`freed` as a share of `tokens_before`"),
    "rewritten_share": ("float64", "share", "message tokens after the unchanged prefix"),
    "kind": ("category", "", "what replaced the messages, such as `summary` or `drop`"),
    "requests_until_next": ("Int64", "requests", "until the next compaction; missing for the last"),
    "requests_until_limit": ("Int64", "requests", "until a request is as large as `tokens_before`"),
    "read_again": ("int64", "calls", "recorded calls that soon fetch again what was removed"),
}


def metric_columns() -> Schema:
    """Return the columns that the metrics measure for each request.

    Returns
    -------
    dict of str to tuple of (str, str, str)
        Type, unit and meaning by name.
    """
    return {
        each.name: ("int64" if each.integer else "float64", each.unit, each.meaning)
        for metric in METRICS.values()
        for each in metric.columns
    }


def score_columns() -> Schema:
    """Return the columns of scores: those of ``Results.runs`` and of the leaderboard.

    Returns
    -------
    dict of str to tuple of (str, str, str)
        Type, unit and meaning by name.
    """
    measured = metric_columns()
    return {
        score.name: (_score_type(score, measured), score.unit, score.meaning)
        for metric in METRICS.values()
        for score in metric.scores
    }


def _score_type(score: Score, measured: Schema) -> str:
    if score.how == "ratio":
        return "float64"
    return measured[score.column][0]


def _with_intervals(columns: Schema, names: Iterable[str]) -> Schema:
    """Add the bounds of the 95 % intervals of some columns, after each."""
    found: Schema = {}
    wanted = set(names)
    for name, column in columns.items():
        found[name] = column
        if name in wanted:
            for end, side in (("low", "lower"), ("high", "upper")):
                meaning = f"{side} bound of the 95 % interval of `{name}`"
                found[f"{name}_{end}"] = ("float64", column[1], meaning)
    return found


def list_tables() -> list[TableSchema]:
    """Return the schemas of all tables.

    Returns
    -------
    list of TableSchema
        Tables in the order of the page.

    Examples
    --------
    >>> tables = {table.name: table.columns for table in list_tables()}
    >>> tables["Results.requests"]["tokens"]
    ('int64', 'tokens', 'tokens of the request, including its tool definitions')
    """
    measured, scores = metric_columns(), score_columns()
    request: Schema = {"request": ("int64", "request", "number of the request, from 0")}
    requests: Schema = {"requests": ("int64", "requests", "number of requests")}
    with_interval = [s.name for m in METRICS.values() for s in m.scores if s.interval]
    sums: Schema = {n: (kind, unit, f"sum: {what}") for n, (kind, unit, what) in measured.items()}
    return [
        TableSchema(
            "Results.requests",
            "one row per request, strategy and limit; stored as `requests.parquet`. The columns after "
            "`request` depend on the metrics",
            {**_ID, **request, **measured},
        ),
        TableSchema(
            "Results.runs",
            "one row per recording, strategy and limit; stored as `runs.parquet`. It has the sums over "
            "the requests, and the scores",
            {**_ID, **requests, **sums, **scores},
        ),
        TableSchema(
            "Results.compactions",
            "one row per request that changes what was sent before; stored as `compactions.parquet`",
            {**_ID, **_COMPACTION},
        ),
        TableSchema(
            "Results.leaderboard()",
            "one row per strategy and limit. With random strategies, `SCORE_sd` is the standard "
            "deviation of a score with an interval over their seeds",
            {**_CONFIGURATION, **requests, **_with_intervals(scores, with_interval)},
        ),
        TableSchema(
            "Replay.requests",
            "one row per request",
            {"position": ("int64", "message", "position of the answer"), **measured},
        ),
        TableSchema("Replay.needs", "one row per need", _NEEDS),
        TableSchema("Replay.probes", "one row per probe", _PROBES),
        TableSchema("Replay.compactions", "one row per compaction", _COMPACTION),
        TableSchema("SentRequest.table", "one row per message of the request", _SENT),
        TableSchema("SentRequest.diff()", "one row per message that differs", _DIFFERENCES),
        TableSchema("Comparison.table", "one row per pair of strategies and score", _COMPARISON),
        TableSchema(
            "TuningResults.trials",
            "one row per configuration of the search; stored as `trials.parquet`. The scores are those "
            "of the objective and of the verdict",
            {**_CONFIGURATION, **scores, **_TRIALS},
        ),
        TableSchema(
            "TuningResults.frontier",
            "one row per configuration of the frontier; stored as `frontier.parquet`. The columns are "
            "those of the usual objective",
            _frontier_columns(scores),
        ),
        TableSchema("TuningResults.optimism", "one row per score that was optimised", _OPTIMISM),
        TableSchema(
            "SurvivalResults.frame",
            "one row per canary, strategy, limit, round and distance",
            {
                **{name: _ID[name] for name in ("recording", "cluster", "strategy", "limit")},
                **_SURVIVAL,
            },
        ),
        TableSchema(
            "SurvivalResults.breakdown()",
            "one row per limit, strategy and value of the dimension, whose column has its name",
            {**_CONFIGURATION, **_with_intervals(_BREAKDOWN, [*_BREAKDOWN][2:])},
        ),
        TableSchema(
            "QAResults.answers",
            "one row per question, strategy, limit and replicate; stored as `answers.parquet`. Judge "
            "*n* adds `judged_n` (1, 0, or nan if there is no verdict) and the columns of its reply",
            {**_TEXT_ID, **_QA_ANSWERS},
        ),
        TableSchema(
            "QAResults.requests",
            "one row per question, strategy and limit; stored as `requests.parquet`. Most columns are "
            "sums over the replicates. Judge *n* adds `passed_n` and `verdicts_n`",
            {**_ID, **request, **_QA_REQUESTS},
        ),
        TableSchema(
            "NextActionResults.answers",
            "one row per sampled request, strategy, limit and replicate; stored as `answers.parquet`",
            {**_TEXT_ID, **_ACTION_ANSWERS},
        ),
        TableSchema(
            "NextActionResults.requests",
            "one row per sampled request, strategy and limit; stored as `requests.parquet`. Most "
            "columns are sums over the replicates",
            {**_ID, **request, **_ACTION_REQUESTS},
        ),
        TableSchema(
            "ProductTable.frame",
            "one row per strategy and limit; stored as `products.parquet` and `products.csv`",
            _with_intervals(
                {
                    n: (_PRODUCT_TYPES.get(n, "float64"), *what)
                    for n, what in PRODUCT_COLUMNS.items()
                },
                WITH_INTERVALS,
            ),
        ),
        TableSchema("Descriptions.recordings", "one row per recording", describe.RECORDING_COLUMNS),
        TableSchema(
            "Descriptions.compactions",
            "one row per recorded compaction",
            describe.COMPACTION_COLUMNS,
        ),
        TableSchema(
            "Descriptions.largest_results",
            "at most three rows per recording: its largest tool results",
            describe.RESULT_COLUMNS,
        ),
        TableSchema(
            "Descriptions.violations", "one row per recording and rule", describe.VIOLATION_COLUMNS
        ),
        TableSchema(
            "Descriptions.skipped", "one row per recording and reason", describe.SKIPPED_COLUMNS
        ),
        TableSchema(
            "Descriptions.bill_changes",
            "one row per change of the context that only the bill shows",
            describe.BILL_CHANGE_COLUMNS,
        ),
        TableSchema("find_refetches()", "one row per examined request and target", _REFETCHES),
    ]


_NEEDS: Schema = {
    "request": ("int64", "request", "number of the request whose answer uses the need"),
    "position": ("int64", "message", "position of the answer"),
    "tool": ("text", "", "tool that the answer calls"),
    "argument": ("text", "", "argument that contains the need"),
    "kind": ("text", "", "kind of the need, such as `path`"),
    "entity": ("text", "", "the path, id, name, number or date"),
    "origin": ("text", "", "role of the message that mentioned it first"),
    "last": ("int64", "message", "position of the message that mentioned it last"),
    "gap": ("int64", "tokens", "tokens since the last mention"),
    "far": ("bool", "", "True if `gap` exceeds 4,000"),
    "tier": ("text", "", "`held`, `named`, `pointer` or `lost`"),
    "similar": ("bool", "", "True if only the folder and the name of a path are in view"),
}
_PROBES: Schema = {
    "id": ("text", "", "id of the probe"),
    "category": ("text", "", "category in its data set; None if there is none"),
    "question": ("text", "", "text of the question"),
    "request": ("int64", "request", "request that follows the probe, or the last one"),
    "position": ("int64", "message", "position at which it is asked"),
    "evidence": ("float64", "share", "evidence messages in view; nan if none are named"),
    "pointer": ("float64", "share", "evidence messages that can be fetched again"),
    "answer": ("boolean", "", "True if the request contains an answer; missing without answers"),
    "tokens": ("int64", "tokens", "size of the request with the question"),
}
_SENT: Schema = {
    "role": ("text", "", "role of the message"),
    "form": ("text", "", "form of the message, such as `verbatim` or `summary`"),
    "first": ("Int64", "message", "first recorded message that it stands for; missing if added"),
    "last": ("Int64", "message", "last recorded message that it stands for"),
    "tokens": ("int64", "tokens", "tokens of the message"),
    "tool": ("text", "", "tool whose result it is, or tools that it calls"),
    "text": ("text", "", "content, names of tools and values of arguments"),
}
_DIFFERENCES: Schema = {
    "first": ("Int64", "message", "first recorded message; missing if added"),
    "last": ("Int64", "message", "last recorded message"),
    "role": ("text", "", "role of the message"),
    "form": ("text", "", "form in this request, or `covered`, `dropped` or `absent`"),
    "other_form": ("text", "", "form in the other request"),
    "tokens": ("int64", "tokens", "tokens in this request"),
    "other_tokens": ("int64", "tokens", "tokens in the other request"),
    "text": ("text", "", "text in this request"),
    "other_text": ("text", "", "text in the other request"),
}
_COMPARISON: Schema = {
    "a": ("text", "", "first strategy"),
    "b": ("text", "", "second strategy"),
    "limit_a": ("float64", "tokens", "limit of the first strategy"),
    "limit_b": ("float64", "tokens", "limit of the second strategy"),
    "score": ("text", "", "name of the score"),
    "meaning": ("text", "", "meaning of the score"),
    "unit": ("text", "", "unit of the score"),
    "better": ("text", "", "direction in which the score improves; empty if neither does"),
    "relative": ("bool", "", "True if differences are divided by the value of b"),
    "value_a": ("float64", "unit", "score of a"),
    "value_b": ("float64", "unit", "score of b"),
    "difference": ("float64", "unit or share", "a − b, divided by b if `relative`"),
    "low": ("float64", "unit or share", "lower bound of the interval of the difference"),
    "high": ("float64", "unit or share", "upper bound of the interval of the difference"),
    "p": ("float64", "probability", "p-value before Holm's correction"),
    "p_holm": ("float64", "probability", "p-value after Holm's correction"),
    "effect": (
        "float64",
        "standard deviations",
        "difference divided by its deviation over clusters",
    ),
    "wins": ("int64", "recordings", "recordings in which a is better"),
    "ties": ("int64", "recordings", "recordings in which both are equal"),
    "losses": ("int64", "recordings", "recordings in which a is worse"),
    "recordings": ("int64", "recordings", "recordings that were compared"),
    "clusters": ("int64", "clusters", "clusters that were compared"),
    "detectable": ("float64", "unit or share", "smallest difference that is shown with 80 % power"),
    "left_out": ("int64", "requests", "requests with a value for only one of the strategies"),
    "margin": ("float64", "unit or share", "largest difference that counts as equal; nan if none"),
    "finding": ("text", "", "result for a, such as `better` or `unclear`"),
}
_TRIALS: Schema = {
    "rounds": ("int64", "rounds", "rounds in which the configuration was replayed"),
    "clusters": ("int64", "clusters", "clusters over which it was replayed"),
    "left": ("text", "", "why the search removed it; empty for the frontier"),
}
_OPTIMISM: Schema = {
    "tuned": ("float64", "", "score of the frontier on the tuning set"),
    "held_out": ("float64", "", "score of the frontier on the held-out set"),
    "optimism": ("float64", "", "`tuned - held_out`"),
    "low": ("float64", "", "lower bound of its 95 % interval"),
    "high": ("float64", "", "upper bound of its 95 % interval"),
}
_SURVIVAL: Schema = {
    "canary": ("category", "", "id of the canary"),
    "kind": ("category", "", "kind of the canary"),
    "role": ("category", "", "role of the message that contains it"),
    "depth": ("float64", "share", "depth at which it was to be planted"),
    "at": ("float64", "share", "depth at which it was planted"),
    "round": ("category", "", "compactions since the canary, in groups"),
    "distance": ("category", "", "tokens between the canary and the end of the request, in groups"),
    "requests": ("int64", "requests", "requests after the canary"),
    "kept": ("int64", "requests", "requests with the canary in view"),
    "superseded": (
        "int64",
        "requests",
        "`requests` if the canary supersedes an older value, else 0",
    ),
    "stale": ("int64", "requests", "requests with only the older value in view"),
    "both": ("int64", "requests", "requests with both values in view"),
    "end": ("int64", "requests", "1 if the last request is counted in the row"),
    "end_kept": ("int64", "requests", "`kept` at the last request"),
    "end_superseded": ("int64", "requests", "`superseded` at the last request"),
    "end_stale": ("int64", "requests", "`stale` at the last request"),
    "end_both": ("int64", "requests", "`both` at the last request"),
}
_BREAKDOWN: Schema = {
    "canaries": ("int64", "canaries", "canaries of the row"),
    "clusters": ("int64", "clusters", "clusters of the row"),
    "survival": ("float64", "share", "requests after a canary that contain its value"),
    "survival_end": ("float64", "share", "canaries in view at the last request"),
    "stale": ("float64", "share", "requests with only the older value in view"),
    "stale_end": (
        "float64",
        "share",
        "canaries with only the older value in view at the last request",
    ),
    "both": ("float64", "share", "requests with both values in view"),
}
_TEXT_ID: Schema = {
    name: ("text" if kind == "category" else kind, unit, meaning)
    for name, (kind, unit, meaning) in _ID.items()
    if name != "budget"
}
_QA_ANSWERS: Schema = {
    "probe": ("text", "", "id of the probe"),
    "category": ("text", "", "category of the question; None if there is none"),
    "replicate": ("int64", "", "number of the repetition, from 0"),
    "outcome": ("text", "", "`answered`, `empty`, `unanswered` or `invalid`"),
    "why": ("text", "", "reason of the outcome, such as `stop` or `length`"),
    "reply": ("text", "", "reply of the model"),
    "exact": ("float64", "0 or 1", "1 if the reply equals an answer; nan if it cannot be scored"),
    "f1": ("float64", "share", "overlap of the words of reply and answer"),
    "contains": ("float64", "0 or 1", "1 if the reply contains an answer"),
    "abstained": ("float64", "0 or 1", "1 if the reply states that no answer exists"),
    "prompt": ("float64", "tokens", "billed input tokens; nan without a reply"),
    "completion": ("float64", "tokens", "billed output tokens; nan without a reply"),
    "usd": ("float64", "USD", "price of the reply"),
}
_COUNTED_ANSWERS: Schema = {
    "asked": ("float64", "questions", "questions that were sent"),
    "answered": ("float64", "questions", "questions with a reply"),
    "unanswered": ("float64", "questions", "questions without a reply"),
}
_QA_REQUESTS: Schema = {
    "questions": ("float64", "questions", "1"),
    **_COUNTED_ANSWERS,
    "empty": ("float64", "replies", "empty replies"),
    "graded": ("float64", "replies", "replies to questions with an answer"),
    "word_for_word": ("float64", "replies", "replies that equal an answer"),
    "f1_points": ("float64", "share", "overlap of words, summed over the replies"),
    "holding": ("float64", "replies", "replies that contain an answer"),
    "gave_up": ("float64", "replies", "replies that wrongly state that no answer exists"),
    "unanswerable": ("float64", "replies", "replies to questions without an answer"),
    "declined": ("float64", "replies", "replies that rightly state that no answer exists"),
    "prompt_tokens": ("float64", "tokens", "billed input tokens"),
    "completion_tokens": ("float64", "tokens", "billed output tokens"),
    "usd": ("float64", "USD", "price of the replies"),
    "over": ("float64", "0 or 1", "1 if the request exceeds the budget"),
    "evidenced": ("float64", "0 or 1", "1 if the question has evidence messages"),
    "evidence_seen": ("float64", "share", "evidence messages in view"),
    "answerable": ("float64", "0 or 1", "1 if the question has an accepted answer"),
    "answer_seen": ("float64", "0 or 1", "1 if the request contains an accepted answer"),
}
_ACTION_SCORES: Schema = {
    **_COUNTED_ANSWERS,
    "calls": ("float64", "answers", "answers to requests with a recorded call"),
    "name": ("float64", "share", "recorded tools that are called"),
    "arguments": ("float64", "share", "recorded arguments that are equal"),
    "both": ("float64", "share", "recorded tools that are called with the recorded arguments"),
    "leaves": ("float64", "share", "recorded argument values that are equal"),
    "naming": ("float64", "answers", "answers to requests whose recorded call has entities"),
    "entities": ("float64", "share", "recorded paths, ids and numbers that the calls contain"),
    "text_only": ("float64", "answers", "answers without a call to requests with one"),
    "text_turns": ("float64", "answers", "answers to requests without a recorded call"),
    "text_kept": ("float64", "answers", "those of them without a call"),
    "cut": ("float64", "answers", "answers that were cut off at the maximum length"),
    "prompt": ("float64", "tokens", "billed input tokens"),
    "usd": ("float64", "USD", "price of the answers"),
}
_ACTION_ANSWERS: Schema = {
    "position": ("int64", "message", "position of the recorded answer"),
    "differs": ("bool", "", "True if the strategy changes the request"),
    "tokens": ("float64", "tokens", "counted tokens of the request"),
    "overflow": ("bool", "", "True if the request exceeds the budget"),
    "recorded": ("text", "", "recorded calls"),
    "replicate": ("int64", "", "number of the repetition, from 0"),
    **_ACTION_SCORES,
    "said": ("text", "", "calls or text of the model"),
    "finish": ("text", "", "why the model stopped"),
    "outcome": ("text", "", "`answered`, `unanswered` or `invalid`"),
    "why": ("text", "", "reason of the outcome"),
}
_ACTION_REQUESTS: Schema = {
    "position": ("float64", "message", "position of the recorded answer"),
    "invalid": ("float64", "0 or 1", "1 if the provider would reject the request"),
    "differs": ("float64", "0 or 1", "1 if the strategy changes the request"),
    "tokens": ("float64", "tokens", "counted tokens of the request"),
    "overflow": ("float64", "0 or 1", "1 if the request exceeds the budget"),
    **_ACTION_SCORES,
    "pairs": ("float64", "pairs", "pairs of replicates"),
    "alike": ("float64", "pairs", "pairs of replicates with the same calls"),
}
_PRODUCT_TYPES = {
    **dict.fromkeys(("strategy", "version", "kind"), "text"),
    **dict.fromkeys(("limit", "recordings", "clusters", "requests"), "int64"),
}
_REFETCHES: Schema = {
    "recording": ("text", "", "name of the recording"),
    "cluster": ("text", "", "cluster of the recording"),
    "point": ("int64", "", "number of the examined request among those of its recording"),
    "how": ("text", "", "kind of the compaction before it: `summary`, `clear` or `none`"),
    "kind": ("text", "", "kind of the target, such as `file`"),
    "key": ("text", "", "name of the target"),
    "times": ("int64", "calls", "earlier fetches of the target"),
    "gap": ("int64", "tokens", "tokens since the last fetch"),
    "seen": ("boolean", "", "True if the request contains the whole name; missing if it has none"),
    "named": ("boolean", "", "True if it contains the name of the file; missing for other targets"),
    "content": ("boolean", "", "True if the result of an earlier fetch is in it"),
    "span": ("int64", "requests", "until the next compaction or the end"),
    "again": ("float64", "requests", "until the target is fetched again; nan if it never is"),
    "used": ("float64", "requests", "until a call uses the file; nan if none does"),
    "first": ("text", "", "what this call does: `fetches`, `edits` or `looks`"),
}


def _frontier_columns(scores: Schema) -> Schema:
    cost, kept = "cost_usd", "recall_far_held"
    found: Schema = {**_CONFIGURATION, cost: scores[cost]}
    for name, what in (("cost_share", "cost, as a share of that of full history"), (kept, kept)):
        found[name] = ("float64", "share", f"{what}, on the held-out set")
        found[f"{name}_low"] = ("float64", "share", f"lower bound of the 95 % interval of `{name}`")
        found[f"{name}_high"] = (
            "float64",
            "share",
            f"upper bound of the 95 % interval of `{name}`",
        )
        found[f"tuned_{name}"] = ("float64", "share", f"`{name}` on the tuning set")
        found[f"{name}_optimism"] = ("float64", "share", f"`tuned_{name} - {name}`")
        for end, side in (("low", "lower"), ("high", "upper")):
            meaning = f"{side} bound of the 95 % interval of the optimism"
            found[f"{name}_optimism_{end}"] = ("float64", "share", meaning)
    found["fits"] = ("bool", "", "True if the configuration is usable on the held-out set")
    found["dominated"] = (
        "bool",
        "",
        "True if another one is better, or if it does not fit",
    )
    return found
