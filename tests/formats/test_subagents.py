"""Tests of a rule for the subagents of all products, with real recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxlab.formats import load
from ctxlab.messages.types import Recording

# Product → number of real subagents, of those whose parent was read too, and of those with a call.
PRODUCTS = {
    "claude-code": (91, 91, 91),
    "codex": (9, 2, 0),  # Codex itself started them all
    "copilot-cli": (5, 5, 5),
    "opencode": (1, 0, 0),
}


@pytest.mark.recordings
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_subagent_is_in_the_cluster_of_its_parent_which_made_its_call(
    recorded: Path, product: str
) -> None:
    subagents = with_parent = with_call = 0
    folders = (recorded.parent / name for name in ("data", "corpus"))
    for folder in (path for each in folders for path in sorted(each.glob(f"{product}-*"))):
        found = list(load(folder, on_error="skip"))
        by_id = {name: each for each in found for name in (each.id, each.meta.get("session"))}
        for agent in (each for each in found if "parent" in each.meta):
            subagents += 1
            if parent := by_id.get(agent.meta["parent"]):
                with_parent += 1
                assert agent.cluster == parent.cluster
                assert agent.meta.get("call_id", "") in {"", *list_calls(parent)}
                with_call += "call_id" in agent.meta
    assert (subagents, with_parent, with_call) == PRODUCTS[product]


def list_calls(recording: Recording) -> set[str]:
    return {call.id for message in recording.messages for call in message.tool_calls}
