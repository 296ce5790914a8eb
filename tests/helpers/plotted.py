"""Small recordings in which an agent uses early results late, for plots."""

from __future__ import annotations

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
