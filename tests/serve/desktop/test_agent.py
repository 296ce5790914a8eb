"""The agent of ``ctxlab chat`` uses a desktop through the MCP client, in a small context window."""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from desktops import COMMAND
from running import PROGRAM
from screens import needs_x, window, x_server
from talking import Call, talking

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.tokens.counter import get_counter
from ctxlab.tokens.images import is_image_part

pytestmark = [pytest.mark.desktop, needs_x]

SHOTS, KEPT = 12, 2
LIMIT, RESERVE = 8_000, 500
MODEL = "openai/gpt-4o"
STRATEGY = f"recent_images(keep={KEPT})"


def take_screenshots(call: Call) -> Message | str:
    """Take a screenshot at each request, and answer after the last one."""
    taken = sum(message["role"] == "tool" for message in call.body["messages"])
    if taken == SHOTS:
        return "The square is blue."
    shot = ToolCall(f"c{taken}", "ctxlab-desktop__take_screenshot", '{"max_side": 1000}')
    return Message("assistant", None, tool_calls=(shot,))


def count_images(messages: list[dict[str, Any]]) -> int:
    contents = [m["content"] for m in messages if isinstance(m.get("content"), list)]
    return sum(is_image_part(part) for content in contents for part in content)


def test_twelve_screenshots_fit_a_small_window_and_the_evaluation_shows_the_saving(
    tmp_path: Path,
) -> None:
    with x_server() as display, window(display), talking(take_screenshots) as provider:
        env = {**os.environ, "OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": provider.address}
        env["OPENAI_BASE_URL"] = provider.address
        command = [*PROGRAM, "chat", "--mcp", shlex.join([*COMMAND, "--display", display])]
        command += ["--model", MODEL, "--strategy", STRATEGY, "--max-iterations", "20"]
        command += ["--limit", str(LIMIT), "--reserve", str(RESERVE)]
        said = run(command, tmp_path, "Look twelve times.", env)
    assert said == "The square is blue.\n"

    counter = get_counter(MODEL)
    bodies = [call.body for call in provider.calls]
    assert len(bodies) == SHOTS + 1
    assert [count_images(body["messages"]) for body in bodies[-3:]] == [KEPT] * 3
    for body in bodies:
        messages = [message_from_dict(each) for each in body["messages"]]
        assert counter.count_request(messages, body["tools"]) <= LIMIT - RESERVE

    with closing(SqliteStore(tmp_path)) as store:
        (session,) = store.sessions()
        stored = [message.to_dict() for message in store.read_messages(session.id)]
    assert count_images(stored) == SHOTS
    whole = [message_from_dict(each) for each in stored]
    assert counter.count_request(whole, bodies[0]["tools"]) > LIMIT

    command = [*PROGRAM, "eval", ".ctxlab/sessions.db", "-s", "full", "-s", STRATEGY]
    table = run([*command, "-l", "64k", "--csv"], tmp_path)
    full, thinned = csv.DictReader(table.splitlines())
    assert float(full["tokens_peak"]) > LIMIT
    assert float(thinned["tokens_peak"]) <= LIMIT - RESERVE
    assert float(thinned["tokens_total"]) < 0.6 * float(full["tokens_total"])


def run(command: list[str], folder: Path, text: str = "", env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
