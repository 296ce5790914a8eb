"""Fixtures: small recordings in which an agent uses early results late, and a figure for each test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest

matplotlib.use("Agg")

from ctxlab.formats import load, write
from ctxlab.messages.types import Message, Recording, ToolCall


def recorded(name: str, reads: int = 12) -> Recording:
    """Return a recording of an agent that, after many reads, opens files named in the first one."""
    messages = [
        Message("system", "You mend code."),
        Message("user", f"Mend the {name} importer."),
    ]
    for i in range(reads):
        call = ToolCall(f"c{i}", "read_file", f'{{"path": "src/{name}/part_{i}.py"}}')
        filler = " ".join(f"word{i}of{k}" for k in range(150))
        text = f"see lib/{name}/origin_{i}.py and build_{name}_{i}_index\n{filler}"
        messages += [
            Message("assistant", tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    for i in range(4):
        call = ToolCall(f"d{i}", "read_file", f'{{"path": "lib/{name}/origin_{i}.py"}}')
        messages += [
            Message("assistant", tool_calls=(call,)),
            Message("tool", "x = 1", tool_call_id=call.id),
        ]
    messages.append(Message("assistant", "Done."))
    return Recording(name, tuple(messages))


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    """Return five recordings that were loaded from a file."""
    path = tmp_path_factory.mktemp("recordings") / "made.jsonl"
    names = ("alpha", "beta", "gamma", "delta", "omega")
    write([recorded(name, 9 + i) for i, name in enumerate(names)], path)
    return list(load([path]))


@pytest.fixture(autouse=True)
def _no_figure_is_left_open() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
