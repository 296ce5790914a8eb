"""Tests of the documentation site, and of the outputs and examples that its pages show."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

import ctxlab

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
PUBLIC = re.findall(r" as (\w+)$", (ROOT / "ctxlab/__init__.pyi").read_text(), re.MULTILINE)


class Links(HTMLParser):
    """The links, pictures and scripts of a page, and the ids to which other pages can link."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value for key, value in attrs if value}
        self.ids |= {found[key] for key in ("id", "name") if key in found}
        self.targets |= {found[key] for key in ("href", "src") if key in found}


def test_every_public_name_is_in_the_reference_with_an_example() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    documented = re.findall(r"^::: ctxlab\.(?:\w+\.)*(\w+)$", pages, re.MULTILINE)
    assert [name for name in PUBLIC if documented.count(name) != 1] == []
    assert [name for name in PUBLIC if ">>> " not in (getattr(ctxlab, name).__doc__ or "")] == []


@pytest.mark.e2e
def test_the_page_of_notebooks_shows_what_python_prints() -> None:
    text = (ROOT / "docs/start-notebook.md").read_text(encoding="utf-8")
    example = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(example, {}, "page", "start-notebook.md", 0))
    assert runner.summarize(verbose=False).attempted > 10
    assert runner.failures == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; the environment variable ``CTXLAB_SITE`` names one."""
    if "CTXLAB_SITE" in os.environ:
        return Path(os.environ["CTXLAB_SITE"]).resolve()
    if not (find_spec("mkdocs") and find_spec("material") and find_spec("mkdocstrings")):
        pytest.skip("mkdocs is not installed; pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.docs
def test_every_link_within_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    served = site / "404.html"  # a server shows it at any address, so its links begin with a slash
    pages = {page: Links(page) for page in site.rglob("*.html") if page != served}
    dead = [
        f"{page.relative_to(site)}: {target}"
        for page, links in pages.items()
        for target in links.targets
        if not re.match(r"[a-z]+:", target) and not _leads(page, target, pages)
    ]
    assert len(pages) > 40
    assert dead == []


def _leads(page: Path, target: str, pages: dict[Path, Links]) -> bool:
    address, fragment = map(unquote, urldefrag(target))
    to = (page.parent / address).resolve() if address else page
    to = to / "index.html" if to.is_dir() else to
    return to.exists() and (not fragment or to not in pages or fragment in pages[to].ids)


@pytest.mark.docs
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_opened_from_a_folder_fetch_nothing_and_fit_the_window(
    site: Path, browser: Any, scheme: str
) -> None:
    context = browser.new_context(
        offline=True, color_scheme=scheme, viewport={"width": 1280, "height": 900}
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("request", lambda sent: faults.append(sent.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            faults.append(f"{file} is too wide")
    context.close()
    assert [fault for fault in faults if not fault.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.docs
def test_the_search_works_without_a_server(site: Path, browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "glossary.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("irrecoverable")
    page.locator(".md-search-result__link").first.wait_for(timeout=20_000)
    assert "closed-loop.html" in page.locator(".md-search-result__list").inner_html()
    context.close()


@pytest.mark.docs
def test_pages_show_what_their_commands_print() -> None:
    changed = runpy.run_path(str(ROOT / "docs/console.py"))["changed_pages"]()
    assert [page.name for page, _ in changed] == [], "run: python docs/console.py"
