"""Next-action agreement: how often a model makes the recorded call with a strategy's context.

At sampled requests a model continues the context of each strategy, and its tool calls are compared
with the recorded ones by name, by arguments and by both. This is off-policy, like the replay: the
earlier conversation is the recorded one. A different call is not an error: it may be as good, and a
model differs from the recorded one and from itself. A single figure therefore says little. The
difference to ``full`` on the same requests shows the effect of a strategy.
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

DEFAULT_NEXT_ACTION_STRATEGIES: tuple[str, ...] = (
    "full",
    "observation_mask(keep=10) | sliding_window() | panic()",
    "sliding_window()",
    "nothing",
)
"""Strategies compared by default: the ceiling, two methods, and the floor."""

_DEFAULT_MAX_TOKENS = 4096
"default maximum tokens of a reply: a call that writes a file is long"


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
    """Ask a model for the next action with each strategy's context; compare it with the recorded one.

    Requests are sampled from those at which the recorded agent called a tool, one from each stretch
    of the conversation, and are the same for every configuration. Equal requests are sent once.
    Requests that the provider would reject are not sent (``invalid_rate``). Calls are compared by
    ``ctxlab.evaluation.probing.call_matching``. ``agrees_self``, how often replicates agree,
    measures the noise.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length. Tool
        definitions that the recording does not contain are added to the request on top of the
        limit.
    model : str, optional
        Model whose tokenizer applies to the limits. None takes the model of each recording.
    answer_model : str
        Model that is asked.
    requests : int, default 20
        Requests sampled from each recording; 0 takes all.
    replicates : int, default 1
        How often each request is sent.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format. None takes the recorded ones, or derives them from the
        calls.
    include_text_only : bool, default False
        Sample from all requests. If the agent called no tool, making no call agrees
        (``agrees_text``).
    only_changed : bool, default False
        Sample only requests that some configuration would send differently from the recording.
    max_tokens : int, optional
        Maximum tokens of a reply, 4096 by default. None sets no limit.
    max_cost : float, optional
        Maximum cost in USD. None sets no limit.
    client : Client, optional
        Answers the requests. None calls the provider and caches replies in ``.ctxlab/calls``.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibration of token counts by model family.
    seed : int, default 0
        Seed of the sample.

    Returns
    -------
    NextActionResults
        One row per sampled request, and all answers.

    Raises
    ------
    SpecError
        If no recording has a tool call, or an argument is not valid.

    Examples
    --------
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
    """Create the plan of ``evaluate_next_action``.

    Parameters
    ----------
    strategies : Strategy, str, callable or iterable of them
        One or several strategies.
    limits : float, str or iterable of them
        One or several limits, in tokens or as fractions.
    model : str, optional
        Model whose tokenizer applies to the limits.
    answer_model : str
        Model that is asked.
    requests : int, default 20
        Requests sampled from each recording; 0 takes all.
    replicates : int, default 1
        How often each request is sent.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format.
    include_text_only : bool, default False
        Sample from all requests.
    only_changed : bool, default False
        Sample only requests that some configuration would change.
    max_tokens : int, optional
        Maximum tokens of a reply, 4096 by default. None sets no limit.
    reserve : int, default 0
        Tokens kept for the reply.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibration of token counts by model family.
    seed : int, default 0
        Seed of the sample.

    Returns
    -------
    NextActionPlan
        The plan.

    Raises
    ------
    SpecError
        If an argument is not valid.
    """
    for name, value, least in (("requests", requests, 0), ("replicates", replicates, 1)):
        if value < least:
            raise SpecError(f"{name} must be at least {least}, got {value}")
    if max_tokens is not None and max_tokens < 1:
        raise SpecError(f"max_tokens must be at least 1, got {max_tokens}")
    if not answer_model:
        raise SpecError("answer_model is empty; name the model that answers")
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
    """Estimate the cost of a plan without asking anything; cached replies are free.

    Model calls of strategies are not included. Contexts that are not cached yet are approximated by
    those that the strategies build without their model.

    Parameters
    ----------
    plan : NextActionPlan
        The plan.
    recordings : iterable of Recording
        The recordings.
    client : Client
        Client of the run; its cache is read.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.

    Returns
    -------
    RequestEstimate
        Number and cost of the requests.
    """
    nobody, seen, total = cache_only_client(client), set[str](), RequestEstimate()
    for recording in track(recordings, "recordings examined", None, progress):
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
    """Run a plan, one recording at a time.

    Parameters
    ----------
    plan : NextActionPlan
        What to ask.
    recordings : iterable of Recording
        The recordings.
    client : Client
        Answers the requests.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    total : int, optional
        Expected number of replies, for the progress bar.

    Returns
    -------
    NextActionResults
        One row per sampled request, and all answers.

    Raises
    ------
    SpecError
        If there is no request to ask.
    """
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
    del manifest["spec"]["metrics"]  # a spec repeated as an evaluation uses its default metrics
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
    """Ask recording after recording; yield once for each reply and store the results."""
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
    """Return the recording's manifest entry with the number of sampled requests and tools."""
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
    """Return the answers with strategy and limit instead of the configuration's index."""
    frame = pd.DataFrame(answers)
    labels = [plan.grid.configurations[number] for number in frame.pop("configuration")]
    frame.insert(2, "strategy", [strategy for strategy, _ in labels])
    frame.insert(3, "limit", [float(limit) for _, limit in labels])
    return frame


def _no_requests_reason(plan: NextActionPlan, table: ResultsBuilder) -> str:
    """Return why there is no request to ask."""
    if not table.recordings:
        return "nothing to ask: there are no recordings"
    if unsound := sum(recording["unsound"] for recording in table.recordings):
        return f"nothing to ask: the provider would reject all {unsound:,} recorded requests"
    if plan.only_changed:
        return "no strategy changes any request; set a smaller limit to see a difference"
    return "no recording contains a tool call, so there is no action to compare with"
