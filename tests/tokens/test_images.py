"""Tests of ``ctxlab.tokens.images``."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ctxlab.tokens.images import count_image_tokens, model_family

FAMILIES = ("openai", "anthropic", "gemini", "other")


def picture(width: int, height: int, kind: str = "PNG") -> str:
    buffer = io.BytesIO()
    Image.new("1" if kind == "PNG" else "RGB", (width, height)).save(buffer, kind)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{data}"


def part(url: Any, detail: str = "auto") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("openai", 1024, 1024, 765),  # the guide's own examples
        ("openai", 2048, 4096, 1105),
        ("openai", 512, 512, 255),
        ("openai", 10, 10, 255),
        ("anthropic", 200, 200, 53),  # the guide's own table says "~54"
        ("anthropic", 1000, 1000, 1333),
        ("anthropic", 1092, 1092, 1590),
        ("anthropic", 4000, 3000, 1600),
        ("anthropic", 8000, 10, 4),
        ("gemini", 384, 384, 258),
        ("gemini", 385, 100, 258),
        ("gemini", 1024, 1024, 4 * 258),
        ("other", 1024, 1024, 765),
        ("never heard of", 1024, 1024, 765),
    ],
)
def test_a_size_counts_by_the_providers_rule(
    family: str, width: int, height: int, tokens: int
) -> None:
    assert count_image_tokens(part(picture(width, height)), family) == tokens


def test_low_detail_is_85_tokens_at_openai() -> None:
    assert count_image_tokens(part(picture(3000, 3000), "low"), "openai") == 85
    assert count_image_tokens(part("https://example.org/a.png", "low"), "openai") == 85


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_every_accepted_format_is_read(kind: str) -> None:
    assert count_image_tokens(part(picture(300, 300, kind)), "anthropic") == 120


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "data:image/png;base64,",
        "data:image/png;base64,bm8gcGljdHVyZQ==",
        "data:image/png;base64,§",
        picture(50, 50)[:40],
        "",
        None,
        7,
    ],
)
def test_an_unknown_size_counts_as_1024_by_1024(url: Any, family: str) -> None:
    assert count_image_tokens(part(url), family) == count_image_tokens(
        part(picture(1024, 1024)), family
    )


def test_only_the_header_of_a_picture_is_needed() -> None:
    whole = picture(640, 480)
    assert count_image_tokens(part(whole[:102]), "anthropic") == count_image_tokens(
        part(whole), "anthropic"
    )


def test_the_shapes_of_other_interfaces_count_alike() -> None:
    url = picture(300, 300)
    shapes: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": url, "detail": "high"},
        {"type": "image", "source": {"type": "base64", "data": url.partition(",")[2]}},
    ]
    for family in FAMILIES:
        assert {count_image_tokens(shape, family) for shape in shapes} == {
            count_image_tokens(part(url), family)
        }
    assert (
        count_image_tokens({"type": "input_image", "image_url": url, "detail": "low"}, "openai")
        == 85
    )


@given(st.binary(max_size=200), st.sampled_from(FAMILIES))
def test_no_data_is_refused(data: bytes, family: str) -> None:
    for header in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF0000WEBP"):
        url = "data:image/png;base64," + base64.b64encode(header + data).decode()
        assert count_image_tokens(part(url), family) >= 1


@given(
    st.dictionaries(
        st.sampled_from(["image_url", "source", "detail", "url"]), st.none() | st.text()
    )
)
def test_no_part_is_refused(value: dict[str, Any]) -> None:
    assert count_image_tokens(value, "openai") in (85, 765)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o", "openai"),
        ("o3-mini", "openai"),
        ("azure/my-deployment", "openai"),
        ("openrouter/openai/o1", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("azure_ai/claude-opus-4-8", "anthropic"),
        ("bedrock/us.anthropic.claude-3-5-haiku-20241022-v1:0", "anthropic"),
        ("vertex_ai/gemini-2.5-pro", "gemini"),
        ("openrouter/google/gemini-3-flash-preview", "gemini"),
        ("Qwen/Qwen3-32B", "other"),
        ("kimi-k2.5", "other"),
        ("", "other"),
    ],
)
def test_a_models_name_points_to_its_family(model: str, family: str) -> None:
    assert model_family(model) == family


def test_importing_the_module_loads_no_imaging_library() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, ctxlab.tokens.images; assert 'PIL' not in sys.modules"],
        check=True,
    )
