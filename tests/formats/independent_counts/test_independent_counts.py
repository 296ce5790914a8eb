"""Tests that the readers agree with counts that were made without the code of ctxlab."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from ctxlab.formats import load
from ctxlab.messages.types import Recording

# Name of a script in this folder → patterns of its files in the folder of all real recordings.
FILES = {
    "claude_code": ("data/claude-code-*/*.jsonl", "corpus/claude-code-*/*.jsonl.zst"),
    "codex": ("data/codex-*/*.jsonl", "corpus/codex-*/*.jsonl.zst"),
    "copilot_cli": ("corpus/copilot-cli-*/*.jsonl.zst",),
    "mini_swe_agent": ("data/mini-swe-agent/*.traj.json", "corpus/mini-swe-agent/*.traj.json.zst"),
    "opencode": ("corpus/opencode-*/*.json.zst",),
    "pi": ("data/pi-*/*.jsonl", "corpus/pi-*/*.jsonl.zst"),
    "others": (
        *("data/gemini-cli-*/*.json", "data/inspect-ai/*.*", "data/locomo/*.json"),
        *("data/longmemeval/*.json", "data/openhands/*.jsonl"),
        *("data/openhands/llm_completions/*/*.json", "data/swe-agent/*.traj"),
        *("data/tau-bench/*.json", "data/tau2-bench/*.json"),
    ),
}
NOT_RECORDINGS = (".md", ".tsv", ".txt")


def list_files(folder: Path, script: str) -> list[Path]:
    found = (path for pattern in FILES[script] for path in sorted(folder.glob(pattern)))
    return [path for path in found if path.suffix not in NOT_RECORDINGS]


@pytest.mark.recordings
def test_every_file_is_counted_by_one_script(recorded: Path) -> None:
    folder = recorded.parent
    found = [path for name in ("data", "corpus") for path in folder.glob(f"{name}/**/*.*")]
    files = [path for path in found if path.is_file() and path.suffix not in NOT_RECORDINGS]
    counted = [path for script in FILES for path in list_files(folder, script)]
    assert sorted(counted) == sorted(files)


@pytest.mark.recordings
@pytest.mark.parametrize("script", FILES)
def test_a_reader_agrees_with_an_independent_count(recorded: Path, script: str) -> None:
    count_file = import_module(script).count_file
    files = list_files(recorded.parent, script)
    if not files:
        pytest.skip(f"no recordings of {script} beside the others")
    differing = {}
    for path in files:
        read, expected = count_recordings(list(load(path))), count_file(path)
        if read != expected:
            pairs = {key: (read[key], expected[key]) for key in read}
            differing[path.name] = {key: pair for key, pair in pairs.items() if len({*pair}) > 1}
    assert differing == {}


def count_recordings(recordings: list[Recording]) -> dict[str, int]:
    messages = [message for recording in recordings for message in recording.messages]
    roles = Counter(message.role for message in messages)
    bills = [message.usage for message in messages if message.usage]
    return {
        "system": roles["system"],
        "user": roles["user"],
        "assistant": roles["assistant"],
        "tool": roles["tool"],
        "calls": sum(len(message.tool_calls) for message in messages),
        "usages": len(bills),
        "billed": sum(usage.total_input for usage in bills),
        "cache_read": sum(usage.cache_read for usage in bills),
        "cache_write": sum(usage.cache_write for usage in bills),
        "cache_write_1h": sum(usage.cache_write_1h for usage in bills),
        "output": sum(usage.output for usage in bills),
        "compactions": sum(len(recording.compactions) for recording in recordings),
        "recordings": len(recordings),
        "subagents": sum("parent" in recording.meta for recording in recordings),
    }
