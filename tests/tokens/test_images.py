"""Tests of ``ctxlab.tokens.images``."""

from __future__ import annotations

import base64
import io
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ctxlab.tokens.images import _count_budgeted_patches, count_image_tokens, model_family

FAMILIES = ("openai", "anthropic", "gemini", "other", "gpt-6-sol", "gemini-3-pro")


def picture(width: int, height: int, kind: str = "PNG") -> str:
    buffer = io.BytesIO()
    Image.new("1" if kind == "PNG" else "RGB", (width, height)).save(buffer, kind)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{data}"


def part(url: Any, detail: str = "auto") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


CLAUDE_SIZES = ((200, 200), (1000, 1000), (1092, 1092), (1920, 1080), (2000, 1500), (3840, 2160))


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-sonnet-4-6", (64, 1296, 1521, 1560, 1564, 1560)),
        ("claude-opus-4.8", (64, 1296, 1521, 2691, 3888, 4784)),
    ],
)
def test_images_of_claude_count_as_in_the_tables_of_its_guide(
    model: str, tokens: tuple[int, ...]
) -> None:
    counts = [count_image_tokens(part(picture(*size)), model) for size in CLAUDE_SIZES]
    assert tuple(counts) == tokens


def test_a_page_that_claude_shrinks_by_its_tokens_counts_as_in_its_guide() -> None:
    page = 33 * 47  # of the guide's example, which is shrunk to 924 by 1307 pixels
    assert count_image_tokens(part(picture(1075, 1520)), "claude-sonnet-4-6") == page
    assert count_image_tokens(part(picture(1520, 1075)), "claude-sonnet-4-6") == page


@pytest.mark.parametrize(("width", "height", "patches"), [(1024, 1024, 1024), (1800, 2400, 1452)])
def test_patches_of_openai_count_as_in_the_examples_of_its_guide(
    width: int, height: int, patches: int
) -> None:
    parameters = {"factor": 1, "auto": (1_536, 1 << 30)}
    assert _count_budgeted_patches(width, height, "auto", parameters) == patches


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("gpt-4o", 1024, 1024, 765),  # the guide's examples of tiles
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-5-2025-08-07", 1024, 1024, 630),
        ("gpt-4o-mini", 1024, 1024, 25_501),
        ("o3", 1024, 1024, 675),
        ("gpt-5-mini", 1024, 1024, 1659),
        ("gpt-5.4", 2560, 1440, 2765),
        ("gpt-5.5", 4032, 3024, 11_868),  # measured, as are those of GPT-6
        ("gpt-6-sol", 256, 256, 77),
        ("gpt-6-sol", 2560, 1440, 4320),
        ("gpt-6-sol", 4032, 3024, 14_364),
        ("gemini-2.5-pro", 384, 384, 258),
        ("gemini-2.5-pro", 1024, 1024, 4 * 258),
        ("gemini-3.8-flash", 10, 4000, 1120),
        ("never heard of", 1024, 1024, 765),
        ("openai", 1024, 1024, 765),  # a family, as litellm counts
    ],
)
def test_a_size_counts_by_the_rule_of_the_model(
    model: str, width: int, height: int, tokens: int
) -> None:
    assert count_image_tokens(part(picture(width, height)), model) == tokens


@pytest.mark.parametrize(
    ("model", "detail", "tokens"),
    [
        ("gpt-4o", "low", 85),
        ("gpt-6-sol", "low", 256 * 1.2),
        ("gpt-6-sol", "high", 2500 * 1.2),
        ("gpt-5.4", "original", 10_000 * 1.2),
        ("gemini-3-pro", "low", 280),
        ("gemini-3-pro", "ultra_high", 2240),
    ],
)
def test_the_level_of_detail_bounds_the_tokens(model: str, detail: str, tokens: float) -> None:
    count = count_image_tokens(part(picture(5000, 5000), detail), model)
    assert 0.97 * tokens < count <= math.ceil(tokens)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_every_accepted_format_is_read(kind: str) -> None:
    assert count_image_tokens(part(picture(300, 300, kind)), "anthropic") == 121


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
