"""Front end of reports and widgets: a style sheet, scripts and pages, which a browser runs unchanged.

The scripts are ES modules. A page is one file, so ``bundle_script`` joins the modules that it needs.
Nothing is fetched. Texts from logs are data: a script reads them from a JSON document and sets them as
text, and the page's content security policy allows no other script than its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ctxlab._utils.text import show_symbols

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function |const |class )", re.MULTILINE)


def read_asset(name: str) -> str:
    """Read a file of the front end.

    Parameters
    ----------
    name : str
        Name of the file, such as ``style.css``.

    Returns
    -------
    str
        Content of the file.
    """
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def bundle_script(name: str) -> str:
    """Join an ES module and the modules that it imports to one script.

    A module may only import names from other files of the front end, in one statement per file, and
    may only export functions, constants and classes.

    Parameters
    ----------
    name : str
        Name of the file with the module.

    Returns
    -------
    str
        Script without imports and exports. Each module is a block, and what it exports is global to
        the script.

    Examples
    --------
    >>> script = bundle_script("marks.js")
    >>> script.index("function element") < script.index("function markOf"), "import" in script
    (True, False)
    """
    modules: dict[str, str] = {}

    def add(module: str) -> None:
        if module not in modules:
            text = read_asset(module)
            for needed in _IMPORT.findall(text):
                add(needed)
            modules[module] = text

    add(name)
    return "\n".join(map(_to_block, modules.values()))


def bundle_module(name: str) -> str:
    """Join an ES module and the modules that it imports to one ES module with its default export.

    Parameters
    ----------
    name : str
        Name of a file that exports a function ``render``.

    Returns
    -------
    str
        ES module as anywidget expects it.
    """
    return f"{bundle_script(name)}\nexport default {{ render }};\n"


def _to_block(module: str) -> str:
    """Return a module whose own names are local, and whose exported names are not."""
    text = _IMPORT.sub("", module)
    exported = re.findall(r"^export (?:function|const|class) (\w+)", text, re.MULTILINE)
    body = _EXPORT.sub("", text)
    if not exported:
        return f"(() => {{\n{body}\n}})();"
    names = ", ".join(exported)
    return f"const {{ {names} }} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"


def script_document(value: Any) -> str:
    r"""Return JSON that can stand in a ``script`` element, whatever its texts contain.

    Parameters
    ----------
    value : object
        Document of dicts, lists, texts, finite numbers, booleans and None.

    Returns
    -------
    str
        JSON in ASCII characters without ``<``, ``>`` and ``&``.

    Examples
    --------
    >>> script_document({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def render_page(template: str, script: str, document: Any, parts: Mapping[str, str]) -> str:
    """Render a page as one file.

    Parameters
    ----------
    template : str
        Name of the HTML file, a ``string.Template``.
    script : str
        Name of the file with the page's script.
    document : object
        Document that the script reads.
    parts : mapping of str to str
        Values of the other placeholders of the template, as HTML.

    Returns
    -------
    str
        HTML.
    """
    style, code = read_asset("style.css"), bundle_script(script)
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(code)}'"
    )
    own = {"style": style, "script": code, "policy": policy, "document": script_document(document)}
    return Template(read_asset(template)).substitute({**parts, **own})


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def text_to_html(text: str) -> str:
    r"""Escape a text from a log, with control and bidirectional characters replaced by symbols.

    Parameters
    ----------
    text : str
        Text.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> text_to_html("<b>\u202e")
    '&lt;b&gt;⟨U+202E⟩'
    """
    return escape(show_symbols(text))
