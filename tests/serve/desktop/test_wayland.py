"""The desktop server on a headless Wayland compositor, through the official client."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from desktops import COMMAND, EVERYTHING, call, calls, over_stdio, refusal
from mcp.types import CallToolResult
from navigating import run
from PIL import Image
from screens import needs_wayland, until, wayland, wayland_pointer

pytestmark = [pytest.mark.desktop, needs_wayland]
GROUND = (0x20, 0x40, 0x60)


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """Run a compositor, set its environment variables, and yield the name of its display."""
    with wayland() as variables, pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        yield variables["WAYLAND_DISPLAY"]


@contextmanager
def terminal(folder: Path, title: str = "Notes") -> Iterator[Path]:
    """Show a terminal that fills the screen; yield the file with the keys and clicks that arrive.

    A click is reported as ``ESC [ < BUTTON ; X ; Y M`` (press) or ``m`` (release), counted from 1.
    """
    file = folder / "typed"
    report = r"printf '\033[?1000h\033[?1016h'"
    command = ["foot", "-o", "pad=0x0", "-T", title]
    command += ["sh", "-c", f"stty raw -echo; {report}; cat > {file}"]
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    shown = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        until(file.exists)
        yield file
    finally:
        shown.kill()
        shown.wait()


def test_a_screenshot_has_the_pixels_of_the_screen(display: str, tmp_path: Path) -> None:
    whole, small, saved, outside = calls(
        display,
        tmp_path,
        ("take_screenshot", {}),
        ("take_screenshot", {"max_side": 640}),
        ("save_screenshot", {"path": "a.png"}),
        ("save_screenshot", {"path": "../a.png"}),
    )
    for answer, size in ((whole, (1280, 800)), (small, (640, 400))):
        picture = answer.content[0]
        assert picture.type == "image"
        image = Image.open(io.BytesIO(base64.b64decode(picture.data))).convert("RGB")
        assert image.size == size
        assert image.getcolors() == [(size[0] * size[1], GROUND)]
    assert (small.structured_content or {})["scale"] == 0.5
    assert not saved.is_error
    assert Image.open(tmp_path / "a.png").convert("RGB").getpixel((7, 7)) == GROUND
    refusal(outside)


def test_typed_text_arrives_exactly_and_only_in_an_allowed_window(
    display: str, tmp_path: Path
) -> None:
    text = "Aé€😀\n\t{}" + "Привет 你好 " * 10
    with terminal(tmp_path) as typed:
        refused = call(
            display, tmp_path, "type_text", (*EVERYTHING, "--window", "Bank"), text="secret"
        )
        answer = call(display, tmp_path, "type_text", (*EVERYTHING, "--window", "Notes"), text=text)
        assert not answer.is_error
        expected = text.replace("\n", "\r").encode()
        until(lambda: len(typed.read_bytes()) >= len(expected), 5)
        assert typed.read_bytes() == expected
    assert "is not allowed" in refusal(refused)


def test_clicks_arrive_at_exactly_the_position_and_only_in_an_allowed_window(
    display: str, tmp_path: Path
) -> None:
    with terminal(tmp_path) as seen, wayland_pointer():
        outside, elsewhere, *clicked = calls(
            display,
            tmp_path,
            ("mouse_click", {"x": 1280, "y": 10}),
            ("mouse_click", {"x": 200, "y": 100}),
            options=(*EVERYTHING, "--window", "Bank"),
        ) + calls(
            display,
            tmp_path,
            ("mouse_click", {"x": 200, "y": 100}),
            ("mouse_click", {"x": 499, "y": 299, "button": "middle"}),
            ("mouse_click", {"x": 300, "y": 150, "button": "right"}),
            ("mouse_click", {"x": 301, "y": 151, "count": 2}),
            options=(*EVERYTHING, "--window", "Notes"),
        )
        assert not any(each.is_error for each in clicked)
        until(lambda: seen.read_bytes().count(b"<") >= 10, 5)
        expected = [(0, 200, 100), (1, 499, 299), (2, 300, 150), (0, 301, 151), (0, 301, 151)]
        assert seen.read_text() == "".join(
            f"\033[<{button};{x + 1};{y + 1}{act}" for button, x, y in expected for act in "Mm"
        )
    assert "expected a position on the screen of 1280 × 800" in refusal(outside)
    assert "'Notes' is not allowed" in refusal(elsewhere)


def test_a_click_without_a_pointer_device_or_outside_the_screen_is_a_sentence(
    display: str, tmp_path: Path
) -> None:
    outside, inside = calls(
        display, tmp_path, ("mouse_click", {"x": 1280, "y": 0}), ("mouse_click", {"x": 1, "y": 1})
    )
    assert "expected a position on the screen of 1280 × 800" in refusal(outside)
    assert "ydotool" in refusal(inside)  # missing, or without access to a device


def test_the_clipboard_goes_both_ways_with_a_megabyte(display: str, tmp_path: Path) -> None:
    large = ("aä€😀\n" * 100_000)[:90_000]
    large += "x" * (1_048_576 - len(large.encode()))

    async def both_ways() -> list[CallToolResult]:
        async with over_stdio(display, tmp_path, *EVERYTHING) as client:
            answers = [await client.call_tool("set_clipboard", {"text": large})]
            pasted = subprocess.run(["wl-paste", "-n"], capture_output=True, check=True, timeout=20)
            assert pasted.stdout.decode() == large
            copied = large[::-1].encode()
            subprocess.run(["wl-copy"], input=copied, check=True, timeout=20)
            answers.append(await client.call_tool("get_clipboard", {}))
            subprocess.run(["wl-copy", "--type", "image/png"], input=b"\x89PNG", check=True)
            answers.append(await client.call_tool("get_clipboard", {}))
            return answers

    written, read, picture = run(both_ways)
    assert written.structured_content == {"characters": len(large)}
    assert (read.structured_content or {})["text"] == large[::-1]
    assert picture.structured_content == {"text": None}


def test_a_missing_display_is_a_sentence(display: str, tmp_path: Path) -> None:
    command = [*COMMAND, "--display", "wayland-99", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no Wayland display wayland-99" in done.stderr


def test_a_compositor_that_hangs_or_dies_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> list[CallToolResult]:
        async with over_stdio(variables["WAYLAND_DISPLAY"], tmp_path, *EVERYTHING) as client:
            shot = ("take_screenshot", {"max_side": 100})
            sway = int(variables["SWAYSOCK"].split(".")[-2])
            os.kill(sway, signal.SIGSTOP)
            start = time.monotonic()
            answers = [await client.call_tool(*shot)]
            assert time.monotonic() - start < 6
            os.kill(sway, signal.SIGCONT)
            answers.append(await client.call_tool(*shot))
            os.kill(sway, signal.SIGKILL)
            answers.append(await client.call_tool(*shot))
            answers.append(await client.call_tool("set_clipboard", {"text": "x"}))
            return answers

    with wayland() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        hung, after, dead, clip = run(work)
    assert "does not answer" in refusal(hung)
    assert not after.is_error
    assert "grim failed on the display" in refusal(dead)
    assert "wl-copy failed on the display" in refusal(clip)


def test_a_missing_program_is_named_with_its_package(display: str, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")

    async def work() -> CallToolResult:
        client = over_stdio(display, tmp_path, *EVERYTHING)
        client.server.env["PATH"] = str(tmp_path)  # type: ignore[union-attr,index]
        async with client:
            return await client.call_tool("get_clipboard", {})

    assert "install the package wl-clipboard" in refusal(run(work))
