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
from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.evaluation.experiment import (
    DEFAULT_LIMITS,
    Choice,
    Grid,
)
from ctxlab.evaluation.metrics.strategy_calls import (
    Asked,
    Tally,
    asked_in,
)
from ctxlab.evaluation.probing.next_action_plan import (
    Batch,
    Plan,
)
from ctxlab.evaluation.probing.next_action_results import Agreement
from ctxlab.evaluation.probing.next_action_scores import (
    COLUMNS,
    SCORES,
    answers_of,
    figures_of,
)
from ctxlab.evaluation.results import (
    Results,
    Table,
)
from ctxlab.llm.base import (
    Client,
    Reply,
    Spending,
)
from ctxlab.llm.batch import (
    Estimate,
    answers_kept,
    ask_each,
    estimate,
    offline,
    paid_client,
)
from ctxlab.messages.types import (
    Recording,
    several,
)
from ctxlab.tokens.profiles import Profile

__all__ = ["CONTRASTED", "agree", "carry_out", "forecast", "planned"]

CONTRASTED: tuple[str, ...] = (
    "full",
    "observation_mask(keep=10) | sliding_window() | panic()",
    "sliding_window()",
    "nothing",
)
"""What is compared where nothing is said: the ceiling, two ideas, and the floor."""

_MOST = 4096
"tokens that a reply may take where nothing is said: a call that writes a file is long"


def agree(
    recordings: Iterable[Recording],
    strategies: Choice | Iterable[Choice] = CONTRASTED,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    answer_model: str,
    requests: int = 20,
    replicates: int = 1,
    tools: Sequence[Mapping[str, Any]] | None = None,
    texts: bool = False,
    differing: bool = False,
    max_tokens: int | None = _MOST,
    max_cost: float | None = None,
    client: Client | None = None,
    reserve: int = 0,
    data: Sequence[str] = (),
    progress: bool | None = None,
    profile: Profile | Iterable[Profile] | None = None,
    seed: int = 0,
) -> Agreement:
    """Asks a model for the next action under every strategy, and compares it with the recorded one.

    Of each recording ``requests`` are drawn (0: all) among those at which the recorded agent called a
    tool, one of each stretch of the conversation, the same for every configuration. ``texts`` draws
    among all turns: where the agent called nothing, calling nothing agrees (``agrees_text``).
    ``differing`` draws among those only that some configuration would not send as they were recorded.
    Equal requests are asked once. ``replicates`` asks each so often; how often ``full`` agrees with
    itself (``agrees_self``) is the noise.

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
    >>> found = agree([Recording("r", talk)], "full", 1000, answer_model="gpt-5-mini", client=script)
    >>> found.leaderboard()["agrees_both"].tolist(), found.answers["said"].tolist()
    ([1.0], ['read({"path": "a.py"})'])
    """
    several(recordings)
    wanted = planned(
        strategies, limits, model, answer_model=answer_model, requests=requests,
        replicates=replicates, tools=tools, texts=texts, differing=differing, max_tokens=max_tokens,
        reserve=reserve, profile=profile, seed=seed,
    )  # fmt: skip
    if client is None or max_cost is not None:
        client = paid_client(max_cost, client=client)
    return carry_out(wanted, recordings, client, data, progress)


def planned(
    strategies: Choice | Iterable[Choice],
    limits: float | str | Iterable[float | str],
    model: str | None = None,
    *,
    answer_model: str,
    requests: int = 20,
    replicates: int = 1,
    tools: Sequence[Mapping[str, Any]] | None = None,
    texts: bool = False,
    differing: bool = False,
    max_tokens: int | None = _MOST,
    reserve: int = 0,
    profile: Profile | Iterable[Profile] | None = None,
    seed: int = 0,
) -> Plan:
    """What ``agree`` would ask; raises ``SpecError`` for what makes no sense."""
    for name, value, least in (("requests", requests, 0), ("replicates", replicates, 1)):
        if value < least:
            raise SpecError(f"{name}: {least} or more, not {value}")
    if max_tokens is not None and max_tokens < 1:
        raise SpecError(f"max_tokens: a reply takes 1 or more, not {max_tokens}")
    if not answer_model:
        raise SpecError("name the model that is to answer")
    given = None if tools is None else tuple(dict(tool) for tool in tools)
    grid = Grid.make(strategies, limits, model, reserve, (), profile)
    return Plan(grid, answer_model, requests, replicates, given, texts, differing, max_tokens, seed)


def forecast(
    plan: Plan, recordings: Iterable[Recording], client: Client, progress: bool | None = None
) -> Estimate:
    """What it would take to carry out a plan: nothing is asked, and what is on disk is known.

    What strategies ask for themselves is not in it; contexts that they have not made yet are estimated
    by those that they make without their model.
    """
    nobody, seen, total = offline(client), set[str](), Estimate()
    for recording in track(recordings, "recordings looked at", None, progress):
        total = total.plus(estimate(plan.batch(recording, nobody).requests, client, seen))
    return total


def carry_out(
    plan: Plan,
    recordings: Iterable[Recording],
    client: Client,
    data: Sequence[str] = (),
    progress: bool | None = None,
    questions: int | None = None,
) -> Agreement:
    """Asks what was planned, a recording at a time; ``questions``: how many, where that is known."""
    table, account = Table(COLUMNS, plan.grid.labels), Tally()
    answers: list[dict[str, Any]] = []
    work = _work(plan, recordings, client, table, account, answers)
    with answers_kept(client), closing(work):
        for _ in track(work, "questions answered", questions, progress):
            pass
    if not answers:
        raise SpecError(_nothing(plan, table))
    manifest = {
        **plan.grid.manifest(data, table.recordings),
        **account.manifest(),
        "agreement": _settings(plan),
    }
    del manifest["spec"]["metrics"]  # repeated as an evaluation, it measures what those measure
    found = Results.of(table, SCORES, manifest)
    return Agreement(found.requests, found.scores, found.manifest, _frame(answers, plan))


def _work(
    plan: Plan,
    recordings: Iterable[Recording],
    client: Client,
    table: Table,
    account: Tally,
    answers: list[dict[str, Any]],
) -> Generator[int, None, None]:
    """Recording by recording, with a step for each question; what came of them is put away."""
    for recording in recordings:
        batch = plan.batch(recording, client)
        table.describe(_described(plan, batch))
        if not batch.positions:
            continue
        replies: dict[int, Reply | ModelUnavailable] = {}
        with closing(ask_each(batch.requests, client)) as each:
            for place, reply in each:
                replies[place] = reply
                yield place
        said = [replies[place] for place in range(len(batch.requests))]
        rows = list(answers_of(batch, said, plan.replicates))
        limits = [trace.budget.limit for trace in batch.traces]
        table.add(limits, figures_of(batch, rows, said, plan.replicates))
        account.add(asked_in(batch.traces))
        account.add(Asked([Spending.of(0, plan.answer_model, reply) for reply in said], {}))
        names = {key: table.recordings[-1][key] for key in ("recording", "cluster")}
        answers += [{**names, **row} for row in rows]


def _described(plan: Plan, batch: Batch) -> dict[str, Any]:
    """The recording as an evaluation has it, and what of it is asked."""
    return {
        **plan.grid.measure(batch.tape, []).described,
        "drawn": len(batch.positions),
        "eligible": batch.eligible,
        "unsound": batch.unsound,
        "system": any(message.role == "system" for message in batch.tape.recording.messages[:1]),
        "tools": batch.origin,
        "tool_names": len(batch.tools),
        "tool_tokens": batch.tool_tokens,
    }


def _settings(plan: Plan) -> dict[str, Any]:
    names = "answer_model requests replicates texts differing max_tokens seed"
    given = None if plan.tools is None else list(plan.tools)
    return {**{name: getattr(plan, name) for name in names.split()}, "tools": given}


def _frame(answers: list[dict[str, Any]], plan: Plan) -> pd.DataFrame:
    """The answers with strategy and limit in place of the configuration's number."""
    frame = pd.DataFrame(answers)
    labels = [plan.grid.labels[number] for number in frame.pop("configuration")]
    frame.insert(2, "strategy", [strategy for strategy, _ in labels])
    frame.insert(3, "limit", [float(limit) for _, limit in labels])
    return frame


def _nothing(plan: Plan, table: Table) -> str:
    """Why there was nothing to ask."""
    if not table.recordings:
        return "there is nothing to ask: there are no recordings"
    if unsound := sum(recording["unsound"] for recording in table.recordings):
        return f"no recorded request can be asked: a provider would refuse all {unsound:,} of them"
    if plan.differing:
        return (
            "every strategy sends everything as it was said: a smaller limit would tell them apart"
        )
    return "no recording holds a tool call, so there is no action to agree with"
