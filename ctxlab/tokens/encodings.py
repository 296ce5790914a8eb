"""A vocabulary is found on this machine before the network is asked for it.

tiktoken downloads its vocabularies at run time. The litellm package carries three of them, which
tiktoken's own cache would *delete* if it disliked their hash. So they are only read here, checked
against the hash that tiktoken itself expects, and handed to tiktoken's own definitions.
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

__all__ = ["find_encoding_name", "litellm_folder", "load_encoding"]

_DEFAULT_ENCODING = "o200k_base"
_DEFINITIONS_MODULE = "tiktoken_ext.openai_public"
# Who serves OpenAI's models under their own names, beside those that write "openai/" themselves.
_RESELLERS = {"azure", "azure_ai", "chatgpt", "github", "github_copilot", "ollama"}
# Families that older tables of tiktoken do not know; the boundary keeps "o1x" and "gpt-55" out.
_LATER_FAMILIES = re.compile(r"(gpt-5|gpt-4\.[15]|gpt-4o|o[134])(?=$|[-.@:])")


@functools.cache
def load_encoding(name: str) -> tiktoken.Encoding:
    """The tokenizer called ``name``, such as ``o200k_base``, with no network where possible.

    Looked for in litellm's package, then in tiktoken's cache, then by tiktoken's download. Made
    once a process (0.3 s for ``o200k_base``). Send its name to another process, not the object,
    which pickles as megabytes. Raises ``UnknownName`` for a name that tiktoken does not have and
    ``DataMissing`` where its vocabulary can be had nowhere.

    >>> load_encoding("o200k_base").encode_ordinary("hello world")
    [24912, 2375]
    """
    package = litellm_folder()
    return _build_encoding(name, package / "litellm_core_utils" / "tokenizers" if package else None)


def find_encoding_name(model: str) -> tuple[str, bool]:
    """The name of the vocabulary to count a model's tokens with, and whether it is the model's own.

    OpenAI's models are looked up in tiktoken's table, whatever gateway stands before their name.
    Any other model counts with ``o200k_base``, which is an estimate: the tokenizers of other
    providers differ by ten per cent and more, and some are not public.

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
    """Where the litellm package is installed, found without importing it; None where it is not."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _build_encoding(name: str, folder: Path | None) -> tiktoken.Encoding:
    """The tokenizer ``name``, its vocabulary read from ``folder`` where a good copy lies there."""
    import tiktoken

    known = tiktoken.list_encoding_names()
    if name not in known:
        raise UnknownName("vocabulary", name, known)
    try:
        define = _load_definitions(folder).get(name)
        return tiktoken.Encoding(**define()) if define else tiktoken.get_encoding(name)
    except (OSError, ValueError, ImportError) as error:
        raise DataMissing(
            f"the vocabulary {name} is not on this machine and could not be downloaded ({error}); "
            "install litellm, which carries o200k_base, cl100k_base and p50k_base, or let tiktoken "
            "download it once on a machine with a network and set TIKTOKEN_CACHE_DIR to that copy"
        ) from error


def _load_definitions(folder: Path | None) -> dict[str, Any]:
    """The definitions of tiktoken (pattern, special tokens, hash), reading ``folder`` first."""
    from tiktoken.load import load_tiktoken_bpe

    def load(address: str, expected_hash: str | None = None) -> dict[bytes, int]:
        blob = _read_cached_vocabulary(folder, address, expected_hash)
        return load_tiktoken_bpe(address, expected_hash) if blob is None else _parse_ranks(blob)

    # A private copy of the module: the loader is exchanged in it and tiktoken's own stays as it is.
    spec = importlib.util.find_spec(_DEFINITIONS_MODULE)
    if spec is None or spec.loader is None:
        return {}
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.load_tiktoken_bpe = load
    constructors: dict[str, Any] = module.ENCODING_CONSTRUCTORS
    return constructors


def _read_cached_vocabulary(
    folder: Path | None, address: str, expected_hash: str | None
) -> bytes | None:
    """The file that a vocabulary's address names in a cache folder, if it is what it should be."""
    if folder is None or expected_hash is None:
        return None
    try:
        blob = (
            folder / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
        ).read_bytes()
    except OSError:
        return None
    return blob if hashlib.sha256(blob).hexdigest() == expected_hash else None


def _parse_ranks(blob: bytes) -> dict[bytes, int]:
    """Token → rank; each line holds a token in base64, a space and its rank."""
    words = blob.split()
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
