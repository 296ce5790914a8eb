"""Check the docstrings of public names with numpydoc: ``python docs/validate.py``.

A name is public if neither the name nor a part of its module path has a leading underscore. Fields of
data classes are documented below the field instead of in a Parameters section.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from numpydoc.validate import validate

import ctxlab

IGNORED = {
    *("ES01", "SA01", "EX01"),  # extended summaries, See Also and examples are not always useful
    *("GL01", "GL02", "GL03", "SS06"),  # ruff checks the layout
    *("PR08", "PR09", "RT02", "RT04", "RT05", "YD01"),  # descriptions may be phrases
}
HELP_TEXTS = (
    "ctxlab.cli.commands",  # the command line prints these docstrings
    "ctxlab.cli.options",  # fields are options, whose help texts describe them
    "ctxlab.cli.agent_options",
    "ctxlab.serve.http.errors",  # published with the HTTP schema
    "ctxlab.serve.http.schemas",
    "ctxlab.serve.http.sse",
    "ctxlab.serve.desktop.tools",  # published as descriptions of the tools
    "ctxlab.sessions.navigation.tools",  # published as descriptions of the tools
)


def public_modules() -> Iterator[ModuleType]:
    """Import every public module whose dependencies are installed."""
    for found in pkgutil.walk_packages(ctxlab.__path__, "ctxlab."):
        parts = found.name.split(".")
        if any(part.startswith("_") for part in parts) or found.name.startswith(HELP_TEXTS):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").startswith("ctxlab"):
                raise


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the full name and the object of each public class, function and method of a module."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            yield f"{module.__name__}.{name}", value
            for key, member in vars(value).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                own = getattr(function, "__qualname__", "").startswith(f"{name}.{key}")
                own = own and not hasattr(function, "__override__")  # the base class documents it
                if own and inspect.isfunction(function) and not key.startswith("_"):
                    yield f"{module.__name__}.{name}.{key}", member


def has_fields(value: Any) -> bool:
    """Return True if ``value`` is a class defined by fields, such as a data class or an enum."""
    return inspect.isclass(value) and (
        dataclasses.is_dataclass(value)
        or hasattr(value, "__struct_fields__")
        or hasattr(value, "_fields")
        or hasattr(value, "model_fields")
        or getattr(value, "_is_protocol", False)
        or issubclass(value, enum.Enum)
    )


def undocumented_fields(value: type) -> list[str]:
    """Return the names of public fields that have no docstring below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0].body  # type: ignore[attr-defined]
    return [
        node.target.id
        for node, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign)
        and not node.target.id.startswith("_")
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]


def findings(name: str, value: Any) -> Iterator[str]:
    """Yield a line for each problem in the docstring of a public name."""
    report = validate(name)
    errors = [(code, text) for code, text in report["errors"] if code not in IGNORED]
    if inspect.isabstract(value):  # subclasses document their parameters
        errors = [error for error in errors if error[0] != "PR01"]
    if has_fields(value):
        errors = [error for error in errors if error[0] not in ("PR01", "PR02")]
        described = hasattr(value, "model_fields")  # pydantic's fields have descriptions
        if not described and "\nParameters\n" not in inspect.cleandoc(value.__doc__ or ""):
            errors += [("FIELD", f"no docstring below {f}") for f in undocumented_fields(value)]
    if getattr(value, "__annotations__", {}).get("return") in (None, "None"):
        errors = [error for error in errors if error[0] != "RT01"]
    for code, text in errors:
        yield f"{report['file']}:{report['file_line']} {name} {code} {text}"


if __name__ == "__main__":
    found = [
        finding
        for module in public_modules()
        for name, value in public_names(module)
        for finding in findings(name, value)
    ]
    print("\n".join([*found, f"{len(found)} findings"]))
    sys.exit(bool(found))
