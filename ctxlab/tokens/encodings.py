"""Load tiktoken encodings, without network access if possible.

tiktoken downloads its vocabularies at run time. The litellm package contains three of them in a
folder that tiktoken could use as its cache. But tiktoken *deletes* cached files whose hash it does
not expect. So this module reads the files itself, checks them against the hash that tiktoken
expects, and passes them to tiktoken's own definitions.
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
    """Return an encoding of tiktoken, such as ``o200k_base``.

    The vocabulary is searched in litellm's package, then in tiktoken's cache, and is then
    downloaded by tiktoken. An encoding is built once per process (0.3 s for ``o200k_base``). Send
    its name to other processes, not the object, which pickles as megabytes.

    Parameters
    ----------
    name : str
        Name of the encoding.

    Returns
    -------
    tiktoken.Encoding
        The encoding.

    Raises
    ------
    UnknownName
        If tiktoken has no encoding of this name.
    DataMissing
        If the vocabulary is not on this machine and cannot be downloaded.

    Examples
    --------
    >>> load_encoding("o200k_base").encode_ordinary("hello world")
    [24912, 2375]
    """
    package = litellm_folder()
    return _build_encoding(name, package / "litellm_core_utils" / "tokenizers" if package else None)


def find_encoding_name(model: str) -> tuple[str, bool]:
    """Return the name of the encoding for a model, and whether it is the model's own.

    OpenAI's models are looked up in tiktoken's table, also behind gateway prefixes. All other
    models are counted with ``o200k_base``, as an estimate: the tokenizers of other providers differ
    by ten per cent and more, and some are not public.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    tuple of (str, bool)
        Name of the encoding, and True if it is the model's own.

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
        The folder; None if litellm is not installed.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _build_encoding(name: str, folder: Path | None) -> tiktoken.Encoding:
    """Return the encoding ``name``, with the vocabulary from ``folder`` if a valid copy is there."""
    import tiktoken

    known = tiktoken.list_encoding_names()
    if name not in known:
        raise UnknownName("encoding", name, known)
    try:
        define = _load_definitions(folder).get(name)
        return tiktoken.Encoding(**define()) if define else tiktoken.get_encoding(name)
    except (OSError, ValueError, ImportError) as error:
        raise DataMissing(
            f"the encoding {name} is not on this machine and could not be downloaded ({error}); "
            "install litellm, which contains o200k_base, cl100k_base and p50k_base, or let tiktoken "
            "download it on a machine with network access and set TIKTOKEN_CACHE_DIR to a copy of its "
            "cache folder"
        ) from error


def _load_definitions(folder: Path | None) -> dict[str, Any]:
    """Return tiktoken's definitions (pattern, special tokens, hash), made to read ``folder`` first."""
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
