"""Next-action agreement: given what a strategy would send, does a model make the call that was recorded?

At requests drawn from recordings a model continues what each strategy would send, and the tool calls
that it makes are compared with the recorded ones: by name, by arguments, by both. It is as off-policy as
the replay: the conversation before is what the recorded agent made of it. A call that differs is no
error: another may be as good, and a model differs from the recorded one, and from itself. So a figure by
itself says little; its difference to ``full`` on the same requests says what a strategy took away.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.experiment import DEFAULT_LIMITS, ExperimentGrid, StrategyLike
from ctxlab.evaluation.metrics.strategy_calls import (
    StrategyCalls,
    StrategyCallTotals,
    collect_strategy_calls,
)
from ctxlab.evaluation.probing.next_action_plan import NextActionPlan, NextActionRequests
from ctxlab.evaluation.probing.next_action_scores import (
    NEXT_ACTION_COLUMNS,
    NEXT_ACTION_SCORES,
    compare_answers,
    compute_next_action_columns,
)
from ctxlab.evaluation.probing.results import NextActionResults
from ctxlab.evaluation.results import Results, ResultsBuilder
from ctxlab.llm.base import Client, ModelCall, Reply
from ctxlab.llm.batch import (
    RequestEstimate,
    add_cache_hint,
    build_cost_limited_client,
    cache_only_client,
    estimate_requests,
    iter_replies,
)
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.tokens.profiles import TokenProfile

__all__ = [
    "DEFAULT_NEXT_ACTION_STRATEGIES",
    "estimate_cost",
    "evaluate_next_action",
    "plan_next_action",
    "run",
]

DEFAULT_NEXT_ACTION_STRATEGIES: tuple[str, ...] = (
    "full",
    "observation_mask(keep=10) | sliding_window() | panic()",
    "sliding_window()",
    "nothing",
)
"""What is compared where nothing is said: the ceiling, two ideas, and the floor."""

_DEFAULT_MAX_TOKENS = 4096
"tokens that a reply may take where nothing is said: a call that writes a file is long"


def evaluate_next_action(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_NEXT_ACTION_STRATEGIES,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    answer_model: str,
    requests: int = 20,
    replicates: int = 1,
    tools: Sequence[Mapping[str, Any]] | None = None,
    include_text_only: bool = False,
    only_changed: bool = False,
    max_tokens: int | None = _DEFAULT_MAX_TOKENS,
    max_cost: float | None = None,
    client: Client | None = None,
    reserve: int = 0,
    data: Sequence[str] = (),
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    seed: int = 0,
) -> NextActionResults:
    """Asks a model for the next action under every strategy, and compares it with the recorded one.

    Of each recording ``requests`` are drawn (0: all) among those at which the recorded agent called a
    tool, one of each stretch of the conversation, the same for every configuration.
    ``include_text_only`` draws among all requests: where the agent called nothing, calling nothing
    agrees (``agrees_text``). ``only_changed`` draws among those only that some configuration would not
    send as they were recorded. Equal requests are asked once. ``replicates`` asks each so often;
    how often ``full`` agrees with itself (``agrees_self``) is the noise.

    ``tools``: definitions in OpenAI's shape; None takes the recorded ones and, where a log holds none,
    derives them from its calls. Strategies, limits, ``model`` (whose tokens count) and ``reserve`` are
    those of ``evaluate``, and so are the contexts: definitions that the recording does not hold come on
    top of the limit. ``tokens`` is what is sent, with them.

    The answer is a ``Results`` with a row a request that was drawn, and ``answers`` beside it.

    ``client``: who is asked; None asks the provider and keeps the answers in ``.ctxlab/calls``, so that
    the same run once more asks nothing. ``max_cost``: dollars that are not passed. Requests that a
    provider would refuse are not asked (``invalid_rate``). How calls are compared:
    ``ctxlab.evaluation.probing.call_matching``. Raises ``SpecError`` where no recording holds a
    call, and what ``evaluate`` raises.

    >>> from ctxlab import Message, ToolCall
    >>> from ctxlab.llm import ScriptedClient
    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> talk = (Message("user", "look into a.py"), Message("assistant", tool_calls=(call,)))
    >>> script = ScriptedClient(Message("assistant", tool_calls=(call,)))
    >>> found = evaluate_next_action(
    ...     [Recording("r", talk)], "full", 1000, answer_model="gpt-5-mini", client=script
    ... )
    >>> found.leaderboard()["agrees_both"].tolist(), found.answers["said"].tolist()
    ([1.0], ['read({"path": "a.py"})'])
    """
    check_recordings(recordings)
    wanted = plan_next_action(
        strategies, limits, model, answer_model=answer_model, requests=requests,
        replicates=replicates, tools=tools, include_text_only=include_text_only,
        only_changed=only_changed, max_tokens=max_tokens, reserve=reserve, profile=profile, seed=seed,
    )  # fmt: skip
    if client is None or max_cost is not None:
        client = build_cost_limited_client(max_cost, client=client)
    return run(wanted, recordings, client, data, progress)


def plan_next_action(
    strategies: StrategyLike | Iterable[StrategyLike],
    limits: float | str | Iterable[float | str],
    model: str | None = None,
    *,
    answer_model: str,
    requests: int = 20,
    replicates: int = 1,
    tools: Sequence[Mapping[str, Any]] | None = None,
    include_text_only: bool = False,
    only_changed: bool = False,
    max_tokens: int | None = _DEFAULT_MAX_TOKENS,
    reserve: int = 0,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    seed: int = 0,
) -> NextActionPlan:
    """What ``evaluate_next_action`` would ask; raises ``SpecError`` for what makes no sense."""
    for name, value, least in (("requests", requests, 0), ("replicates", replicates, 1)):
        if value < least:
            raise SpecError(f"{name}: {least} or more, not {value}")
    if max_tokens is not None and max_tokens < 1:
        raise SpecError(f"max_tokens: a reply takes 1 or more, not {max_tokens}")
    if not answer_model:
        raise SpecError("name the model that is to answer")
    tool_definitions = None if tools is None else tuple(dict(tool) for tool in tools)
    grid = ExperimentGrid.from_arguments(strategies, limits, model, reserve, (), profile)
    return NextActionPlan(
        grid,
        answer_model,
        requests,
        replicates,
        tool_definitions,
        include_text_only,
        only_changed,
        max_tokens,
        seed,
    )


def estimate_cost(
    plan: NextActionPlan,
    recordings: Iterable[Recording],
    client: Client,
    progress: bool | None = None,
) -> RequestEstimate:
    """What it would take to carry out a plan: nothing is asked, and what is on disk is known.

    What strategies ask for themselves is not in it; contexts that they have not made yet are estimated
    by those that they make without their model.
    """
    nobody, seen, total = cache_only_client(client), set[str](), RequestEstimate()
    for recording in track(recordings, "recordings looked at", None, progress):
        total = total.plus(
            estimate_requests(plan.make_requests(recording, nobody).requests, client, seen)
        )
    return total


def run(
    plan: NextActionPlan,
    recordings: Iterable[Recording],
    client: Client,
    data: Sequence[str] = (),
    progress: bool | None = None,
    total: int | None = None,
) -> NextActionResults:
    """Asks what was planned, a recording at a time; ``total``: how many, where that is known."""
    table, call_totals = (
        ResultsBuilder(NEXT_ACTION_COLUMNS, plan.grid.configurations),
        StrategyCallTotals(),
    )
    answers: list[dict[str, Any]] = []
    work = _answer_recordings(plan, recordings, client, table, call_totals, answers)
    with add_cache_hint(client), closing(work):
        for _ in track(work, "questions answered", total, progress):
            pass
    if not answers:
        raise SpecError(_no_requests_reason(plan, table))
    manifest = {
        **plan.grid.manifest(data, table.recordings),
        **call_totals.manifest(),
        "agreement": _manifest_settings(plan),
    }
    del manifest["spec"]["metrics"]  # repeated as an evaluation, it measures what those measure
    found = Results.from_builder(table, NEXT_ACTION_SCORES, manifest)
    return NextActionResults(
        found.requests, found.scores, found.manifest, _answers_frame(answers, plan)
    )


def _answer_recordings(
    plan: NextActionPlan,
    recordings: Iterable[Recording],
    client: Client,
    table: ResultsBuilder,
    call_totals: StrategyCallTotals,
    answers: list[dict[str, Any]],
) -> Generator[int, None, None]:
    """Recording by recording, with a step for each question; what came of them is put away."""
    for recording in recordings:
        batch = plan.make_requests(recording, client)
        table.add_recording(_describe_recording(plan, batch))
        if not batch.positions:
            continue
        replies: dict[int, Reply | ModelUnavailable] = {}
        with closing(iter_replies(batch.requests, client)) as each:
            for place, reply in each:
                replies[place] = reply
                yield place
        said = [replies[place] for place in range(len(batch.requests))]
        rows = list(compare_answers(batch, said, plan.replicates))
        limits = [trace.budget.limit for trace in batch.traces]
        table.add_columns(limits, compute_next_action_columns(batch, rows, said, plan.replicates))
        call_totals.add(collect_strategy_calls(batch.traces))
        call_totals.add(
            StrategyCalls([ModelCall.from_reply(0, plan.answer_model, reply) for reply in said], {})
        )
        names = {key: table.recordings[-1][key] for key in ("recording", "cluster")}
        answers += [{**names, **row} for row in rows]


def _describe_recording(plan: NextActionPlan, batch: NextActionRequests) -> dict[str, Any]:
    """The recording as an evaluation has it, and what of it is asked."""
    return {
        **batch.prepared.manifest_entry,
        "drawn": len(batch.positions),
        "eligible": batch.eligible_count,
        "unsound": batch.invalid_count,
        "system": any(
            message.role == "system" for message in batch.prepared.recording.messages[:1]
        ),
        "tools": batch.tool_origin,
        "tool_names": len(batch.tools),
        "tool_tokens": batch.tool_tokens,
    }


def _manifest_settings(plan: NextActionPlan) -> dict[str, Any]:
    return {
        "answer_model": plan.answer_model,
        "requests": plan.requests,
        "replicates": plan.replicates,
        "texts": plan.include_text_only,
        "differing": plan.only_changed,
        "max_tokens": plan.max_tokens,
        "seed": plan.seed,
        "tools": None if plan.tools is None else list(plan.tools),
    }


def _answers_frame(answers: list[dict[str, Any]], plan: NextActionPlan) -> pd.DataFrame:
    """The answers with strategy and limit in place of the configuration's number."""
    frame = pd.DataFrame(answers)
    labels = [plan.grid.configurations[number] for number in frame.pop("configuration")]
    frame.insert(2, "strategy", [strategy for strategy, _ in labels])
    frame.insert(3, "limit", [float(limit) for _, limit in labels])
    return frame


def _no_requests_reason(plan: NextActionPlan, table: ResultsBuilder) -> str:
    """Why there was nothing to ask."""
    if not table.recordings:
        return "there is nothing to ask: there are no recordings"
    if unsound := sum(recording["unsound"] for recording in table.recordings):
        return f"no recorded request can be asked: a provider would refuse all {unsound:,} of them"
    if plan.only_changed:
        return (
            "every strategy sends everything as it was said: a smaller limit would tell them apart"
        )
    return "no recording holds a tool call, so there is no action to agree with"
