"""Write ``bills.md``: the predicted cost of recorded Claude Code sessions beside their bills.

Run it with ``python docs/bills.py``. It reads the sessions in the folder ``CTXLAB_DATA``, by default
``../shared/data``, and those in the folder ``corpus`` beside it. Without them it writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

import ctxlab
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.messages.types import Recording
from ctxlab.tokens.billing import billed_input_tokens
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import find_model

PAGE = Path(__file__).with_name("bills.md")
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("`--cache-ttl recorded --fixed recorded` (default)", {}),
    ("`--cache-ttl 1h --fixed recorded`", {"cache_ttl": "1h"}),
    ("`--cache-ttl 5m --fixed recorded`", {"cache_ttl": "5m"}),
    ("`--cache-ttl recorded --fixed 0`", {"fixed": 0}),
    ("`--cache-ttl 5m --fixed 0`", {"cache_ttl": "5m", "fixed": 0}),
)
KINDS = ("cached", "cache_write_5m", "cache_write_1h", "plain_input")
NO_LIMIT = 10**7
WORST = 12


def data_folder() -> Path:
    """Return the folder of the recordings."""
    return Path(os.environ.get("CTXLAB_DATA") or PAGE.parents[1] / ".." / "shared" / "data")


def load_sessions(data: Path) -> list[Recording]:
    """Load the billed sessions and subagents of Claude Code; a session in both folders is used once."""
    folders = sorted([*data.glob("claude-code-*"), *(data / ".." / "corpus").glob("claude-code-*")])
    found: dict[tuple[str, str], Recording] = {}
    for folder in folders:
        for recording in ctxlab.load(folder, on_error="skip"):
            if len(billed_input_tokens(recording)) > 1:
                key = (folder.name, recording.id.replace(".full", ""))
                found.setdefault(key, recording)
    return list(found.values())


def billed_ledger(recording: Recording) -> dict[str, float]:
    """Sum the billed tokens of a recording by kind, and their cost at the prices of its model."""
    prices = find_model(str(recording.model)).prices
    sums: dict[str, float] = dict.fromkeys((*KINDS, "cost_usd"), 0)
    for position in billed_input_tokens(recording):
        usage = recording.messages[position].usage
        assert usage is not None
        short = usage.cache_write - usage.cache_write_1h
        tokens = (usage.cache_read, short, usage.cache_write_1h, usage.input)
        for kind, number in zip(KINDS, tokens, strict=True):
            sums[kind] += number
        # The predicted cost excludes output tokens, too.
        sums["cost_usd"] += prices.cost(msgspec.structs.replace(usage, output=0))
    return sums


def compare_with_bills(recordings: Sequence[Recording], **settings: Any) -> pd.DataFrame:
    """Replay the recorded compactions, and compare the ledger of each recording with its bills.

    Requests without a bill are left out.
    """
    results = ctxlab.evaluate(
        recordings, "recorded", NO_LIMIT, metrics=["usage", "cost"], progress=False, **settings
    )
    names = [entry["recording"] for entry in results.recordings]
    requests = dict(iter(results.requests.groupby("recording", observed=True)))
    rows = []
    for name, recording in zip(names, recordings, strict=True):
        billed = billed_input_tokens(recording)
        is_billed = [position in billed for position in recording.request_positions]
        predicted = requests[name].loc[is_billed, [*KINDS, "cost_usd", "cold"]].sum()
        bills = {f"billed_{key}": value for key, value in billed_ledger(recording).items()}
        rows.append({"session": recording.id.replace(".full", ""), **predicted, **bills})
    frame = pd.DataFrame(rows)
    frame["requests"] = [len(billed_input_tokens(each)) for each in recordings]
    frame["model"] = [str(each.model) for each in recordings]
    frame["subagent"] = ["parent" in each.meta for each in recordings]
    frame["error"] = frame["cost_usd"] / frame["billed_cost_usd"] - 1
    for prefix in ("", "billed_"):
        total = frame[[prefix + kind for kind in KINDS]].sum(axis=1)
        frame[f"{prefix}share"] = frame[f"{prefix}cached"] / total
    frame["share_error"] = frame["share"] - frame["billed_share"]
    return frame


def summary_row(label: str, frame: pd.DataFrame) -> list[str]:
    """Return the row of a summary table."""
    whole = frame["cost_usd"].sum() / frame["billed_cost_usd"].sum()
    return [
        label,
        f"{len(frame):,}",
        f"{frame['error'].abs().median():.1%}".replace("%", " %"),
        f"{(frame['error'].abs() < 0.1).mean():.0%}".replace("%", " %"),
        f"{whole:.0%}".replace("%", " %"),
        f"{frame['share_error'].abs().median():.4f}",
        f"{(frame['share_error'].abs() < 0.03).mean():.0%}".replace("%", " %"),
    ]


SUMMARY_HEADS = (
    *("", "recordings", "median error", "within 10 %", "all predicted / all billed"),
    *("median error of the cached share", "within .03"),
)


def explain(recording: Recording) -> str:
    """Return the probable causes of a difference between predicted and billed tokens."""
    prepared = PreparedRecording(recording, ModelChoice(None).counter_for(recording))
    said = []
    if "starts_after" in recording.meta:
        said.append(
            "the log begins in the middle of a session, so the fixed part contains its start, which "
            "later compactions removed"
        )
    bills = prepared.bills
    assert bills is not None
    changes = [0, 0]
    for (_, tokens), cause in zip(bills.unsaid, bills.causes, strict=True):
        changes[cause == "added"] += tokens
    if changes[0]:
        said.append(
            f"the product removed {thousands(-changes[0])} tokens of its context without an entry in "
            "the log"
        )
    if changes[1]:
        said.append(f"{thousands(changes[1])} tokens were added that are not in the log")
    hidden = 0
    for position in billed_input_tokens(recording):
        message = recording.messages[position]
        counted = prepared.history.entries[position].tokens
        hidden += message.usage.output if message.usage else 0
        hidden -= counted + prepared.counter.count_reasoning(message)
    if hidden > 5000:
        said.append(
            f"the replies were billed with {thousands(hidden)} more output tokens than the log "
            "contains: hidden reasoning, which is sent back and paid again"
        )
    return "; ".join(said) or "the token counts of this session are off; no single cause is visible"


def thousands(tokens: float) -> str:
    """Format a number of tokens in thousands."""
    return f"{tokens / 1000:,.0f}k"


def session_table(frame: pd.DataFrame) -> str:
    """Return the table of all sessions, largest bill first."""
    heads = ["session", "model", "requests", "predicted $", "billed $", "error"]
    heads += ["reads", "writes 5m", "writes 1h", "cached share"]
    rows = []
    for row in frame.sort_values("billed_cost_usd", ascending=False).to_dict("records"):
        pairs = [
            f"{thousands(row[kind])} / {thousands(row[f'billed_{kind}'])}" for kind in KINDS[:3]
        ]
        rows.append(
            [
                f"`{row['session']}`",
                row["model"],
                str(row["requests"]),
                f"{row['cost_usd']:.2f}",
                f"{row['billed_cost_usd']:.2f}",
                f"{row['error']:+.1%}".replace("%", " %"),
                *(pair if pair != "0k / 0k" else "–" for pair in pairs),
                f"{row['share']:.3f} / {row['billed_share']:.3f}",
            ]
        )
    return markdown_table(heads, rows)


def bills_page(recordings: Sequence[Recording]) -> str:
    """Return the text of the page."""
    frames = [(label, compare_with_bills(recordings, **each)) for label, each in SETTINGS]
    best = frames[0][1]
    main = best[~best["subagent"]]
    by_setting = [summary_row(label, frame[~frame["subagent"]]) for label, frame in frames]
    paid_long = main["billed_cache_write_1h"] > main["billed_cache_write_5m"]
    by_rules = frames[1][1].loc[main.index].where(paid_long, frames[2][1].loc[main.index])
    by_setting.insert(3, summary_row("`1h` or `5m`, whichever the session paid for", by_rules))
    groups = [("subagents", best[best["subagent"]])]
    groups += [(name, rows) for name, rows in main.groupby("model") if len(rows) > 1]
    worst = main.loc[main["error"].abs().sort_values(ascending=False).index[:WORST]]
    causes = [
        [f"`{row.session}`", f"{row.error:+.0%}".replace("%", " %"), explain(recordings[index])]
        for index, row in zip(worst.index, worst.itertuples(), strict=True)
    ]
    parts = (
        "<!-- Generated by docs/bills.py; do not edit. -->",
        "# Predicted cost beside the bill",
        INTRO,
        "## Sessions by setting",
        "The same sessions, priced under other assumptions. The last row ignores the lifetime that was "
        "paid and the tokens that no log contains.",
        markdown_table(SUMMARY_HEADS, by_setting),
        "## Default settings by model",
        "Claude Code does not log the hidden reasoning of the newer models in full, so their counts "
        "are too low. The row of the subagents has sessions that the rows of their models contain too. "
        "The corrections of the tokenizer were fitted to sessions of Claude Code and pi, some of which "
        "are on this page, so the page does not test the tokenizer on new sessions.",
        markdown_table(SUMMARY_HEADS, [summary_row(*group) for group in groups]),
        "## Largest errors",
        markdown_table(["session", "error", "probable cause"], causes),
        "## All sessions",
        "Tokens and shares are given as predicted / billed.",
        session_table(main),
    )
    return "\n\n".join(parts) + "\n"


INTRO = """This page compares the cost that ctxlab predicts for the strategy `recorded` with the bills
in the logs of Claude Code. The strategy repeats the recorded compactions, so its requests are those
that the product sent. The billed cost is the sum of the logged token counts, each multiplied by the
published price of its kind (input, cache read, cache write for 5 minutes, cache write for an hour). It
does not include output tokens. It is not an invoice: discounts and subscriptions are not known.

Taken from the record, with the default settings:

- the times of the messages and the model,
- the **fixed part**: the first bills minus the counted tokens (a median over up to ten bills before
  the first compaction or unlogged change); one number per session,
- the **lifetime** that each request paid for its cache writes, 5 minutes or an hour,
- **which requests were cold**: those that read less than half of the previous request although no
  compaction was logged between the two; and the tokens that such a request, or the first one, still
  read, because other conversations had left them in the cache (at most the system prompt and the
  fixed part).

Predicted: the tokens of every request, all reads of warm requests, all writes, and so the cost and
the cached share. No other number of a bill is used. The cached share depends mostly on which requests
were cold, so its small error under the default settings confirms the rule for the prefix and not a
prediction of expiry. The settings `5m` and `1h` predict expiry from the times alone.

The page is written by `python docs/bills.py`. A test checks that the error of the median session is
at most 10 % and that of its cached share at most .03."""


if __name__ == "__main__":
    if sessions := load_sessions(data_folder()):
        PAGE.write_text(bills_page(sessions), encoding="utf-8")
    else:
        print(
            f"nothing written: no billed sessions of Claude Code in {data_folder()}; set CTXLAB_DATA"
        )
