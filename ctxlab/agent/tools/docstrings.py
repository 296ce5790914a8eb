"""Parse docstrings for the description of a tool and of its parameters."""

from __future__ import annotations

import re
from inspect import cleandoc

_SECTION = re.compile(
    r"(args|arguments|parameters|params|returns?|raises|yields?|examples?|notes?|see also)\s*:?\s*"
)
_PARAMETERS = re.compile(r"(args|arguments|parameters|params)\s*:?\s*")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\w+)\s*(?::.*)?")
_SPHINX = re.compile(r":param(?:\s+[^:]*?)?\s+(\w+)\s*:\s*(.*)")


def parse_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    r"""Split a docstring into its description and those of the parameters.

    Google's ``Args:``, NumPy's ``Parameters`` with an underline, and ``:param x:`` are supported.

    Parameters
    ----------
    docstring : str or None
        The docstring.

    Returns
    -------
    tuple of str and dict of str to str
        The text before the sections, and the description of each parameter that has one.

    Examples
    --------
    >>> parse_docstring("Read a file.\n\nArgs:\n    path: from the root,\n        with slashes\n")
    ('Read a file.', {'path': 'from the root, with slashes'})
    """
    about: list[str] = []
    found: dict[str, list[str]] = {}
    section: str | None = None
    name: str | None = None
    base = 0
    lines = cleandoc(docstring or "").splitlines()
    for number, line in enumerate(lines):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        under = lines[number + 1].strip() if number + 1 < len(lines) else ""
        ruled = len(under) > 2 and set(under) == {"-"}
        if match := _SPHINX.match(text):
            section, name, base = "sphinx", match[1], indent
            found[name] = [match[2]]
        elif text.startswith(":") and re.match(r":\w+[^:]*:", text):
            section, name = "other", None
        elif indent == 0 and _SECTION.fullmatch(text.lower()) and (ruled or text.endswith(":")):
            parameters = bool(_PARAMETERS.fullmatch(text.lower()))
            section, name = ("numpy" if ruled else "google") if parameters else "other", None
            base = 0 if ruled else -1
        elif section is None:
            about.append(line)
        elif text and set(text) != {"-"}:
            if section in ("google", "numpy") and (base == -1 or indent <= base):
                base = indent
                match = (_GOOGLE if section == "google" else _NUMPY).fullmatch(text)
                name = match[1] if match else None
                if match:
                    found[match[1]] = [match[2]] if section == "google" else []
            elif name is not None and indent > base:
                found[name].append(text)
    return "\n".join(about).strip(), {key: " ".join(said).strip() for key, said in found.items()}
