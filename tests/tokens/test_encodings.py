"""Tests of ``ctxlab.tokens.encodings``."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctxlab.errors import DataMissing, UnknownName
from ctxlab.tokens.encodings import (
    _build_encoding,
    find_encoding_name,
    litellm_folder,
    load_encoding,
)

O200K = "fb374d419588a4632f3f557e76b4b70aebbca790"
P50K = "ec7223a39ce59f226a68acc30dc1af2788490e15"


@pytest.fixture
def carried() -> Path:
    package = litellm_folder()
    if package is None:
        pytest.skip("litellm is not installed")
    return package / "litellm_core_utils" / "tokenizers"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use an empty cache of tiktoken, and a closed port as proxy for its downloads."""
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return cache


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("o200k_base", [24912, 2375]),
        ("cl100k_base", [15339, 1917]),
        ("p50k_base", [31373, 995]),
        ("p50k_edit", [31373, 995]),
        ("o200k_harmony", [24912, 2375]),
    ],
)
def test_a_vocabulary_gives_the_published_ids(name: str, ids: list[int], carried: Path) -> None:
    assert load_encoding(name).encode_ordinary("hello world") == ids
    assert load_encoding(name).name == name


def test_special_tokens_and_size_come_from_tiktokens_definition(carried: Path) -> None:
    o200k = load_encoding("o200k_base")
    assert o200k.eot_token == 199999
    assert o200k.n_vocab == 200019
    assert o200k.encode("<|endoftext|>", allowed_special="all") == [199999]


def test_an_encoding_is_made_once(carried: Path) -> None:
    assert load_encoding("o200k_base") is load_encoding("o200k_base")


def test_an_unknown_name_is_answered_with_similar_ones() -> None:
    with pytest.raises(UnknownName, match="o200k_base"):
        load_encoding("o200k_bas")


def test_a_wrong_hash_falls_back_to_tiktoken_and_leaves_the_file(
    carried: Path, no_network: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    content = (carried / P50K).read_bytes()[:-1]
    (broken / P50K).write_bytes(content)
    shutil.copy(carried / P50K, no_network / P50K)
    assert _build_encoding("p50k_base", broken).encode_ordinary("hello world") == [31373, 995]
    assert (broken / P50K).read_bytes() == content


@pytest.mark.parametrize("files", [{}, {P50K: b"aGVsbG8= 0\n"}])
def test_data_that_is_nowhere_says_what_to_do(
    files: dict[str, bytes], no_network: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(DataMissing, match=r"p50k_base.*install litellm"):
        _build_encoding("p50k_base", folder)
    with pytest.raises(DataMissing, match="TIKTOKEN_CACHE_DIR"):
        _build_encoding("p50k_base", None)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == files


@pytest.mark.properties
def test_no_network_and_no_litellm_is_needed_to_count(carried: Path) -> None:
    program = """
import socket, sys
def refuse(*args, **kwargs): raise OSError("the network is closed")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from ctxlab.tokens.encodings import find_encoding_name, load_encoding
name, _ = find_encoding_name("gpt-4o")
assert load_encoding(name).encode_ordinary("hello world") == [24912, 2375]
assert not [m for m in sys.modules if m.split(".")[0] == "litellm"]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_the_module_loads_no_tokenizer() -> None:
    program = "import sys, ctxlab.tokens.encodings; assert 'tiktoken' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tiktokens_own_loader_stays_as_it_is(carried: Path) -> None:
    from tiktoken.load import load_tiktoken_bpe

    load_encoding("cl100k_base")
    public = importlib.import_module("tiktoken_ext.openai_public")
    assert public.load_tiktoken_bpe is load_tiktoken_bpe


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("GPT-4o-mini", "o200k_base"),
        ("gpt-5.2-codex", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-pro", "o200k_base"),
        ("o4", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("openai/gpt-4", "cl100k_base"),
        ("azure/gpt-35-turbo", "cl100k_base"),
        ("azure/eu/gpt-4o-2024-08-06", "o200k_base"),
        ("openrouter/openai/gpt-5-mini:floor", "o200k_base"),
        ("ft:gpt-4o:acme", "o200k_base"),
        ("ft:gpt-3.5-turbo:acme:x:1", "cl100k_base"),
        ("groq/openai/gpt-oss-120b", "o200k_harmony"),
        ("us.openai.gpt-oss-120b-1:0", "o200k_harmony"),
    ],
)
def test_openai_models_count_with_their_own_vocabulary(model: str, name: str) -> None:
    assert find_encoding_name(model) == (name, True)


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5",
        "gemini/gemini-3-pro",
        "someone/gpt-4-x-alpaca",
        "llama3",
        "o1x",
        "",
        "/",
    ],
)
def test_other_models_count_with_o200k_and_say_that_it_is_an_estimate(model: str) -> None:
    assert find_encoding_name(model) == ("o200k_base", False)
