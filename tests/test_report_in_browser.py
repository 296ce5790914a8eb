"""Tests of the report in a real browser, opened from disk: sort, filter and click by keyboard only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import a_recording

import ctxlab
from ctxlab.messages.types import Message, Recording, ToolCall

pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
HOSTILE = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>\u202e\u2066"
STRATEGIES = ["full", "sliding_window | panic", "rolling_summary | panic", "excerpt_memory | panic",
              "tool_result_cap(chars=4000) | observation_mask(keep=10) | panic", "nothing",
              "random_drop", "recorded"]  # fmt: skip


def hostile_recording(number: int) -> Recording:
    plain = a_recording(number).messages
    call = ToolCall("evil", f"read{HOSTILE}", '{"path": "javascript:window.ran=1//x.py"}')
    evil = (
        Message("user", f"{HOSTILE} javascript:window.ran=1"),
        Message("assistant", HOSTILE, tool_calls=(call,)),
        Message("tool", HOSTILE, tool_call_id="evil"),
    )
    return Recording(f"{HOSTILE}{number}", (*plain[:2], *evil, *plain[2:]), cluster=f"c{number}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recordings = [hostile_recording(number) for number in range(8)]
    results = ctxlab.evaluate(recordings, STRATEGIES, [2000, 4000], "gpt-4o")
    file = tmp_path_factory.mktemp("report") / "report.html"
    return results.report(file, recordings, with_text=True, title=HOSTILE)


@pytest.fixture(params=["light", "dark"])
def page(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    shown = browser.new_page(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param, offline=True
    )
    errors: list[str] = []
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    shown.on(
        "request", lambda asked: errors.append(asked.url) if "report" not in asked.url else None
    )
    shown.goto(report.as_uri())
    yield shown
    shown.close()
    assert errors == []


def strategies(page: Any) -> list[str]:
    return page.locator("#board tbody tr td.left:nth-child(3)").all_inner_texts()  # type: ignore[no-any-return]


def test_it_fits_the_width_and_runs_nothing_of_a_log(page: Any) -> None:
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]
    wider = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{wider}.length") == 0
    for each in range(page.locator("#maps select").first.locator("option").count()):
        page.locator("#maps select").first.select_option(index=each)
    for button in page.locator("#maps .needs button").all()[:5]:
        button.click()
    assert page.locator("#maps pre").count() == 1
    assert page.evaluate("window.ran") is None
    assert page.locator("img, iframe, a[href^='javascript']").count() == 0


def test_the_table_sorts_filters_and_compares_by_keyboard_only(page: Any) -> None:
    before = strategies(page)
    page.locator("#board input[type=search]").focus()
    page.keyboard.type("excerpt 2,000")
    assert strategies(page) == ["excerpt_memory | panic"]
    page.keyboard.press("Escape")
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    assert strategies(page) == before
    page.locator("#board th button", has_text="cost").focus()
    page.keyboard.press("Enter")
    heading = page.locator("#board th", has_text="cost")
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    for _ in range(2):
        page.locator("#board tbody input:not(:checked)").first.focus()
        page.keyboard.press("Space")
    said = page.locator("#board .note").inner_text()
    assert "of the far needs" in said or "different limits" in said


def test_a_point_leads_to_the_map_and_a_mark_to_the_message_that_held_the_need(page: Any) -> None:
    point = page.get_by_role("button", name="sliding_window | panic within 2,000 tokens").first
    point.focus()
    assert "held far" in page.locator("#frontier .note").inner_text()
    page.keyboard.press("Enter")
    chosen = page.locator("#maps select").nth(1)
    assert "sliding_window" in chosen.locator("option:checked").inner_text()
    assert "false" not in page.locator("#maps").inner_text()
    page.get_by_role("button", name="random_drop within 2,000 tokens").first.focus()
    page.keyboard.press("Enter")
    assert "no map of random_drop" in page.locator("#maps").inner_text()
    point.focus()
    page.keyboard.press("Enter")
    slider = page.get_by_role("slider", name="request")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#maps h3").first.inner_text() == "Request 0"
    page.keyboard.press("ArrowRight")
    assert page.locator("#maps h3").first.inner_text() == "Request 1"
    page.locator("#maps button.need").last.click()
    assert page.locator("#maps pre mark").count() >= 1


def test_each_colour_of_text_has_enough_contrast(page: Any) -> None:
    found = page.evaluate(
        """() => {
          const number = (text) => text.match(/[\\d.]+/g).map(Number);
          const light = (c) => {
            const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const ground = light(number(getComputedStyle(document.body).backgroundColor));
          const low = [];
          for (const each of document.querySelectorAll("p, td, th, h1, h2, li, .link, .mark")) {
            const text = light(number(getComputedStyle(each).color));
            const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
            if (ratio < 4.5) low.push([each.className, ratio]);
          }
          return low;
        }"""
    )
    assert found == []
