"""The desktop server on a real X server, through the official client."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import psutil
import pytest
from desktops import COMMAND, EVERYTHING, call, calls, listening, over_stdio, refusal
from mcp.types import CallToolResult
from navigating import HELLO, TOKEN, over_http, run
from navigating import over_stdio as over_stdio_of_sessions
from PIL import Image
from screens import key_map, needs_x, terminal, until, window, x_server

from ctxlab.serve.desktop.server import MAX_BODY_BYTES
from ctxlab.serve.desktop.tools import TOOL_NAMES
from ctxlab.serve.mcp.dispatch import TOOL_NAMES as SESSION_TOOL_NAMES

pytestmark = [pytest.mark.desktop, needs_x]


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """Run an X server with a screen of 1280 × 800 pixels."""
    with x_server() as name:
        yield name


def image_of(answer: CallToolResult) -> Image.Image:
    assert not answer.is_error, answer.content
    picture, _ = answer.content
    assert picture.type == "image"
    assert picture.mime_type == "image/png"
    return Image.open(io.BytesIO(base64.b64decode(picture.data)))


# --- tools and permissions ---------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_six_tools_are_listed_beside_those_of_the_session_server(
    transport: str, display: str, tmp_path: Path
) -> None:
    """Seed 003, desktop: six tools, none of which the session server has."""

    async def names() -> list[set[str]]:
        found = []
        servers: list[Any] = [over_stdio_of_sessions(tmp_path)]
        if transport == "stdio":
            servers.append(over_stdio(display, tmp_path))
        else:
            servers.append(over_http(address))
        for each in servers:
            async with each as client:
                found.append({tool.name for tool in (await client.list_tools()).tools})
        return found

    with listening(display, tmp_path) as address:
        sessions, desktop = run(names)
    assert desktop == set(TOOL_NAMES)
    assert sessions == set(SESSION_TOOL_NAMES)
    assert len(desktop) == 6
    assert not desktop & sessions


def test_without_permission_nothing_acts_and_the_listing_says_so(
    display: str, tmp_path: Path
) -> None:
    """Seed 003, desktop: a server shows the screen unless more is allowed."""
    acting: list[tuple[str, dict[str, Any]]] = [
        ("type_text", {"text": "x"}),
        ("mouse_click", {"x": 300, "y": 150}),
        ("get_clipboard", {}),
        ("set_clipboard", {"text": "x"}),
    ]

    async def listed() -> dict[str, str]:
        async with over_stdio(display, tmp_path) as client:
            return {t.name: t.description or "" for t in (await client.list_tools()).tools}

    with window(display) as seen:
        seen.focus()
        answers = calls(display, tmp_path, *acting, options=())
        assert not seen.clicks()
        assert not [each for each in seen.events if each[0].startswith("Key")]
    for name, answer in zip(acting, answers, strict=True):
        assert "not allowed on this server" in refusal(answer), name
    descriptions = run(listed)
    assert {name for name, said in descriptions.items() if "Not allowed" in said} == {
        name for name, _ in acting
    }
    answer = call(display, tmp_path, "save_screenshot", options=("--read-only",), path="a.png")
    assert "--read-only" in refusal(answer)
    assert not list(tmp_path.glob("*.png"))


# --- screenshots -------------------------------------------------------------------------------


def test_a_screenshot_has_the_pixels_of_the_screen(display: str, tmp_path: Path) -> None:
    """Seed 003, take_screenshot: the screen as an image, scaled down if asked."""
    with window(display, place=(200, 100, 300, 200), color=0x3366CC):
        whole, small = calls(
            display, tmp_path, ("take_screenshot", {}), ("take_screenshot", {"max_side": 640})
        )
    image = image_of(whole).convert("RGB")
    assert image.size == (1280, 800)
    assert whole.structured_content == {"width": 1280, "height": 800, "scale": 1.0}
    inside = {(200, 100), (499, 100), (200, 299), (499, 299), (350, 200)}
    outside = {(199, 100), (500, 100), (200, 99), (200, 300)}
    assert {image.getpixel(place) for place in inside} == {(0x33, 0x66, 0xCC)}
    assert (0x33, 0x66, 0xCC) not in {image.getpixel(place) for place in outside}
    assert image_of(small).size == (640, 400)
    assert small.structured_content == {"width": 640, "height": 400, "scale": 0.5}


def test_a_saved_screenshot_has_the_same_pixels_and_is_whole_or_not_there(
    display: str, tmp_path: Path
) -> None:
    """Seed 003, save_screenshot: a file in the folder of the server, and nowhere else."""
    folder, outside = tmp_path / "shots", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    (folder / "link.png").symlink_to(outside / "c.png")
    wrong = ["../a.png", str(outside / "a.png"), "out/a.png", "link.png", "a.txt", ".ctxlab/a.png"]
    with window(display):
        taken, saved, *refused = calls(
            display,
            folder,
            ("take_screenshot", {}),
            ("save_screenshot", {"path": "new/a.png"}),
            *(("save_screenshot", {"path": path}) for path in [*wrong, "new/a.png"]),
        )
    data = saved.structured_content or {}
    file = folder / "new" / "a.png"
    assert data == {"path": "new/a.png", "width": 1280, "height": 800, "bytes": file.stat().st_size}
    assert Image.open(file).convert("RGB").tobytes() == image_of(taken).convert("RGB").tobytes()
    for answer in refused:
        refusal(answer)
    assert not list(outside.iterdir())
    assert [each.name for each in folder.rglob("*.png") if not each.is_symlink()] == ["a.png"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_told_and_leaves_no_file(display: str, tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow mounting a file system")
    try:
        (tmp_path / "filler").write_bytes(b"x" * 4096)
        answer = call(display, tmp_path, "save_screenshot", path="a.png")
        assert "space" in refusal(answer)
        assert not (tmp_path / "a.png").exists()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# --- keyboard ----------------------------------------------------------------------------------

ODD = "Aé€😀\n\t{}"


def test_typed_text_arrives_exactly_and_the_map_of_keys_is_as_before(
    display: str, tmp_path: Path
) -> None:
    """Seed 003, type_text: any text arrives in the focused window."""
    text = ODD + "Привет, мир! 你好, 世界! ąćęłńóśźż ∀x∃y: x≠y \\ ~ ^ ` ' \" | @ [ ] # %" + "end\n"
    before = key_map(display)
    with terminal(display, tmp_path) as typed:
        answer = call(display, tmp_path, "type_text", text=text)
        assert answer.structured_content == {"characters": len(text)}
        until(lambda: len(typed()) >= len(text), 5)
        assert typed() == text.replace("\n", "\r")
    assert key_map(display) == before


def test_caps_lock_does_not_change_what_is_typed(display: str, tmp_path: Path) -> None:
    def toggle() -> None:
        subprocess.run(
            ["xdotool", "key", "Caps_Lock"], env={"DISPLAY": display, **path}, check=True
        )

    path = {"PATH": os.environ["PATH"]}
    with terminal(display, tmp_path) as typed:
        toggle()
        try:
            call(display, tmp_path, "type_text", text="Hello wORLD é")
            until(lambda: len(typed()) >= 13, 5)
            assert typed() == "Hello wORLD é"
        finally:
            toggle()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_map_of_keys_is_as_before_if_the_server_ends_in_mid_text(
    end: signal.Signals, display: str, tmp_path: Path
) -> None:
    before = key_map(display)
    request = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "type_text", "arguments": {"text": "😀a" * 4000}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    command = [*COMMAND, "--display", display, "--folder", str(tmp_path), *EVERYTHING]
    with (
        terminal(display, tmp_path) as typed,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdin
        assert server.stdout
        for each in (HELLO, ready, request):
            server.stdin.write(json.dumps(each) + "\n")
            server.stdin.flush()
            if "id" in each and each["id"] == 1:
                server.stdout.readline()
        until(lambda: len(typed()) > 20)
        assert key_map(display) != before
        server.send_signal(end)
        assert server.wait(10) == 130
        assert len(typed()) < 8000
    assert key_map(display) == before


def test_a_text_that_cannot_be_typed_is_refused(display: str, tmp_path: Path) -> None:
    long, control = calls(
        display,
        tmp_path,
        ("type_text", {"text": "x" * 10_001}),
        ("type_text", {"text": "rm -rf\x1b[A"}),
    )
    assert "10000 characters" in refusal(long)
    assert "U+001B" in refusal(control)


# --- mouse and windows -------------------------------------------------------------------------


def test_clicks_arrive_at_exactly_the_position(display: str, tmp_path: Path) -> None:
    """Seed 003, mouse_click: a press and a release of the button at the position."""
    with window(display, place=(200, 100, 300, 200)) as seen:
        answers = calls(
            display,
            tmp_path,
            ("mouse_click", {"x": 200, "y": 100}),
            ("mouse_click", {"x": 499, "y": 299, "button": "middle"}),
            ("mouse_click", {"x": 300, "y": 150, "button": "right"}),
            ("mouse_click", {"x": 301, "y": 151, "count": 2}),
        )
        until(lambda: len(seen.clicks()) >= 10, 5)
        expected = [(1, 200, 100), (2, 499, 299), (3, 300, 150), (1, 301, 151), (1, 301, 151)]
        assert seen.clicks() == [
            (f"Button{act}", *each) for each in expected for act in ("Press", "Release")
        ]
        times = [each[4] for each in seen.events if each[0] == "ButtonPress"]
        assert times[-1] - times[-2] < 250  # milliseconds: a double click
    assert answers[0].structured_content == {"x": 200, "y": 100}


def test_a_click_outside_the_screen_or_on_another_window_does_nothing(
    display: str, tmp_path: Path
) -> None:
    with (
        window(display, "Mine", (0, 0, 100, 100)) as mine,
        window(display, "Bank", (200, 0, 100, 100)) as other,
    ):
        positions = [(1280, 10), (10, 800), (-1, 10), (250, 50), (600, 600), (50, 50)]
        *refused, allowed = calls(
            display,
            tmp_path,
            *(("mouse_click", {"x": x, "y": y}) for x, y in positions),
            options=(*EVERYTHING, "--window", "m*e"),
        )
        until(lambda: len(mine.clicks()) >= 2, 5)
        assert not [each for each in other.events if each[0] != "Expose"]
    messages = [refusal(each) for each in refused]
    assert all("expected a position on the screen of 1280 × 800" in each for each in messages[:3])
    assert "'Bank' is not allowed" in messages[3]
    assert "no window with a title" in messages[4]
    assert not allowed.is_error


def test_typing_stops_at_the_moment_another_window_gets_the_keyboard(
    display: str, tmp_path: Path
) -> None:
    async def type_and_switch() -> CallToolResult:
        async with (
            over_stdio(display, tmp_path, *EVERYTHING, "--window", "Notes") as client,
            anyio.create_task_group() as group,
        ):
            answers: list[CallToolResult] = []

            async def work() -> None:
                answers.append(await client.call_tool("type_text", {"text": "x" * 5000}))

            group.start_soon(work)
            while len(typed()) < 20:
                await anyio.sleep(0.01)
            other.focus()
        return answers[0]

    with terminal(display, tmp_path) as typed, window(display, "Bank", (900, 600, 50, 50)) as other:
        answer = run(type_and_switch)
        assert not [each for each in other.events if each[0].startswith("Key")]
        assert len(typed()) < 5000
    assert "'Bank' is not allowed" in refusal(answer)


# --- clipboard ---------------------------------------------------------------------------------


def xclip(display: str, *arguments: str, given: bytes = b"") -> bytes:
    command = ["xclip", "-display", display, "-selection", "clipboard", *arguments]
    out = subprocess.DEVNULL if "-in" in arguments else subprocess.PIPE
    done = subprocess.run(command, input=given, stdout=out, check=True, timeout=20)
    return done.stdout or b""


def test_the_clipboard_goes_both_ways_with_a_megabyte(display: str, tmp_path: Path) -> None:
    """Seed 003, get_clipboard: the text of the clipboard, also a large one; and set_clipboard."""
    large = ("aä€😀\n" * 100_000)[:90_000]
    large += "x" * (1_048_576 - len(large.encode()))

    async def both_ways() -> list[CallToolResult]:
        async with over_stdio(display, tmp_path, *EVERYTHING) as client:
            answers = [await client.call_tool("set_clipboard", {"text": large})]
            assert xclip(display, "-out").decode() == large
            assert xclip(display, "-out").decode() == large  # it stays
            xclip(display, "-in", given=large[::-1].encode())
            answers.append(await client.call_tool("get_clipboard", {}))
            answers.append(await client.call_tool("set_clipboard", {"text": large + "x"}))
            xclip(display, "-in", "-target", "image/png", given=b"\x89PNG")
            answers.append(await client.call_tool("get_clipboard", {}))
            return answers

    written, read, too_large, picture = run(both_ways)
    assert written.structured_content == {"characters": len(large)}
    assert (read.structured_content or {})["text"] == large[::-1]
    assert "at most 1,048,576 bytes" in refusal(too_large) or "1048576" in refusal(too_large)
    assert picture.structured_content == {"text": None}
    assert picture.content[0].type == "text"
    assert picture.content[0].text == "There is no text on the clipboard."


# --- faults ------------------------------------------------------------------------------------


def started(*options: str, **env: str) -> tuple[int, str, float]:
    """Start a server that cannot serve; return its exit code, its message and the seconds it took."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    kept = {key: value for key, value in os.environ.items() if key not in names}
    start = time.monotonic()
    done = subprocess.run(
        [*COMMAND, *options], env=kept | env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.returncode, done.stderr, time.monotonic() - start


def test_no_display_is_a_sentence(tmp_path: Path) -> None:
    code, said, _ = started("--folder", str(tmp_path))
    assert (code, "pass --display" in said) == (2, True)
    code, said, _ = started("--folder", str(tmp_path), "--display", ":987")
    assert (code, "cannot connect to the display :987" in said) == (2, True)


def test_a_display_that_dies_or_hangs_is_a_sentence_and_a_new_one_is_used(tmp_path: Path) -> None:
    async def work() -> list[CallToolResult]:
        async with over_stdio(name, tmp_path, *EVERYTHING) as client:
            shot = ("take_screenshot", {"max_side": 100})
            answers = [await client.call_tool(*shot)]
            server.send_signal(signal.SIGSTOP)
            start = time.monotonic()
            answers.append(await client.call_tool(*shot))
            assert time.monotonic() - start < 6
            server.send_signal(signal.SIGCONT)
            answers.append(await client.call_tool(*shot))
            server.kill()
            server.wait()
            answers.append(await client.call_tool(*shot))
            answers.append(await client.call_tool("set_clipboard", {"text": "x"}))
            return answers

    with x_server() as name:
        (server,) = (each for each in psutil.Process().children() if each.name() == "Xvfb"
                     and name in x_name(each))  # fmt: skip
        before, hung, after, dead, clip = run(work)
    assert not before.is_error
    assert "has not answered for" in refusal(hung)
    assert not after.is_error
    assert "has gone" in refusal(dead)
    assert refusal(clip)


def x_name(server: psutil.Process) -> set[str]:
    """Return the names of displays whose sockets an X server has."""
    paths = (each.laddr for each in server.net_connections("unix") if isinstance(each.laddr, str))
    return {":" + path.rpartition("X")[2] for path in paths if "X11-unix" in path}


def test_a_missing_program_is_named_with_its_package(display: str, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "sh").symlink_to("/bin/sh")

    async def work() -> CallToolResult:
        client = over_stdio(display, tmp_path, *EVERYTHING)
        client.server.env["PATH"] = str(empty)  # type: ignore[union-attr,index]
        async with client:
            return await client.call_tool("get_clipboard", {})

    assert "install the package xclip" in refusal(run(work))


def test_parallel_calls_are_carried_out_in_the_order_of_arrival(
    display: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with (
            over_stdio(display, tmp_path, *EVERYTHING) as client,
            anyio.create_task_group() as group,
        ):
            for letter in letters:
                group.start_soon(client.call_tool, "type_text", {"text": letter * 3})
                await anyio.sleep(0)

    letters = "abcdefghijklmnopqrst"
    with terminal(display, tmp_path) as typed:
        run(work)
        until(lambda: len(typed()) >= 60, 5)
        assert typed() == "".join(letter * 3 for letter in letters)


def test_too_many_calls_are_refused_and_every_call_is_logged_without_texts(
    display: str, tmp_path: Path
) -> None:
    wanted: list[tuple[str, dict[str, Any]]] = [("mouse_click", {"x": 5, "y": 5})] * 31
    *allowed, refused = calls(
        display, tmp_path, ("set_clipboard", {"text": "a password"}), *wanted[:30]
    )
    assert not any(each.is_error for each in allowed)
    assert "more than 30 calls in 10 s" in refusal(refused)
    log = tmp_path / ".ctxlab" / "desktop.jsonl"
    assert log.stat().st_mode & 0o077 == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) == 31
    assert rows[0]["arguments"] == {"text": "10 characters"}
    assert "password" not in log.read_text()
    assert rows[1] | {"time": 0} == {
        "time": 0,
        "tool": "mouse_click",
        "arguments": {"x": 5, "y": 5},
        "window": None,
        "outcome": "ok",
    }
    assert "more than 30" in rows[-1]["outcome"]


def test_http_refuses_what_the_other_servers_refuse(display: str, tmp_path: Path) -> None:
    right = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    with listening(display, tmp_path) as address:

        def status(headers: dict[str, str], content: bytes = json.dumps(HELLO).encode()) -> int:
            given = {"Content-Type": "application/json", **headers}
            return httpx.post(address, headers=given, content=content, timeout=30).status_code

        assert status(right) == 200
        assert status({**right, "Authorization": "Bearer wrong"}) == 401
        assert status({**right, "Authorization": ""}) == 401
        assert status({**right, "Origin": "https://example.com"}) == 403
        assert status({**right, "Host": "evil.example", "Origin": "https://example.com"}) == 403
        assert status(right, b" " * (MAX_BODY_BYTES + 1)) == 413


def test_junk_leaves_the_server_alive_and_standard_output_has_only_the_protocol(
    display: str, tmp_path: Path
) -> None:
    command = [*COMMAND, "--display", display, "--folder", str(tmp_path), *EVERYTHING]
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
    lines = [
        b"junk", b"\xff\xfe\x00", b"[]", b"{}", b'{"jsonrpc": "2.0"}', b"x" * 100_000,
        *(json.dumps(each).encode() for each in (
            HELLO,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {**call, "id": 3, "params": {"name": "no_such_tool"}},
            {**call, "id": 4, "params": {"name": "mouse_click", "arguments": {"x": "a", "y": 1e99}}},
            {**call, "params": {"name": "take_screenshot", "arguments": {"max_side": 16}}},
        )),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        for line in lines:
            server.stdin.write(line + b"\n")
            server.stdin.flush()
        answers = []
        while not answers or answers[-1].get("id") != 9:
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        assert server.wait(10) == 0
    assert all(each["jsonrpc"] == "2.0" for each in answers)
    assert answers[-1]["result"]["structuredContent"] == {
        "width": 16,
        "height": 10,
        "scale": 0.0125,
    }


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_no_child_survives_the_server(end: signal.Signals, display: str, tmp_path: Path) -> None:
    async def work(address: str) -> None:
        async with over_http(address) as client:
            await client.call_tool("set_clipboard", {"text": "mine"})

    env = {**os.environ, "CTXLAB_TOKEN": TOKEN}
    command = [*COMMAND, "--http", "--port", "0", "--display", display, "--folder", str(tmp_path)]
    with subprocess.Popen(
        [*command, *EVERYTHING], stderr=subprocess.PIPE, text=True, env=env
    ) as server:
        assert server.stderr
        line = server.stderr.readline()
        run(lambda: work(line[line.index("http://") :].strip()))
        children = psutil.Process(server.pid).children(recursive=True)
        assert children  # xclip keeps the text
        assert xclip(display, "-out") == b"mine"
        server.send_signal(end)
        server.wait(10)
    until(lambda: not any(each.is_running() for each in children), 10)
