"""Next-action agreement: how often a model with a strategy's context makes the recorded tool call.

At sampled requests, a model receives the context that each strategy builds and continues it. Its
tool calls are compared with the recorded ones by name, by arguments and by both. Like any replay
this is off-policy: the earlier conversation is always the recorded one. A different call is not
necessarily an error, because it may be as good as the recorded one. In addition, the model may
differ from the recorded agent's model, and its answers vary between repetitions. A single score
therefore says little. The difference from the control ``full`` on the same requests shows the effect
of a strategy.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from typing_extensions import override

from ctxlab.context.context import Context
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.grid import DEFAULT_LIMITS, ExperimentGrid, StrategyLike
from ctxlab.evaluation.metrics.base import Figures, Score
from ctxlab.evaluation.probing.call_matching import match_calls
from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.evaluation.probing.plan import Answer, ProbingPlan, ProbingRequests, Row, SentMessages
from ctxlab.evaluation.probing.results import NextActionResults
from ctxlab.llm.base import Client, Reply
from ctxlab.messages.types import Recording, ToolCall, check_recordings
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_provider
from ctxlab.tokens.profiles import TokenProfile

DEFAULT_NEXT_ACTION_STRATEGIES: tuple[str, ...] = (
    "full",
    "observation_mask(keep=10) | sliding_window() | panic()",
    "sliding_window()",
    "nothing",
)
"""Strategies compared by default: two strategies, and the controls ``full`` and ``nothing``."""

_DEFAULT_MAX_TOKENS = 4096
"default maximum tokens of a reply; it is high because a call that writes a file is long"

_COUNTED = (
    *("asked", "answered", "unanswered", "calls", "name", "arguments", "both", "leaves", "naming"),
    *("entities", "text_only", "text_turns", "text_kept", "cut", "prompt", "usd"),
)
"columns of an answer that are summed over the replicates of a request"

_COLUMNS = ("position", "invalid", "differs", "tokens", "overflow", *_COUNTED, "pairs", "alike")
"columns of the results, which have a row per sampled request and configuration"

# Unanswered requests count only in unanswered_rate, and invalid requests only in invalid_rate.
_SCORES = (
    Score.share("agrees_name", "calls of the recorded tool", "name / calls"),
    Score.share("agrees_arguments", "calls with the recorded arguments", "arguments / calls"),
    Score.share("agrees_both", "calls of the recorded tool with its arguments", "both / calls"),
    Score.share("agrees_leaves", "recorded argument values that are equal", "leaves / calls"),
    Score.share("agrees_entities", "recorded paths, ids, … that are used", "entities / naming"),
    Score.share("agrees_text", "requests that rightly make no call", "text_kept / text_turns"),
    Score.share("agrees_self", "repeated answers that make the same calls", "alike / pairs"),
    Score.rate("text_only_rate", "answers that lack the recorded call", "text_only / calls"),
    Score.rate("unanswered_rate", "requests without an answer", "unanswered / asked"),
    Score.rate("cut_rate", "answers cut off at the maximum length", "cut / answered"),
    Score.rate("invalid_rate", "requests that the provider would reject; not sent", "invalid"),
    Score.rate("overflow_rate", "requests that are too large", "overflow"),
    Score.rate("differs_rate", "requests that differ from the recorded ones", "differs", better=""),
    Score.mean("tokens_mean", "mean tokens of a request as it is sent", "tokens", "tokens"),
    Score.total("answered", "answers that are compared", "answers", better=""),
    Score.total("answers_usd", "price of the answers, including cached ones", "USD", "usd"),
)


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
    """Ask a model for the next action with each strategy's context, and compare it with the recording.

    The conversation is divided into stretches, and one request at which the recorded agent called a
    tool is sampled from each. The sample is the same for every configuration. Configurations that
    build the same request share its replies. Requests that the provider would reject are not sent
    and are counted in ``invalid_rate``. Calls are compared by
    ``ctxlab.evaluation.probing.call_matching``. The score ``agrees_self``, the agreement between
    replicates, shows how much answers vary by chance.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length. Tool
        definitions that are not part of the recording do not count against the limit.
    model : str, optional
        Model whose tokenizer applies to the limits. None uses the model of each recording.
    answer_model : str
        Model that is asked for the next action.
    requests : int, default 20
        Number of requests sampled from each recording. 0 takes all requests.
    replicates : int, default 1
        Number of times that each request is sent.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format, sent with every request. None uses the definitions of
        the recording. If it has none, definitions are derived from its tool calls.
    include_text_only : bool, default False
        Also sample requests at which the recorded agent called no tool. The score ``agrees_text``
        is the share of these requests at which the model calls no tool either.
    only_changed : bool, default False
        Sample only requests that differ from the recorded ones in at least one configuration.
    max_tokens : int, optional
        Maximum tokens of a reply, 4096 by default. None sets no limit.
    max_cost : float, optional
        Maximum cost of the run in USD. None sets no limit.
    client : Client, optional
        Client that sends the requests. None calls the provider and caches replies in
        ``.ctxlab/calls``.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Sources of the recordings, such as paths, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.
    seed : int, default 0
        Seed for sampling requests.

    Returns
    -------
    NextActionResults
        Scores of each sampled request, and all answers.

    Raises
    ------
    SpecError
        If there is no request to send, for example because no recording contains a tool call, or if
        an argument is not valid.
    ModelRequestRejected
        If the model rejects a request, or ``max_cost`` would be exceeded.

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
    grid = ExperimentGrid.from_arguments(strategies, limits, model, reserve, (), profile)
    given = None if tools is None else tuple(dict(tool) for tool in tools)
    settings = requests, replicates, given, include_text_only, only_changed, max_tokens, seed
    plan = NextActionPlan(grid, answer_model, *settings)
    return plan.run(recordings, client, data, progress, max_cost=max_cost)


@dataclass(frozen=True)
class NextActionPlan(ProbingPlan[NextActionResults]):
    """Plan of a next-action run: it samples requests and scores the model's tool calls."""

    grid: ExperimentGrid
    "strategies, limits, and the models that count tokens"
    answer_model: str
    "model that is asked for the next action"
    requests: int = 20
    "number of requests sampled from each recording; 0 takes all requests"
    replicates: int = 1
    "number of times that each request is sent"
    tools: tuple[dict[str, Any], ...] | None = None
    "tool definitions for every recording; None uses the recorded ones or derives them from the calls"
    include_text_only: bool = False
    "also sample requests at which the recorded agent called no tool"
    only_changed: bool = False
    "sample only requests that differ from the recorded ones in at least one configuration"
    max_tokens: int | None = _DEFAULT_MAX_TOKENS
    "maximum tokens of a reply; None sets no limit"
    seed: int = 0
    "seed for sampling requests"
    results = NextActionResults
    columns = _COLUMNS
    scores = _SCORES

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a setting is out of range."""
        super().__post_init__()
        if self.requests < 0:
            raise SpecError(f"requests: expected at least 0, got {self.requests}")

    @property
    @override
    def settings(self) -> dict[str, Any]:
        names = ("answer_model", "requests", "replicates", "max_tokens", "seed")
        tools = None if self.tools is None else list(self.tools)
        own = {"texts": self.include_text_only, "differing": self.only_changed, "tools": tools}
        return {name: getattr(self, name) for name in names} | own

    @override
    def explain_nothing(self, recordings: Sequence[Mapping[str, Any]]) -> str:
        if not recordings:
            return "nothing to ask: there are no recordings"
        if unsound := sum(recording["unsound"] for recording in recordings):
            return f"nothing to ask: the provider would reject all {unsound:,} recorded requests"
        if self.only_changed:
            return "no strategy changes any request; choose a smaller limit"
        return "no recording contains a tool call, so there is no action to compare with"

    @override
    def make_requests(self, recording: Recording, client: Client | None = None) -> ProbingRequests:
        counter = self.grid.model_choice.counter_for(recording)
        prepared = PreparedRecording(recording, counter, client)
        messages, provider = recording.messages, rules_provider(self.answer_model)
        known_valid = prepared.valid and prepared.provider == provider
        positions = prepared.request_positions
        if not self.include_text_only:
            positions = tuple(p for p in positions if messages[p].tool_calls)
        valid = [p for p in positions if known_valid or is_valid(messages[:p], provider)]
        unsound = len(positions) - len(valid)
        seed = self.seed, zlib.crc32(recording.id.encode("utf-8", "surrogatepass"))
        wanted = set(valid if self.only_changed else sample_stretches(valid, self.requests, seed))

        def observe(context: Context) -> SentMessages | None:
            """Return the messages to send.

            Return None if they equal the recorded messages, or if the request cannot be sampled.
            """
            if context.history_length not in wanted:
                return None
            sent = tuple(context.messages)
            return None if sent == messages[: context.history_length] else sent

        traces = self.replay(prepared, {"sent": observe}) if wanted else []
        edited = [
            dict(zip(prepared.request_positions, trace.observations["sent"], strict=True))
            for trace in traces
        ]
        if self.only_changed:
            valid = [p for p in valid if any(each[p] is not None for each in edited)]
        positions = sample_stretches(valid, self.requests, seed)
        recorded = {p: messages[:p] for p in positions}
        sent = [[recorded[p] if each[p] is None else each[p] for p in positions] for each in edited]
        (tools, origin), count = self._tools(recording), counter.count_tools
        facts = {
            "drawn": len(positions),
            "eligible": len(valid),
            "unsound": unsound,
            "system": any(message.role == "system" for message in messages[:1]),
            "tools": origin,
            "tool_names": len(tools),
            "tool_tokens": count(tools) - count(recording.tools),
        }
        traces = traces if positions else []
        return ProbingRequests(self, prepared, traces, positions, sent, lambda _: tools, facts)

    def _tools(self, recording: Recording) -> tuple[tuple[dict[str, Any], ...], str]:
        """Return the tool definitions to send, and their origin: given, recorded or derived."""
        if self.tools is not None:
            return self.tools, "given"
        if recording.tools:
            return recording.tools, "recorded"
        return infer_tool_definitions(recording.messages), "derived"

    @override
    def score(
        self,
        batch: ProbingRequests,
        replies: Sequence[Answer],
        verdicts: Sequence[Mapping[Any, Answer]],
    ) -> tuple[list[Row], Figures]:
        requests = {p: number for number, p in enumerate(batch.prepared.request_positions)}
        messages = batch.prepared.recording.messages
        added, rows = batch.facts["tool_tokens"], list[Row]()
        for c, q, replicate, reply in batch.arrange(replies):
            (strategy, limit), position = self.grid.configurations[c], batch.positions[q]
            recorded = messages[position].tool_calls
            budget, tokens = batch.traces[c].budget, batch.traces[c].tokens[requests[position]]
            row: Row = {
                "strategy": strategy,
                "limit": float(limit),
                "position": position,
                "differs": batch.sent[c][q] != messages[:position],
                "tokens": float(tokens + added),
                "overflow": tokens > budget.room,
                "recorded": _format_calls(recorded),
                "replicate": replicate,
            }
            rows.append(row | _compare_answer(recorded, reply))
        return rows, self._sum_replicates(batch, rows, replies)

    def _sum_replicates(
        self, batch: ProbingRequests, rows: Sequence[Row], replies: Sequence[Answer]
    ) -> Figures:
        """Compute the columns of the results for each configuration and sampled request.

        Most columns are sums over the replicates of the request.
        """
        found = {name: np.nansum(batch.stack(rows, name), axis=2) for name in _COUNTED}
        found["usd"] = batch.stack(rows, "usd").sum(axis=2)  # An unknown price makes the sum nan.
        for name in ("position", "differs", "tokens", "overflow"):
            found[name] = batch.stack(rows, name)[:, :, 0]
        question = np.array(batch.request_index)
        count, starts = self.replicates, range(0, len(replies), self.replicates)
        alike = [_count_equal_pairs(replies[start : start + count]) for start in starts]
        # Index -1 marks requests that were not sent. It selects the last element, which is zero.
        pairs = np.array([*alike, (0.0, 0.0)])[question]
        found["pairs"], found["alike"] = pairs[..., 0], pairs[..., 1]
        found["invalid"] = (question < 0).astype(np.float64)
        return {name: found[name] for name in _COLUMNS}


def sample_stretches(candidates: Sequence[int], count: int, seed: Sequence[int]) -> tuple[int, ...]:
    """Draw a random sample that covers a sequence evenly.

    The sequence is divided into ``count`` stretches of equal length, and one candidate is drawn from
    each.

    Parameters
    ----------
    candidates : sequence of int
        Positions to draw from, in ascending order.
    count : int
        Number of stretches. If it is 0, or at least the number of candidates, all candidates are
        returned.
    seed : sequence of int
        Seed of the random number generator.

    Returns
    -------
    tuple of int
        Drawn candidates, in ascending order.

    Examples
    --------
    >>> sample_stretches(range(100), 4, (0,)), sample_stretches([3, 5], 4, (0,))
    ((21, 40, 62, 81), (3, 5))
    """
    if not 0 < count < len(candidates):
        return tuple(candidates)
    edges = np.arange(count + 1) * len(candidates) // count
    picked = np.random.default_rng(seed).integers(edges[:-1], edges[1:])
    return tuple(candidates[int(i)] for i in picked)


def _compare_answer(recorded: Sequence[ToolCall], reply: Answer | None) -> dict[str, Any]:
    """Compare a model's answer with the recorded calls, and return the columns of the answer."""
    found: dict[str, Any] = dict.fromkeys(_COUNTED, math.nan)
    counts = ("asked", "answered", "unanswered", "calls", "naming", "text_turns", "usd")
    found |= dict.fromkeys(counts, 0.0)
    found |= {"said": "", "finish": None}
    if reply is None:
        return {**found, "outcome": "invalid", "why": "the provider would reject the request"}
    if isinstance(reply, ModelUnavailable):
        found |= {"asked": 1.0, "unanswered": 1.0}
        return {**found, "outcome": "unanswered", "why": str(reply)}
    said = reply.message.tool_calls
    found |= {
        "outcome": "answered",
        "why": "",
        "asked": 1.0,
        "answered": 1.0,
        "cut": float(reply.finish == "length"),
        "prompt": float(reply.usage.total_input),
        "usd": reply.usd,
        "finish": reply.finish,
        "said": _format_calls(said) or reply.text,
    }
    if not recorded:
        return {**found, "text_turns": 1.0, "text_kept": float(not said)}
    shares = match_calls(recorded, said)._asdict()
    named = float(not math.isnan(shares["entities"]))
    return {**found, **shares, "calls": 1.0, "naming": named, "text_only": float(not said)}


def _count_equal_pairs(replies: Sequence[Answer]) -> tuple[float, float]:
    """Count all pairs of replies to one request, and the pairs that make the same calls."""
    said = [reply.message.tool_calls for reply in replies if isinstance(reply, Reply)]
    found = [match_calls(one, other).both for one, other in combinations(said, 2)]
    return float(len(found)), sum(found)


def _format_calls(calls: Sequence[ToolCall]) -> str:
    """Format tool calls for the table ``answers``, one per line."""
    return "\n".join(f"{call.name}({call.arguments})" for call in calls)
