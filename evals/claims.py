"""Replay published claims, and write ``CLAIMS.md``: ``python evals/claims.py [NAME… | --write]``.

``CLAIMS`` lists each claim with its source, the claimed figure, and a function that measures it on
published recordings, or the reason why a replay cannot. The verdict follows from the claimed figure
and the measured interval (``judge``). With names, only these claims are measured and printed. With
``--write``, the tables of ``CLAIMS.md`` are replaced. ``ctxlab datasets fetch NAME`` downloads a data
set.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

import complexity_trap as trap
from claim_measures import (
    CLAUDE,
    NO_LIMIT,
    PI,
    Measured,
    best_saving,
    cached_share,
    caching_saving,
    compaction_trigger,
    compression,
    invalid_share,
    keep_differs,
    kept_by_compaction,
    pruning_factor,
    read_again,
    replayed_change,
    survival,
    trap_change,
    undercount,
    written_again,
)  # fmt: skip

from ctxlab.evaluation.bootstrap import MIN_CLUSTERS

PAGE = Path(__file__).with_name("CLAIMS.md")
MAX_WIDTH = 0.5
"width of the interval of a share from which on it settles nothing"

Verdict: TypeAlias = Literal["reproduced", "contradicted", "out of reach"]
Pair: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """A published figure, and how a replay tests it."""

    name: str
    "name on the command line"
    group: str
    "table of the page"
    source: str
    "who published it, as Markdown"
    text: str
    "what was published, in one sentence"
    why: str
    "what is measured instead, and what the verdict means; for a claim without a measure, why it "
    "is out of reach"
    measure: Callable[[], Measured] | None = None
    claimed: Pair = (math.nan, math.nan)
    "range of the claimed figure; one bound is infinite if only the direction can be tested"
    digits: int = 2
    "digits after the decimal point of the claimed figure"
    form: str = "share"
    "how figures are written: a share, a signed change, or a factor"
    command: str = ""
    "command of ctxlab that shows the figures behind the measure"
    exists: bool = False
    "True if the claim is that such a saving is possible, which a smaller one does not contradict"

    @property
    def bounds(self) -> Pair:
        """The claimed range. As figures are rounded, half a unit of the last digit is added."""
        least, most = self.claimed
        half = 0.5 * 10.0**-self.digits
        return (least if least % 1 == 0 else least - half), (most if most % 1 == 0 else most + half)


class Judged(NamedTuple):
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict
    measured: Measured | None
    note: str
    "why the recordings do not settle a claim; empty if they do"


def judge(claim: Claim) -> Judged:
    """Measure a claim, and compare the interval with the claimed figure.

    A figure or range is reproduced if the interval contains a part of it, and contradicted otherwise. A
    direction is reproduced if the whole interval has it, and contradicted if no part has it. A claim is
    out of reach of the recordings if they do not settle it: fewer than five clusters, a share with an
    interval wider than ``MAX_WIDTH``, a change or factor whose interval contains that of no difference,
    or a direction that only a part of the interval has.
    """
    if claim.measure is None:
        return Judged(claim, "out of reach", None, "")
    found = claim.measure()
    least, most = claim.bounds
    if math.isnan(least):
        return Judged(claim, "out of reach", found, "")
    if found.clusters < MIN_CLUSTERS:
        return Judged(claim, "out of reach", found, f"only {found.clusters} clusters")
    never_but_seen = claim.claimed == (0, 0) and found.value > 0
    if found.high < least or found.low > most or never_but_seen:
        if claim.exists:
            return Judged(claim, "out of reach", found, "ctxlab's strategies save less")
        return Judged(claim, "contradicted", found, "")
    if reason := _unsettled(claim, found):
        return Judged(claim, "out of reach", found, reason)
    return Judged(claim, "reproduced", found, "")


def _unsettled(claim: Claim, found: Measured) -> str:
    """Return why an interval that contains a claimed figure does not settle the claim."""
    least, most = claim.bounds
    if math.isinf(least) or math.isinf(most):
        inside = least <= found.low and found.high <= most
        return "" if inside else "the interval has both directions"
    if claim.form == "change":
        return "the interval contains 0" if found.low <= 0 <= found.high else ""
    if claim.form == "factor":
        return "the interval contains 1" if found.low <= 1 <= found.high else ""
    return "the interval is too wide" if found.high - found.low > MAX_WIDTH else ""


ARXIV = "https://arxiv.org/abs/"
TRAP = f"[Complexity Trap]({ARXIV}2508.21433)"
GLM = "a fork of Complexity Trap, GLM-4.7, n = 902"
COST, CACHE = "Cost and tokens", "Prompt cache and compaction"
FORGOTTEN, INVALID, OUT = "What is forgotten", "Requests that providers reject", "Out of reach"
GROUPS = (COST, CACHE, FORGOTTEN, INVALID, OUT)

_SWE = " ".join(f"dataset:{name}" for name in trap.SCAFFOLDS)
_CLAUDE, _BOTH = f"dataset:{CLAUDE}", f"dataset:{CLAUDE} dataset:{PI}"
_ANY = "--limit 10m"
_QWEN = (
    "The input cost at the paper's prices for Qwen, with an ideal cache, over logs of three "
    "scaffolds. The sections below show it by scaffold and by length. Summaries are extracted "
    "without a model and cost nothing."
)
_PINNED = "pinned(rolling_summary(), match='Keep to this:') | panic()"
_CONSTRAINTS = (
    "Ten constraints are planted in each session of Claude Code and replayed in a window of "
    "64,000 tokens. The figure is the share that is still in the last request, so it is the "
    "survival of the text, not whether a model obeys. "
)
_SHORTENED = (
    "The share of the requests that the strategy shortened at half of the length of each "
    "recording, by the rules of OpenAI. The recordings are of coding agents and of customer "
    "service. "
)
_EXISTS = (
    "The method is not reproduced. Instead, the figure is that of the cheapest default strategy "
    "of ctxlab that keeps 95 % of the held far recall, on sessions of Claude Code at 100,000 "
    "tokens. It was chosen on the same recordings, so it is optimistic. A smaller saving would "
    "contradict nothing. "
)
_LINEUP = f"ctxlab eval {_CLAUDE} --limit 100k"


def trap_command(*strategies: str) -> str:
    """Return the command that shows the costs of strategies of the paper with Gemini's cache."""
    chosen = " ".join(f"-s {each}" for each in ("full", *strategies))
    return f"ctxlab eval {_SWE} {_ANY} --model {trap.CACHED} {chosen} --on-error skip"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "mask-qwen",
        COST,
        TRAP,
        "Masking costs $0.61 instead of $1.29 with Qwen3-Coder-480B.",
        _QWEN + " In the paper, 84 % of the tokens are tool results, in these logs less.",
        partial(trap_change, "qwen", trap.MASK, trap.RAW),
        (-0.53, -0.53),
        2,
        "change",
        trap_command("complexity_trap.masking"),
    ),
    Claim(
        "mask-qwen-direction",
        COST,
        TRAP,
        "Masking costs less than full history with Qwen3-Coder-480B.",
        "As `mask-qwen`. Only the sign is tested.",
        partial(trap_change, "qwen", trap.MASK, trap.RAW),
        (-math.inf, 0),
        2,
        "change",
        trap_command("complexity_trap.masking"),
    ),
    Claim(
        "mask-gemini",
        COST,
        TRAP,
        "Masking costs $0.18 instead of $0.41 with Gemini 2.5 Flash.",
        "The same with Gemini's price of cached tokens, a tenth of the full price. Each newly "
        "masked result invalidates the cache for all messages after it.",
        partial(trap_change, "gemini", trap.MASK, trap.RAW),
        (-0.56, -0.56),
        2,
        "change",
        trap_command("complexity_trap.masking"),
    ),
    Claim(
        "summary-qwen",
        COST,
        TRAP,
        "A summary every 21 turns costs $0.64 instead of $1.29 with Qwen3-Coder-480B.",
        "As `mask-qwen`.",
        partial(trap_change, "qwen", trap.SUMMARY, trap.RAW),
        (-0.50, -0.50),
        2,
        "change",
        trap_command("complexity_trap.summary"),
    ),
    Claim(
        "hybrid-mask",
        COST,
        TRAP,
        "The hybrid costs 7 % less than masking.",
        "As `mask-qwen`.",
        partial(trap_change, "qwen", trap.HYBRID, trap.MASK),
        (-0.07, -0.07),
        2,
        "change",
        trap_command("complexity_trap.hybrid", "complexity_trap.masking"),
    ),
    Claim(
        "hybrid-summary",
        COST,
        TRAP,
        "The hybrid costs 11 % less than summaries.",
        "As `mask-qwen`.",
        partial(trap_change, "qwen", trap.HYBRID, trap.SUMMARY),
        (-0.11, -0.11),
        2,
        "change",
        trap_command("complexity_trap.hybrid", "complexity_trap.summary"),
    ),
    Claim(
        "mask-glm",
        COST,
        GLM,
        "Masking costs $0.61 instead of $1.00.",
        "The input cost at the prices of GLM-4.7, whose cached tokens cost 18 % of the full price.",
        partial(trap_change, "glm", trap.MASK, trap.RAW),
        (-0.39, -0.39),
        2,
        "change",
        trap_command("complexity_trap.masking").replace(trap.CACHED, "zai/glm-4.7"),
    ),
    Claim(
        "summary-glm",
        COST,
        GLM,
        "Summaries cost $0.50 instead of $1.00.",
        "As `mask-glm`.",
        partial(trap_change, "glm", trap.SUMMARY, trap.RAW),
        (-0.50, -0.50),
        2,
        "change",
        trap_command("complexity_trap.summary").replace(trap.CACHED, "zai/glm-4.7"),
    ),
    Claim(
        "hybrid-glm",
        COST,
        GLM,
        "The hybrid costs $0.32 instead of $1.00.",
        "As `mask-glm`.",
        partial(trap_change, "glm", trap.HYBRID, trap.RAW),
        (-0.68, -0.68),
        2,
        "change",
        trap_command("complexity_trap.hybrid").replace(trap.CACHED, "zai/glm-4.7"),
    ),
    Claim(
        "clear-anthropic",
        COST,
        "Anthropic, internal, second-hand",
        "Context editing sends 84 % fewer tokens over 100 turns.",
        "The tokens of the first 100 requests of the coding sessions that are as long, with the "
        "defaults of the API: results are cleared from 100,000 tokens on. Anthropic measured "
        "searches of the web, whose results are larger.",
        partial(
            replayed_change, (CLAUDE, PI), "anthropic.clear_tool_uses()", "tokens", NO_LIMIT, 100
        ),
        (-0.84, -0.84),
        2,
        "change",
        f'ctxlab eval {_BOTH} {_ANY} --where "messages>=200" -s full -s anthropic.clear_tool_uses',
    ),
    Claim(
        "mask-openhands",
        COST,
        f"[PNNL]({ARXIV}2605.18854)",
        "OpenHands' masking sends 8.6 % fewer tokens.",
        "The tokens of requests, with a window of 100 events. Most of these runs are shorter.",
        partial(replayed_change, ("openhands", "mini-swe-agent"), "openhands.masking()"),
        (-0.086, -0.086),
        3,
        "change",
        f"ctxlab eval dataset:openhands dataset:mini-swe-agent {_ANY} -s full -s openhands.masking",
    ),
    Claim(
        "files-cursor",
        COST,
        "Cursor, its own A/B test",
        "Writing large results to files sends 46.9 % fewer tokens.",
        "The tokens of requests if results of more than 4,000 tokens are replaced by a preview, "
        "in sessions of Claude Code.",
        partial(replayed_change, (CLAUDE,), "offload()"),
        (-0.469, -0.469),
        3,
        "change",
        f"ctxlab eval {_CLAUDE} {_ANY} -s full -s offload",
    ),
    Claim(
        "cost-agentdiet",
        COST,
        f"[AgentDiet]({ARXIV}2509.23586)",
        "Removing waste from trajectories costs 21 to 36 % less, without loss.",
        _EXISTS,
        partial(best_saving, "cost_usd"),
        (-0.36, -0.21),
        2,
        "change",
        _LINEUP,
        exists=True,
    ),
    Claim(
        "tokens-agentdiet",
        COST,
        f"[AgentDiet]({ARXIV}2509.23586)",
        "It sends 40 to 60 % fewer input tokens.",
        _EXISTS,
        partial(best_saving, "tokens"),
        (-0.60, -0.40),
        2,
        "change",
        _LINEUP,
        exists=True,
    ),
    Claim(
        "peak-acon",
        COST,
        f"[ACON]({ARXIV}2510.00615)",
        "Compression lowers the peak tokens by 26 to 54 %, without loss.",
        _EXISTS,
        partial(best_saving, "peak"),
        (-0.54, -0.26),
        2,
        "change",
        _LINEUP,
        exists=True,
    ),
    Claim(
        "cost-tokenpilot",
        COST,
        f"[TokenPilot]({ARXIV}2606.17016)",
        "Context management costs 56 to 87 % less, without loss.",
        _EXISTS,
        partial(best_saving, "cost_usd"),
        (-0.87, -0.56),
        2,
        "change",
        _LINEUP,
        exists=True,
    ),
    Claim(
        "cached",
        CACHE,
        "TraceLab, 357,161 steps",
        "96 % of the input tokens of coding agents are read from the cache.",
        "The billed tokens of sessions of Claude Code. Nothing is replayed.",
        cached_share,
        (0.96, 0.96),
        command=f"ctxlab describe {_CLAUDE}",
    ),
    Claim(
        "caching-saves",
        CACHE,
        f"[2601.06007]({ARXIV}2601.06007)",
        "Prompt caching saves 45 to 80 % of the cost.",
        "The billed tokens of sessions of Claude Code at Claude's price ratios: a read costs a "
        "tenth of an input token, and a write 1.25 times as much (2 times for an hour).",
        caching_saving,
        (0.45, 0.80),
        command=f"ctxlab describe {_CLAUDE}",
    ),
    Claim(
        "written-again",
        CACHE,
        "local-operator #365",
        "81 to 85 % of the prompt is written to the cache again after a compaction.",
        "The billed tokens of the first request after recorded compactions of Claude Code and pi. "
        "That a write costs 12.5 times as much as a read is Claude's price list for 5 minutes; "
        "for an hour, it is 20 times.",
        written_again,
        (0.81, 0.85),
        command=f"ctxlab describe {_BOTH}",
    ),
    Claim(
        "pruning",
        CACHE,
        "opencode #32515",
        "A pruning pass raises the cost of a request from $0.25 to $1.83.",
        "The cost of the requests in which a pass masks old results at half of a window of "
        "200,000 tokens, divided by that of the requests just before. A pass that removes most of "
        "the context can be cheaper than reading it from the cache.",
        pruning_factor,
        (7.3, 7.3),
        1,
        "factor",
        f'ctxlab eval {_BOTH} --limit 200k -s "in_batches(observation_mask(keep=10), trigger=0.5)"',
    ),
    Claim(
        "trigger",
        CACHE,
        "[claude-code #31806](https://github.com/anthropics/claude-code/issues/31806)",
        "Claude Code compacts at 83.5 % of a window of 200,000 tokens.",
        "The billed prompt before recorded compactions. The issue is about version 2.1.310, and "
        "these sessions are of versions 2.1.5 to 2.1.39.",
        compaction_trigger,
        (0.835, 0.835),
        3,
        command=f"ctxlab describe {_CLAUDE}",
    ),
    Claim(
        "undercount",
        CACHE,
        "[deepagents #520](https://github.com/langchain-ai/deepagents/issues/520)",
        "A count of a quarter of the characters is 22 % low on Claude.",
        "How much the billed prompt of Claude Code grew from request to request, compared with "
        "the characters of the messages in between. The bill also has what no log contains, such "
        "as hidden reasoning and reminders.",
        undercount,
        (0.22, 0.22),
        command=f"ctxlab calibrate {_CLAUDE}",
    ),
    Claim(
        "keep-differs",
        FORGOTTEN,
        TRAP,
        "The number of tool results to keep differs between scaffolds.",
        "The smallest number with a held far recall of 0.95, of mini-swe-agent divided by "
        "OpenHands; a factor above 1 means that it differs. The section below has four scaffolds.",
        keep_differs,
        (1, math.inf),
        0,
        "factor",
        'ctxlab tune dataset:openhands --limit 10m -s "observation_mask(keep=[5, 10, 15, 20, 40])"',
    ),
    Claim(
        "constraints",
        FORGOTTEN,
        f"[COMPINT]({ARXIV}2608.11242)",
        "17 % of side constraints survive a compaction.",
        _CONSTRAINTS
        + "The strategy is Claude Code's, with summaries that are extracted without a model.",
        partial(survival, "claude_code()", 64_000.0, ("constraint",)),
        (0.17, 0.17),
        command=f"ctxlab canaries {_CLAUDE} -l 64k -n 10 --kind constraint -s claude_code",
    ),
    Claim(
        "pinning",
        FORGOTTEN,
        f"[ConstraintRot]({ARXIV}2606.22528)",
        "No constraint is violated if constraints are pinned.",
        _CONSTRAINTS + "The strategy pins each message with the words that begin a constraint.",
        partial(survival, _PINNED, 64_000.0, ("constraint",)),
        (1.0, 1.0),
        command=f'ctxlab canaries {_CLAUDE} -l 64k -n 10 --kind constraint -s "{_PINNED}"',
    ),
    Claim(
        "pi",
        FORGOTTEN,
        "algal/pi-openai-server-compaction",
        "288 of 600 planted facts are recalled after compactions of pi.",
        "Ten facts of all kinds are planted in each session of Claude Code and replayed with the "
        "defaults of pi in a window of 64,000 tokens. The figure is the share that is still in "
        "the last request.",
        partial(survival, "pi()", 64_000.0, ()),
        (0.48, 0.48),
        command=f"ctxlab canaries {_CLAUDE} -l 64k -n 10 -s pi",
    ),
    *(
        Claim(
            f"kept-{kind}s",
            FORGOTTEN,
            "deja-vu #543, 43 compactions",
            f"{share:.1%} of {kind}s survive a compaction.".replace("%", " %"),
            "The distinct "
            + what
            + " in the messages that recorded compactions of Claude Code and pi "
            "removed, and the share that the context after the compaction contains.",
            partial(kept_by_compaction, kind),
            (share, share),
            3,
            command=f"ctxlab describe {_BOTH}",
        )
        for kind, share, what in (
            ("path", 0.098, "paths"),
            ("command", 0.002, "shell commands of tool calls"),
            ("number", 0.019, "numbers"),
        )
    ),
    Claim(
        "compression-claude",
        FORGOTTEN,
        "Factory, second-hand",
        "A summary compresses by 98.6 % (Factory) or 99.3 % (OpenAI).",
        "There are no logs of these products. The figure is the share of the message tokens that "
        "recorded compactions of Claude Code removed.",
        compression,
        command=f"ctxlab describe {_CLAUDE}",
    ),
    Claim(
        "read-again",
        FORGOTTEN,
        "[codex #36664](https://github.com/openai/codex/issues/36664)",
        "After 74 compactions, 95 % was read again.",
        "It is one session of Codex that is not public. The figure is the share of recorded "
        "compactions of Claude Code and pi after which a call soon fetched again what was "
        "removed.",
        read_again,
        command=f"ctxlab eval {_BOTH} {_ANY} -s recorded",
    ),
    Claim(
        "autogen",
        INVALID,
        "ctxlab's notes on autogen-core 0.7",
        "More than half of the trimmed requests of the token-limited context have a broken pair.",
        _SHORTENED,
        partial(invalid_share, "autogen.token_limited()"),
        (0.5, math.inf),
        command="ctxlab eval dataset:openhands --limit 0.5 --model gpt-4o -s autogen.token_limited",
    ),
    Claim(
        "langchain-trim",
        INVALID,
        "ctxlab's notes on langchain-core 1.7",
        "About a third of the requests of trim_messages begin with an orphaned tool result.",
        _SHORTENED + "About a third is taken as 30 to 37 %.",
        partial(invalid_share, "langchain.trim_messages()"),
        (0.30, 0.37),
        command="ctxlab eval dataset:openhands --limit 0.5 --model gpt-4o -s langchain.trim_messages",
    ),
    Claim(
        "litellm-trim",
        INVALID,
        "ctxlab's notes on litellm",
        "trim_messages breaks pairs.",
        _SHORTENED,
        partial(invalid_share, "litellm.trim_messages()"),
        (0, math.inf),
        command="ctxlab eval dataset:openhands --limit 0.5 --model gpt-4o -s litellm.trim_messages",
    ),
    *(
        Claim(
            f"valid-{name.partition('.')[0].replace('_', '-')}",
            INVALID,
            "ctxlab's notes on the package",
            f"{name} never breaks a pair.",
            _SHORTENED,
            partial(invalid_share, strategy),
            (0.0, 0.0),
            command=f'ctxlab eval dataset:openhands --limit 0.5 --model gpt-4o -s "{strategy}"',
        )
        for name, strategy in (
            ("langchain.clear_tool_uses", "langchain.clear_tool_uses(trigger=2000)"),
            ("agent_framework.sliding_window", "agent_framework.sliding_window()"),
            ("strands.sliding", "strands.sliding()"),
            ("openai_agents.tool_output_trimmer", "openai_agents.tool_output_trimmer()"),
            ("ag2.sliding_window", "ag2.sliding_window()"),
        )
    ),
    Claim(
        "success",
        OUT,
        f"{TRAP} and its fork",
        "Masked agents solve 54.8 %, raw ones 53.3 % (Qwen); 62.0 % and 64.0 % (GLM-4.7).",
        "The recorded agent does not react to what is removed. `ctxlab next-action` compares a "
        "model's next call.",
    ),
    Claim(
        "windows-openhands",
        OUT,
        TRAP,
        "On OpenHands, keeping 10 results solves 30 % of 50 tasks, and 58 or 72 solve 44 %.",
        "As above. What a replay can say is above: `keep-differs`.",
    ),
    Claim(
        "condensers",
        OUT,
        f"[PNNL]({ARXIV}2605.18854)",
        "Condensers that call a model use 24 to 94 % more tokens.",
        "The tokens are those of calls and of longer runs. Calls can be counted with a model: "
        "`rolling_summary(model=…)`.",
    ),
    Claim(
        "performance-anthropic",
        OUT,
        "Anthropic, internal, second-hand",
        "Context editing improves results by 29 %, and with a memory by 39 %.",
        "It needs the agent and its tasks.",
    ),
    Claim(
        "quality-factory",
        OUT,
        "Factory, second-hand",
        "The quality of summaries is 3.70, 3.44 and 3.35.",
        "A model judges the quality. `ctxlab probe` asks a model questions about what a request "
        "still holds.",
    ),
    Claim(
        "lost-in-compaction",
        OUT,
        "lost-in-compaction",
        "A model recalls 73 % before a compaction, 40 % if half and 7 % if 98 % is compacted.",
        "It needs a model. Keywords survive to 82–93 % in the same test, so that availability, "
        "which a replay measures, is an upper bound.",
    ),
    Claim(
        "extractor",
        OUT,
        f"[COMPINT]({ARXIV}2608.11242)",
        "An extractor keeps 90 to 96 % of side constraints.",
        "The extractor is a model that was told what a constraint is. What pinning by a pattern "
        "keeps is above: `pinning`.",
    ),
    Claim(
        "decisions",
        OUT,
        "deja-vu #543, 43 compactions",
        "About 77 % of decisions survive a compaction.",
        "Decisions have no fixed form; finding them needs a model.",
    ),
    Claim(
        "native-openai",
        OUT,
        "algal/pi-openai-server-compaction",
        "468 of 600 planted facts are recalled after OpenAI's compaction, which costs 2.5 times "
        "as much.",
        "The content of OpenAI's compaction is encrypted.",
    ),
    Claim(
        "question-sets",
        OUT,
        f"[LOCA-bench]({ARXIV}2602.07962), [LongMemEval-V2]({ARXIV}2605.12493), BEAM, MemoryAgentBench",
        "Scores of agents and models with long contexts.",
        "A model answers questions, or acts on-policy. [LOCOMO.md](LOCOMO.md) shows what evidence "
        "strategies keep.",
    ),
)


FORMS: dict[str, Callable[[float], str]] = {
    "share": lambda value: f"{value:.3f}" if 0 < abs(value) < 0.1 else f"{value:.2f}",
    "change": lambda value: f"{value:+.0%}".replace("-", "−").replace("%", " %"),
    "factor": lambda value: f"{value:.1f} ×",
}
"""How figures are written."""


def write_claimed(claim: Claim) -> str:
    """Return the claimed figure or range as text."""
    least, most = claim.claimed
    form = FORMS[claim.form] if claim.form == "change" else "{:g}".format
    if math.isnan(least):
        return "–"
    if math.isinf(least) or math.isinf(most):
        return f"below {most:g}" if math.isinf(least) else f"above {least:g}"
    return form(least) if least == most else f"{form(least)} to {form(most)}"


def write_measured(claim: Claim, found: Measured | None) -> str:
    """Return a measured figure with its interval as text."""
    if found is None or math.isnan(found.value):
        return "–"
    form = FORMS[claim.form]
    bounds = "" if found.low == found.high else f" ({form(found.low)} to {form(found.high)})"
    return f"{form(found.value)}{bounds}"


def claim_tables(judged: Sequence[Judged]) -> str:
    """Return the tables of all claims by group, as Markdown."""
    parts = []
    for group in GROUPS:
        chosen = [each for each in judged if each.claim.group == group]
        if not chosen:
            continue
        rows: list[dict[str, object]] = [
            {"claim": each.claim.text, "source": each.claim.source, "why": each.claim.why}
            if group == OUT
            else {
                "name": f"`{each.claim.name}`",
                "claim": each.claim.text,
                "source": each.claim.source,
                "claimed": write_claimed(each.claim),
                "measured (95 %)": write_measured(each.claim, each.measured),
                "verdict": f"**{each.verdict}**" + (f": {each.note}" if each.note else ""),
            }
            for each in chosen
        ]
        parts.append(f"### {group}\n\n{trap.markdown(rows)}")
    return "\n" + "\n".join(parts) + "\n"


def method_list(judged: Sequence[Judged]) -> str:
    """Return how each claim was measured, as Markdown."""
    lines = [
        f"- `{each.claim.name}`: {each.claim.why.strip()} `{each.claim.command}`\n"
        for each in judged
        if each.claim.measure is not None
    ]
    return "\n" + "".join(lines) + "\n"


_BLOCK = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def find_tables(text: str) -> dict[str, str]:
    """Return the tables of a page by name. A table is between ``<!-- name -->`` and ``<!-- end -->``."""
    return dict(_BLOCK.findall(text))


def compute_tables() -> dict[str, str]:
    """Compute all tables of ``CLAIMS.md``: Markdown by name."""
    judged = [judge(claim) for claim in CLAIMS]
    counts = Counter(each.verdict for each in judged)
    yes, no, unknown = (counts[verdict] for verdict in get_args(Verdict))
    said = f"{yes} are reproduced, {no} are contradicted, and {unknown} are out of reach"
    return {
        "verdicts": f"\nOf {len(judged)} claims, {said}.\n\n",
        "claims": claim_tables(judged),
        "methods": method_list(judged),
        **trap.compute_tables(),
    }


def main(arguments: Sequence[str]) -> None:
    """Print claims or tables, or replace the tables in ``CLAIMS.md``."""
    if names := [each for each in arguments if each != "--write"]:
        known = {claim.name: claim for claim in CLAIMS}
        if unknown := set(names) - known.keys():
            sys.exit(f"unknown claim {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
        judged = [judge(known[name]) for name in names]
        print(claim_tables(judged) + method_list(judged), end="")
        return
    made = compute_tables()
    if "--write" in arguments:
        text = PAGE.read_text(encoding="utf-8")
        new = _BLOCK.sub(lambda m: f"<!-- {m[1]} -->\n{made[m[1]]}<!-- end -->", text)
        PAGE.write_text(new, encoding="utf-8")
    else:
        print("\n".join(made.values()), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
