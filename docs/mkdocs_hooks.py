"""Hooks of mkdocs: take pages from the whole repository, and draw the gallery of strategies.

A page keeps the path that it has in the repository (``src_uri``), so that a relative link leads to the
same page in the site and in a view of the repository's files. Pages of ``docs/`` lose this folder in
their address.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "docs"))
from strategy_maps import StrategyMaps  # noqa: E402

PAGES = [
    *("docs/**/*.md", "*.md", "evals/*.md", "datasets/**/*.md", "notebooks/*.ipynb"),
    *("tests/SEEDS.md", "tests/peers/CONFORMANCE.md"),
]
STATIC = (".png", ".svg", ".css", ".js")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)(?:#[\w-]+)?\)")
SVG = re.compile(r'<img alt="([^"]*)" src="([^"]*\.svg)" ?/?>')


class ShownFile(File):
    """A file that is not Markdown, but has a page: a notebook, a source file or a folder."""

    def is_documentation_page(self) -> bool:
        """Return True, although the suffix is not that of Markdown."""
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs/`` by pages, pictures and linked files of the whole repository."""
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    for pattern in (*PAGES, *(f"docs/**/*{suffix}" for suffix in STATIC)):
        for path in sorted(ROOT.glob(pattern)):
            found.append(_make_file(path, config))
    for path in sorted({*_linked_files(found)}):
        found.append(_make_file(path, config))
    config.nav = _expand(config.nav, [file.src_uri for file in found])
    made: dict[str, bytes | str] = {
        f"maps/{name}.png": picture for name, picture in _maps().pictures.items()
    }
    made["example-report.html"] = _maps().report()
    for address, content in made.items():
        file = File.generated(config, f"docs/{address}", content=content)
        file.dest_uri = address
        found.append(file)
    return found


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert what is made for the site only, where a comment of a page asks for it."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    markdown = re.sub(r"<!-- gallery of (\w+) -->", lambda m: _maps().describe(m[1]), markdown)
    markdown = re.sub(
        r"<!-- context map of ([\w.]+) -->", r"![Context map of \1](maps/\1.png)", markdown
    )
    report = "[Open the report of such a run](example-report.html): one file, which works offline."
    markdown = markdown.replace("<!-- link to the example report -->", report)
    return re.sub(r"\A<!-- .*-->\s*", "", markdown)  # mkdocs finds no title after a comment


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert drawings as inline SVG, so that they have the colours of the page."""
    folder = Path(config.docs_dir, page.file.dest_uri).parent
    return SVG.sub(lambda image: (folder / image[2]).read_text(encoding="utf-8"), html)


@cache
def _maps() -> StrategyMaps:
    return StrategyMaps()


def _make_file(path: Path, config: MkDocsConfig) -> File:
    """Return a file of the site for a file or a folder of the repository."""
    uri = path.relative_to(ROOT).as_posix()
    shown = path.suffix not in (".md", *STATIC)
    address = uri.removeprefix("docs/")
    if path.suffix not in STATIC:
        address = address.removesuffix(".md") + ".html"
    kind = ShownFile if shown else File
    file = kind(uri, str(ROOT), config.site_dir, False, dest_uri=address)
    file.name = path.stem  # mkdocs would take each README.md for the first page of its section
    if path.suffix == ".ipynb":
        file.content_string = _notebook_page(path)
    elif shown:
        file.content_string = _source_page(path)
        file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def _linked_files(files: Files) -> Iterator[Path]:
    """Yield the files and folders of the repository that pages link to and that are no pages yet."""
    for file in files.documentation_pages():
        if isinstance(file, ShownFile):
            continue
        for target in LINK.findall(file.content_string):
            path = (ROOT / file.src_uri).parent.joinpath(target).resolve()
            uri = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            if uri and path.exists() and files.get_file_from_path(uri) is None:
                yield path


def _expand(nav: Any, uris: list[str]) -> Any:
    """Replace each pattern in the navigation by the matching files that the navigation does not name."""
    named = set(re.findall(r"[\w./-]+\.md", json.dumps(nav)))

    def expand(item: Any) -> list[Any]:
        if isinstance(item, dict):
            ((title, inside),) = item.items()
            if isinstance(inside, list):
                return [{title: [each for entry in inside for each in expand(entry)]}]
            return [{title: uri} for uri in expand(inside)]
        if "*" not in item:
            return [item]
        return [uri for uri in uris if fnmatch(uri, item) and uri not in named]

    return [each for entry in nav for each in expand(entry)]


def _notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "text/html" in data:
                parts.append(f'<div class="output">\n{data["text/html"]}\n</div>')
            elif "text/markdown" in data:
                parts.append(data["text/markdown"])
            elif "image/png" in data:
                png = data["image/png"].replace("\n", "")
                parts.append(f"![Plot of the cell above](data:image/png;base64,{png})")
            else:
                text = data.get("text/plain", "".join(output.get("text", ())))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def _source_page(path: Path) -> str:
    """Return a source file, or the list of the files of a folder, as a page that is not searched."""
    if path.is_dir():
        names = (inside.name for inside in path.iterdir())
        text = "\n".join(sorted(name for name in names if not name.startswith((".", "_"))))
    else:
        text = path.read_text(encoding="utf-8")
    head = "---\nsearch:\n  exclude: true\n---\n"
    language = path.suffix.removeprefix(".") or "text"
    title = path.relative_to(ROOT).as_posix()
    return f"{head}\n# {title}\n\n~~~~{language}\n{text.rstrip()}\n~~~~\n"
