"""Tests of the structured digest: bounded, deterministic, extended from its own text, with names."""

from __future__ import annotations

import json
import re

import pytest
from generated import RESULTS, TEXTS, conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.entities import contains_entity
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.summaries.llm import load_prompt
from ctxlab.strategies.summaries.structured import SECTIONS, extract_structured_summary

SIZES = st.sampled_from([0, 10, 60, 200, 1000, 8000])
SAYS = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from(TEXTS + RESULTS[:80]),
    )
)


def calls(name: str, **arguments: str) -> Message:
    return Message("assistant", None, tool_calls=(ToolCall("c", name, json.dumps(arguments)),))


def sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line.startswith("## "):
            found[line[3:]] = []
        else:
            found[list(found)[-1]].append(line)
    return found


@given(SAYS | conversations(), SAYS | conversations(), SIZES)
def test_a_digest_is_never_longer_than_allowed_and_is_deterministic(
    first: list[Message], then: list[Message], limit: int
) -> None:
    summary = extract_structured_summary(extract_structured_summary("", first, limit), then, limit)
    assert len(summary) <= limit
    assert summary == extract_structured_summary(
        extract_structured_summary("", first, limit), then, limit
    )


@given(SAYS | conversations(), st.sampled_from([200, 1000, 8000]))
def test_its_text_is_all_that_it_remembers(messages: list[Message], limit: int) -> None:
    roomy = extract_structured_summary("", messages, 10**6)
    assert extract_structured_summary(roomy, [], 10**6) == roomy
    middle = len(messages) // 2
    assert extract_structured_summary(
        extract_structured_summary("", messages[:middle], 10**6), messages[middle:], limit
    ) == extract_structured_summary("", messages, limit)


def test_each_thing_stands_in_its_section() -> None:
    talk = [
        Message("user", "Now make the writer flush too"),
        Message("assistant", "The bug is in the buffer. I will flush it on close.", tool_calls=(
            ToolCall("a", "read", '{"path": "src/io.py"}'),
            ToolCall("b", "bash", '{"command": "pytest tests/test_io.py -k flush_all"}'),
        )),
        Message("tool", "class BufferedWriter:\n    ...", tool_call_id="a"),
        Message("tool", "collected 1\nValueError: I/O on closed file\n1 failed", tool_call_id="b"),
        calls("edit", path="src/writer.py", old="a", new="b"),
        Message("assistant", "Next I run the tests again."),
    ]  # fmt: skip
    assert sections(extract_structured_summary("", talk, 4000)) == {
        "Goal": ["- Now make the writer flush too"],
        "Decisions": ["- The bug is in the buffer."],
        "Files edited": ["src/writer.py"],
        "Files read": ["src/io.py"],
        "Commands": ["- pytest tests/test_io.py -k flush_all"],
        "Names used": ["tests/test_io.py", "flush_all"],
        "Names seen": ["BufferedWriter", "ValueError"],
        "Open problems": ["- ValueError: I/O on closed file"],
        "Next step": ["- Next I run the tests again."],
    }


def test_newest_lines_stay_and_what_went_is_counted_over_several_rounds() -> None:
    summary = ""
    for start in range(0, 400, 40):
        talk = [calls("read", path=f"src/module_{i}.py") for i in range(start, start + 40)]
        summary = extract_structured_summary(summary, talk, 1200)
    read = sections(summary)["Files read"]
    assert read[0] == f"[… {400 - len(read) + 1} more]"
    assert read[1:] == [f"src/module_{i}.py" for i in range(401 - len(read), 400)]


def test_what_comes_again_is_new_again() -> None:
    talk = [calls("read", path=f"src/module_{i}.py") for i in (*range(300), 0)]
    assert (
        sections(extract_structured_summary("", talk, 800))["Files read"][-1] == "src/module_0.py"
    )


def test_a_name_is_said_once_where_it_says_most() -> None:
    talk = [
        Message("tool", "src/io.py and src/other.py"),
        calls("read", path="src/io.py"),
        calls("edit", path="src/io.py"),
    ]
    assert sections(extract_structured_summary("", talk, 2000)) == {
        "Files edited": ["src/io.py"],
        "Names seen": ["src/other.py"],
    }


@given(SAYS | conversations(), st.sampled_from([100, 200, 400, 1000]))
def test_a_path_or_a_name_is_whole_or_gone(messages: list[Message], limit: int) -> None:
    summary = extract_structured_summary("", messages, limit)
    if not summary:
        return
    said = "\n".join(
        "\n".join(
            (m.text, *(str(leaf) for call in m.tool_calls for _, leaf in call.argument_leaves()))
        )
        for m in messages
    )
    for heading, lines in sections(summary).items():
        if heading.startswith(("Files", "Names")):
            for line in lines:
                known = re.fullmatch(r"\[… \d+ more\]", line)
                assert (
                    known
                    or contains_entity(said, line)
                    or contains_entity(said.replace("\\", "/"), line)
                )


@pytest.mark.parametrize("path", ["## Goal", "[… 3 more]", "a\nb", "- b"])
def test_no_name_is_taken_for_something_else_when_the_digest_is_read_again(path: str) -> None:
    summary = extract_structured_summary(
        "", [calls("read", path=path), calls("read", path="src/io.py")], 1000
    )
    assert extract_structured_summary(summary, [], 1000) == summary
    assert path not in sections(summary)["Files read"]


def test_it_goes_on_from_a_summary_that_a_model_wrote() -> None:
    wrote = "Here it is.\n## Goal\n- Fix it\n## Files read\n- `src/a.py`\n\n## Risks\n- none yet\n"
    summary = extract_structured_summary(wrote, [calls("read", path="src/b.py")], 1000)
    assert sections(summary) == {
        "Goal": ["- Fix it"],
        "Decisions": ["Here it is.", "- none yet"],
        "Files read": ["src/a.py", "src/b.py"],
    }


def test_a_model_is_asked_for_the_same_sections() -> None:
    headings = re.findall(r"^## (.*)$", load_prompt("structured"), re.MULTILINE)
    assert headings == [section.heading for section in SECTIONS]
    assert sum(section.share for section in SECTIONS) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", " \n ", None])
def test_there_is_no_line_for_what_says_nothing(text: str | None) -> None:
    assert extract_structured_summary("", [Message("user", text), Message("tool", text)], 400) == ""
