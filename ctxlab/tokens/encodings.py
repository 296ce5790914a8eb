"""Load tiktoken encodings, without network access if possible.

tiktoken downloads its vocabularies at run time. The litellm package contains three of them in a
folder that tiktoken could use as its cache. However, tiktoken deletes cached files with an
unexpected hash, so it could damage the litellm package. This module therefore reads the files
itself, checks their hashes, and passes them to tiktoken's own definitions.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab.errors import DataMissing, UnknownName

if TYPE_CHECKING:
    import tiktoken

_DEFAULT_ENCODING = "o200k_base"
_DEFINITIONS_MODULE = "tiktoken_ext.openai_public"
# Gateways that serve OpenAI's models under their original names without the prefix "openai/".
_RESELLERS = {"azure", "azure_ai", "chatgpt", "github", "github_copilot", "ollama"}
# Families missing in older versions of tiktoken; the boundary excludes "o1x" and "gpt-55".
_LATER_FAMILIES = re.compile(r"(gpt-5|gpt-4\.[15]|gpt-4o|o[134])(?=$|[-.@:])")


@functools.cache
def load_encoding(name: str) -> tiktoken.Encoding:
    """Return a tiktoken encoding, such as ``o200k_base``.

    The vocabulary is read from the litellm package or from tiktoken's cache. If neither contains it,
    tiktoken downloads it. An encoding is built once per process, which takes 0.3 s for
    ``o200k_base``. To use an encoding in another process, pass its name: a pickled encoding has
    several megabytes.

    Parameters
    ----------
    name : str
        Name of the encoding.

    Returns
    -------
    tiktoken.Encoding
        Encoding with this name.

    Raises
    ------
    UnknownName
        If tiktoken has no encoding with this name.
    DataMissing
        If the vocabulary is neither installed nor cached and cannot be downloaded.

    Examples
    --------
    >>> load_encoding("o200k_base").encode_ordinary("hello world")
    [24912, 2375]
    """
    package = litellm_folder()
    return _build_encoding(name, package / "litellm_core_utils" / "tokenizers" if package else None)


def find_encoding_name(model: str) -> tuple[str, bool]:
    """Return the name of the encoding for a model, and whether the model itself uses it.

    OpenAI's models are looked up in tiktoken's table, without gateway prefixes such as
    ``openrouter/openai/``. For all other models, ``o200k_base`` is an approximation. Counts with the
    tokenizers of other providers, some of which are not public, differ by ten per cent or more.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    tuple of (str, bool)
        Name of the encoding; and True if the model uses it, False if it is an approximation.

    Examples
    --------
    >>> find_encoding_name("openrouter/openai/gpt-5-mini"), find_encoding_name("claude-sonnet-4-5")
    (('o200k_base', True), ('o200k_base', False))
    """
    from tiktoken.model import encoding_name_for_model

    *gateways, name = model.strip().lower().split("/")
    if gateways and "openai" not in gateways and gateways[0] not in _RESELLERS:
        return _DEFAULT_ENCODING, False
    name = name.rpartition("openai.")[2]  # Bedrock: us.openai.gpt-oss-120b-1:0
    for spelling in (name, re.sub(r"(?<!^ft)[:@].*", "", name)):
        try:
            return encoding_name_for_model(spelling), True
        except KeyError:
            pass
    return _DEFAULT_ENCODING, _LATER_FAMILIES.match(name) is not None


def litellm_folder() -> Path | None:
    """Return the folder of the installed litellm package, without importing the package.

    Returns
    -------
    Path or None
        Folder of the package; None if litellm is not installed.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _build_encoding(name: str, folder: Path | None) -> tiktoken.Encoding:
    """Build an encoding. A valid vocabulary in ``folder`` is preferred to tiktoken's own copy."""
    import tiktoken

    known = tiktoken.list_encoding_names()
    if name not in known:
        raise UnknownName("encoding", name, known)
    try:
        define = _load_definitions(folder).get(name)
        return tiktoken.Encoding(**define()) if define else tiktoken.get_encoding(name)
    except (OSError, ValueError, ImportError) as error:
        raise DataMissing(
            f"the vocabulary of {name} is not installed and could not be downloaded ({error}); "
            "install litellm, which contains o200k_base, cl100k_base and p50k_base, or set "
            f"TIKTOKEN_CACHE_DIR to a cache folder of tiktoken that contains {name}"
        ) from error


def _load_definitions(folder: Path | None) -> dict[str, Any]:
    """Return tiktoken's encoding definitions, changed to look for vocabularies in ``folder`` first."""
    from tiktoken.load import load_tiktoken_bpe

    def load(address: str, expected_hash: str | None = None) -> dict[bytes, int]:
        name = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
        try:
            blob = (folder / name).read_bytes() if folder else b""
        except OSError:
            blob = b""
        if hashlib.sha256(blob).hexdigest() != expected_hash:
            return load_tiktoken_bpe(address, expected_hash)
        words = blob.split()  # each line holds a token in base64, a space and its rank
        return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))

    # Replace the loader in a private copy of the module, so that tiktoken itself is not changed.
    spec = importlib.util.find_spec(_DEFINITIONS_MODULE)
    if spec is None or spec.loader is None:
        return {}
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.load_tiktoken_bpe = load
    constructors: dict[str, Any] = module.ENCODING_CONSTRUCTORS
    return constructors
