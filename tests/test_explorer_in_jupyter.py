"""Tests of the explorer in a real JupyterLab and a real browser.

``CTXLAB_SCREENSHOTS`` names a folder for pictures. ``CTXLAB_DATA`` names a folder with real recordings;
the largest of them is then explored, and the times to open it and to move the slider are printed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_lab import (
    CHROMIUM,
    ROOT,
    jupyter_lab,
    open_notebook,
    run_all,
    set_theme,
    skip_without_browser,
    write_notebook,
)

pytestmark = pytest.mark.browser

SIZE: Any = {"width": 1280, "height": 3200}
HOSTILE = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>"
SETUP = f"""
import warnings
warnings.simplefilter("ignore")
import ctxlab
from ctxlab.messages.types import Message, Recording, ToolCall
from running import a_recording

def hostile(number):
    plain = a_recording(number).messages
    call = ToolCall("evil", {HOSTILE!r}, '{{{{"path": "javascript:window.ran=1//x.py"}}}}')
    evil = (Message("user", {HOSTILE!r}), Message("assistant", {HOSTILE!r}, tool_calls=(call,)),
            Message("tool", {HOSTILE!r}, tool_call_id="evil"))
    return Recording({HOSTILE!r} + str(number), (*plain[:2], *evil, *plain[2:]), cluster=f"c{{number}}")
"""
BUNDLED = """
recordings = [*ctxlab.load("bundled:coding-agent"), hostile(1)]
explorer = ctxlab.explore(
    recordings, ["full", "nothing", "sliding_window()", "rolling_summary | panic"], [8000, 16000])
"""
LARGEST = """
paths = [each for each in pathlib.Path(DATA).rglob("*.jsonl*") if each.stat().st_size > 200_000]
loaded = [each for path in paths for each in ctxlab.load(path, on_error="skip")]
recordings = [max(loaded, key=lambda each: len(each.messages))]
results = ctxlab.evaluate(recordings, limits=[100_000])
"""
CHOICE = """
row = next(r["id"] for r in explorer.document["rows"] if r["strategy"].startswith("rolling"))
explorer.selection = {**explorer.selection, "row": row}
"""
LOSSES = """
import json
print("LOSSES" + json.dumps(explorer.replay.losses["entity"].head(3).tolist()))
"""
STEPS = """async (count) => {
  const root = document.querySelector(".ctxlab-explorer");
  const slider = root.querySelector("input[type=range]");
  const times = [];
  for (let i = 0; i < count; i++) {
    const shown = new Promise((done) => root.addEventListener("ctxlab-shown", done, { once: true }));
    const start = performance.now();
    slider.value = Math.round((i * 0.37 % 1) * slider.max);
    slider.dispatchEvent(new Event("input"));
    await shown;
    // A task that a frame's callback queues runs when the frame was painted.
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b);
}"""
"""JavaScript that moves the slider and returns the milliseconds until each step is painted."""

OPENED = """new MutationObserver(() => {
  if (!document.querySelector(".ctxlab-explorer .list .row")) return;
  window.opened ??= Date.now();
}).observe(document, { childList: true, subtree: true })"""
"""JavaScript that notes when the first request is listed."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("CTXLAB_SCREENSHOTS") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Any]]:
    skip_without_browser()
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("lab")
    (folder / "home").mkdir()
    with jupyter_lab(folder) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield folder, address, browser
        browser.close()


@pytest.fixture
def page(lab: tuple[Path, str, Any]) -> Iterator[Any]:
    _, address, browser = lab
    fetched: list[str] = []
    errors: list[str] = []
    shown = browser.new_page(viewport=SIZE)
    shown.on("request", lambda request: fetched.append(request.url))
    shown.on("pageerror", lambda error: errors.append(str(error)))
    yield shown
    assert shown.evaluate("window.ran") is None
    shown.close()
    assert errors == []
    assert not [url for url in fetched if not url.startswith((address, "data:", "blob:"))]


def open_explorer(lab: tuple[Path, str, Any], page: Any, name: str, cells: list[str]) -> Any:
    folder, address, _ = lab
    write_notebook(folder / name, cells)
    open_notebook(page, address, name)
    run_all(page)
    page.wait_for_selector(".ctxlab-explorer .map canvas")
    page.wait_for_selector(".ctxlab-explorer .list .row")
    return page.locator(".ctxlab-explorer").first


def listed_losses(explorer: Any) -> list[str]:
    return explorer.locator(".losses li button").all_inner_texts()  # type: ignore[no-any-return]


def test_a_click_on_a_lost_need_shows_the_request_and_the_message_that_held_it(
    lab: tuple[Path, str, Any], page: Any, pictures: Path
) -> None:
    cells = [SETUP + BUNDLED, "explorer", LOSSES]
    explorer = open_explorer(lab, page, "explore.ipynb", cells)
    said = page.locator(".jp-RenderedText", has_text="LOSSES").inner_text()
    losses = json.loads(said.removeprefix("LOSSES"))
    # The list beside the map names the largest losses as the replay does.
    assert listed_losses(explorer) == losses
    marked = " ".join(explorer.locator(".need .rank").all_inner_texts()).split()
    assert sorted(marked) == ["1", "2", "3"]
    explorer.locator(".losses li button").first.click()
    page.wait_for_selector(".ctxlab-explorer pre mark")
    assert losses[0].endswith(explorer.locator("pre mark").first.inner_text())
    request = explorer.locator(".map h3").inner_text().lower()
    assert request in explorer.locator(".pane h3").first.inner_text()
    assert explorer.locator(".list .row.selected").count() == 1
    # From the need to the reply that used it, and back.
    explorer.locator(".pane .link", has_text="message").first.click()
    back = explorer.get_by_role("button", name="← back")
    back.wait_for()
    back.click()
    back.wait_for(state="detached")
    # The slider by keyboard: the panel and the list follow.
    slider = explorer.get_by_role("slider", name="request")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert explorer.locator(".map h3").inner_text() == "Request 1"
    page.wait_for_function("document.querySelector('.pane h3').textContent.includes('request 1,')")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        set_theme(page, theme)
        wide = explorer.evaluate("(e) => [...e.querySelectorAll('*')].some((x) => "
                                 "x.getBoundingClientRect().right > e.getBoundingClientRect().right + 1"
                                 " && !x.closest('.list, .need'))")  # fmt: skip
        assert not wide
        explorer.screenshot(path=pictures / f"explorer {theme}.png")


def test_a_point_and_a_cell_lead_to_a_strategy_and_a_recording(
    lab: tuple[Path, str, Any], page: Any
) -> None:
    explorer = open_explorer(lab, page, "linked.ipynb", [SETUP + BUNDLED, "explorer", CHOICE])
    page.wait_for_function(
        "document.querySelector('.figures tr.g')?.textContent.startsWith('rolling')"
    )
    explorer.get_by_role("button", name="sliding_window within 8,000 tokens").first.click()
    page.wait_for_function(
        "document.querySelector('.figures tr.g').textContent.startsWith('sliding')"
    )
    strategies, against = (
        explorer.get_by_role("combobox", name=each) for each in ("strategy", "against")
    )
    assert strategies.locator("option:checked").inner_text() == "sliding_window"
    explorer.get_by_role("tab", name="Recordings").click()
    explorer.locator(".heat tbody tr").nth(1).locator("button").first.click()
    name = explorer.locator(".heat tbody tr").nth(1).locator("th bdi").inner_text()
    page.wait_for_function(
        "!document.querySelector('.ctxlab-explorer').textContent.includes('Replaying')"
    )
    assert explorer.get_by_role("combobox", name="recording").input_value() == name
    against.select_option(label="full")
    page.wait_for_selector(".ctxlab-explorer canvas.thin")
    page.wait_for_function(
        "document.querySelector('.ctxlab-explorer').textContent.includes('What differs from full')"
    )
    # A cell can choose what is shown, and the view follows.
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    explorer = page.locator(".ctxlab-explorer").first
    page.wait_for_function(
        "document.querySelector('.figures tr.g')?.textContent.startsWith('rolling')"
    )
    explorer.get_by_role("tab", name="Strategies").click()
    for box in explorer.locator("tbody input[type=checkbox]").all()[:1]:
        box.check()
    explorer.locator("tbody input[type=checkbox]").nth(2).check()
    page.wait_for_function(
        "/than|different limits/.test(document.querySelector('.note').textContent)"
    )
    # A recording from a hostile log shows as text.
    explorer.get_by_role("combobox", name="recording").select_option(index=len(
        explorer.get_by_role("combobox", name="recording").locator("option").all()) - 1)  # fmt: skip
    page.wait_for_timeout(1000)


def test_a_saved_notebook_shows_a_small_static_picture_elsewhere(
    lab: tuple[Path, str, Any], page: Any
) -> None:
    open_explorer(lab, page, "saved.ipynb", [SETUP + BUNDLED, "explorer"])
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_timeout(2000)
    saved = json.loads((lab[0] / "saved.ipynb").read_text(encoding="utf-8"))
    shown = [each["data"] for each in saved["cells"][1]["outputs"] if "data" in each][-1]
    picture = "".join(shown["text/html"])
    assert "Needs that were not in view" in picture
    assert len(picture) < 50_000
    assert len(json.dumps(saved)) < 80_000


def test_the_largest_recording_opens_and_moves(
    lab: tuple[Path, str, Any], page: Any, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = os.environ.get("CTXLAB_DATA")
    if not folder:
        pytest.skip("CTXLAB_DATA names no folder with recordings")
    read = f"import pathlib\nDATA = {folder!r}\n{LARGEST}"
    timed = "import time\nstart = time.time()\nexplorer = results.explore(recordings)\nexplorer"
    about = "print('STARTED', start, len(recordings[0].messages), len(results.configurations))"
    page.add_init_script(OPENED)
    explorer = open_explorer(lab, page, "largest.ipynb", [SETUP + read, timed, LOSSES, about])
    said = page.locator(".jp-RenderedText", has_text="LOSSES").inner_text()
    assert listed_losses(explorer) == json.loads(said.removeprefix("LOSSES"))
    marked = " ".join(explorer.locator(".need .rank").all_inner_texts()).split()
    assert sorted(marked) == ["1", "2", "3"]
    said = page.locator(".jp-RenderedText", has_text="STARTED").inner_text()
    start, messages, configurations = said.split()[1:]
    opened = page.evaluate("window.opened") / 1000 - float(start)
    steps = page.evaluate(STEPS, 30)
    with capsys.disabled():
        print(f"\n{messages} messages, {configurations} configurations: opened in {opened:.2f} s; "
              f"slider steps: median {steps[15]:.0f} ms, slowest {steps[-1]:.0f} ms")  # fmt: skip
    explorer.screenshot(path=pictures / "explorer largest.png")


def test_all_notebooks_run_in_jupyterlab(lab: tuple[Path, str, Any], page: Any) -> None:
    folder, address, _ = lab
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert len(notebooks) >= 10
    (folder / "notebooks").mkdir()
    (folder / "evals").symlink_to(ROOT / "evals")
    for path in notebooks:
        shutil.copy(path, folder / "notebooks")
        open_notebook(page, address, f"notebooks/{path.name}")
        run_all(page)
        assert "Error displaying widget" not in page.content(), path.name
        page.evaluate("jupyterapp.commands.execute('docmanager:save')")
