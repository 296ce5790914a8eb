"""Tests of the paths of images in a message: as users type them, and as terminals drop them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from ctxlab.cli.chat.image_paths import find_image_paths


@pytest.mark.parametrize(
    "text",
    [
        *("see {name}.", "@{name}", "({name})", "what is '{name}'?", '"{name}" and "{name}"'),
        *("{folder}/{name}", "'{folder}/{name}'", "file://{folder}/{name}", "./{name}, ok"),
    ],
)
def test_a_path_is_found_in_a_message(tmp_path: Path, text: str) -> None:
    (tmp_path / "Shot-1.PNG").touch()
    found = find_image_paths(text.format(name="Shot-1.PNG", folder=tmp_path), tmp_path)
    assert [path.resolve() for path in found.values()] == [(tmp_path / "Shot-1.PNG").resolve()]


@pytest.mark.parametrize("form", ["'{}'", '"{}"', "{escaped}", "file://{quoted}"])
def test_spaces_in_a_path_are_quoted_or_escaped(tmp_path: Path, form: str) -> None:
    path = tmp_path / "my last shot.webp"
    path.touch()
    escaped = str(path).replace(" ", r"\ ")
    text = form.format(path, escaped=escaped, quoted=quote(str(path)))
    assert list(find_image_paths(f"What is {text} about?", tmp_path).values()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        *("no.png", "notes.txt", "folder.png", "*.png", "~nobody-has-this-name/a.png", "a\0.png"),
        *("https://example.org/shot.png", "shot.png.txt", "x" * 5_000 + ".png", "my shot .png"),
    ],
)
def test_other_words_are_no_images(tmp_path: Path, text: str) -> None:
    (tmp_path / "shot.png").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder.png").mkdir()
    assert find_image_paths(text, tmp_path) == {}
