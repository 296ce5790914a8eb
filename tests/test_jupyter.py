"""Tests of the objects that show themselves, in a real JupyterLab and a real browser.

``CTXLAB_SCREENSHOTS`` names a folder for pictures of every object, light and dark.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from jupyter_lab import (
    CHROMIUM,
    jupyter_lab,
    open_notebook,
    run_all,
    set_theme,
    skip_without_browser,
    write_notebook,
)

pytestmark = pytest.mark.browser

SIZE: Any = {"width": 1280, "height": 900}
SETUP = """
import ctxlab
from asked import with_questions
from continuing import asked
from ctxlab.llm import ScriptedClient

recordings = list(ctxlab.load("bundled:coding-agent"))
strategies = ["full", "sliding_window()", "observation_mask(keep=3) | panic()", "random_drop()"]
results = ctxlab.evaluate(recordings, strategies, [8000, 16000])
close = ctxlab.replay(recordings[0], "rolling_summary() | panic()", 8000)
questions = [with_questions(number, 4, cluster=str(number)) for number in range(2)]
client = ScriptedClient(lambda request: "Not mentioned.")
"""
OBJECTS = {
    "recording": "recordings[0]",
    "descriptions": "ctxlab.describe(recordings)",
    "results": "results",
    "comparison": "ctxlab.compare_strategies(results, strategies[2], strategies[1])",
    "replay": "close",
    "sent": "close.sent(-1)",
    "tuning": "ctxlab.tune(recordings, ['sliding_window(tokens=[4000, 7000])'], [8000], holdout=0)",
    "survival": "ctxlab.measure_survival(recordings, strategies, [8000])",
    "questions": "ctxlab.run_qa(questions, strategies[:2], [500], answer_model='gpt-4o', client=client)",
    "actions": "asked()",
    "products": "ctxlab.compare_products(recordings[:2], 24000, ['codex', 'full'], constraints=0)",
}
SHOWN = ".jp-OutputArea-output .ctxlab"
WIDE = """parts => parts.flatMap(part => [part, ...part.querySelectorAll('.w, table, svg')])
    .filter(part => !part.closest('details:not([open])'))
    .filter(part => part.scrollWidth > part.clientWidth + 1
        || part.getBoundingClientRect().right > window.innerWidth)
    .map(part => part.outerHTML.slice(0, 200))"""
"""JavaScript that returns the parts of objects that can be scrolled sideways."""

CONTRASTS = """parts => parts.map(part => {
    const light = color => color.map(c => c / 255).map(
        c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
    ).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const read = text => text.match(/[0-9.]+/g).map(Number);
    let below = part, ground = [0, 0, 0, 0];
    for (; below && ground[3] === 0; below = below.parentElement) {
        const color = read(getComputedStyle(below).backgroundColor);
        ground = [...color.slice(0, 3), color[3] ?? 1];
    }
    const text = read(getComputedStyle(part).color);
    const pair = [light(text.slice(0, 3)), light(ground.slice(0, 3))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
})"""
"""JavaScript that returns the contrast of the text of each element with its ground."""


def check(page: Any, theme: str, folder: Path) -> None:
    """Check that every object shows, fits the page and can be read, and take a picture of each."""
    set_theme(page, theme)
    objects = page.locator(SHOWN)
    assert objects.count() == len(OBJECTS)
    assert objects.evaluate_all(WIDE) == []
    texts = page.locator(f"{SHOWN} p, {SHOWN} td, {SHOWN} th")
    assert min(texts.evaluate_all(CONTRASTS)) > 4.5
    page.set_viewport_size({"width": 1280, "height": 2600})
    for number, name in enumerate(OBJECTS):
        objects.nth(number).scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        objects.nth(number).screenshot(path=folder / f"{name} {theme}.png")
    page.set_viewport_size(SIZE)


def test_every_object_shows_in_jupyterlab_light_and_dark_and_after_reopening(
    tmp_path: Path,
) -> None:
    skip_without_browser()
    from playwright.sync_api import sync_playwright

    pictures = Path(os.environ.get("CTXLAB_SCREENSHOTS") or tmp_path / "screenshots")
    pictures.mkdir(parents=True, exist_ok=True)
    (tmp_path / "home").mkdir()
    write_notebook(tmp_path / "objects.ipynb", [SETUP, *OBJECTS.values()])
    fetched: list[str] = []
    with jupyter_lab(tmp_path) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.on("request", lambda request: fetched.append(request.url))
        open_notebook(page, address, "objects.ipynb")
        run_all(page)
        page.screenshot(path=pictures / "notebook.png")
        check(page, "JupyterLab Light", pictures)
        check(page, "JupyterLab Dark", pictures)
        page.evaluate("jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(2000)
        page.close()

        page = browser.new_page(viewport=SIZE)
        open_notebook(page, address, "objects.ipynb")
        page.wait_for_selector(SHOWN)
        check(page, "JupyterLab Light", pictures)
        assert "Error displaying widget" not in page.content()
        page.close()

        # A notebook of others is not trusted: style sheets and drawings are removed, as on GitHub.
        text = (tmp_path / "objects.ipynb").read_text(encoding="utf-8")
        changed = text.replace("strategies = [", "# changed\\nstrategies = [", 1)
        (tmp_path / "copied.ipynb").write_text(changed, encoding="utf-8")
        page = browser.new_page(viewport=SIZE)
        open_notebook(page, address, "copied.ipynb")
        page.wait_for_selector(".jp-OutputArea-output table")
        page.wait_for_timeout(2000)
        assert page.locator(".jp-OutputArea-output style").count() == 0
        assert page.locator(".jp-OutputArea-output svg").count() == 0
        for number, name in enumerate(OBJECTS):
            cell = page.locator(".jp-CodeCell").nth(number + 1)
            cell.scroll_into_view_if_needed()
            assert cell.locator("table").count(), name
            cell.screenshot(path=pictures / f"{name} untrusted.png")
        browser.close()
    assert not [url for url in fetched if not url.startswith((address, "data:", "blob:"))]
