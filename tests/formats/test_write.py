"""Tests of ``write``: files read back equal, losses are reported, and no partial files remain."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from anything import any_recordings
from generated import TOOLS, conversations
from hypothesis import given

from ctxlab import evaluate
from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.errors import SpecError, UnknownName
from ctxlab.formats import FORMATS, Format, load, write
from ctxlab.formats.io.files import open_file
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.tokens.counter import TokenCounter

WRITTEN = [format.name for format in FORMATS.values() if format.dump]
EXCUSES = {
    "role": ("role of a late system message",),
    "content": (
        *("text parts of a message", "detail of an image", "detail of a text part", "part of"),
    ),
    "tool_calls": (
        *("arguments of a call", "id of a call", "call by a", "JSON formatting of the arguments"),
    ),
    "tool_call_id": ("id of a call", "tool_call_id of a"),
    "name": ("name of a message",),
    "reasoning": ("reasoning of a message",),
    "usage": ("usage of a message",),
    "time": ("time of a message",),
    "file": ("active file of a message",),
    "extra": ("extra of a message",),
}
HI = Recording("hi", (Message("user", "hi"), Message("assistant", "hello")))
every_target = pytest.mark.parametrize("to", WRITTEN)


def again(recording: Recording, to: str) -> tuple[Recording, Counter[str]]:
    """Write and read a recording; return it with the counts of lost data."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        lost = write([recording], path, to)
        (read,) = load(path, format=to)
    return read, lost


@pytest.mark.parametrize("to", ["openai", "anthropic"])
@given(recording=any_recordings())
def test_what_is_not_carried_is_told(to: str, recording: Recording) -> None:
    if not recording.messages:
        assert write([recording], io.StringIO(), to)["recording without messages"] == 1
        return
    read, lost = again(recording, to)
    before, after = recording.messages, read.messages
    if joined := lost["boundary between system messages"]:
        before, after = before[joined + 1 :], after[1:]
    assert len(before) == len(after)
    for key, reasons in EXCUSES.items():
        if not any(reason in told for told in lost for reason in reasons):
            # An empty content counts like one that is absent.
            mine, theirs = ([getattr(m, key) or None for m in some] for some in (before, after))
            assert mine == theirs, key
    if not lost["detail of a tool definition"]:
        assert read.tools == recording.tools
    assert read.model == recording.model
    for key, name in (("probes", "probe"), ("compactions", "compaction")):
        assert lost[name] == len(getattr(recording, key))
    for key in ("cluster", "meta"):
        assert lost[f"{key} of a recording"] or not getattr(recording, key)


@pytest.mark.properties(smoke=True)
@every_target
@given(messages=conversations())
def test_a_conversation_that_an_api_takes_is_carried_whole(
    to: str, messages: tuple[Message, ...]
) -> None:
    spelt = [
        m.replace(
            content=m.content or None,
            tool_calls=tuple(ToolCall(c.id, c.name, '{"path":"a b"}') for c in m.tool_calls),
            extra={},
        )
        for m in messages
    ]
    recording = Recording("r", tuple(spelt), tools=TOOLS, model="gpt-5")
    read, lost = again(recording, to)
    if lost:
        assert to == "atif"  # JSON as it is read there has no lone surrogates
        return
    assert [m.replace(content=m.content or None) for m in read.messages] == spelt
    assert (read.tools, read.model) == (recording.tools, recording.model)


@pytest.mark.properties
@every_target
def test_the_numbers_of_a_conversion_are_those_of_the_original(to: str) -> None:
    messages = [Message("system", "Be careful."), Message("user", "Repair src/part_0.py")]
    for turn in range(12):
        call = ToolCall(f"c{turn}", "read", f'{{"path":"src/part_{turn % 5}.py"}}')
        text = f"see src/part_{turn % 5 + 1}.py\n" + f"value_{turn} = {turn * 7}\n" * 200
        messages.append(Message("assistant", "I look." * (turn % 2), tool_calls=(call,)))
        messages.append(Message("tool", text, tool_call_id=call.id))
    messages.append(Message("assistant", "Done."))
    recording = Recording("r", tuple(messages), tools=TOOLS, model="gpt-5")
    read, _ = again(recording, to)
    boards = [evaluate([r], workers=1, progress=False).leaderboard() for r in (recording, read)]
    assert boards[0].equals(boards[1])


@pytest.mark.properties(smoke=True)
@every_target
@pytest.mark.parametrize(
    "where", ["claude-code-entireio/*.jsonl", "tau-bench", "mini-swe-agent/*-13*.json"]
)
def test_real_messages_count_the_same_but_for_what_was_told(
    to: str, where: str, data: Path, counter: TokenCounter
) -> None:
    for recording, _ in zip(load(data / where), range(5), strict=False):
        read, lost = again(recording, to)
        assert len(read.messages) == len(recording.messages)
        for before, after in zip(recording.messages, read.messages, strict=True):
            if lost["name of a message"]:
                before = before.replace(name=None)
            if lost["JSON formatting of the arguments of a call"]:
                before = before.replace(tool_calls=tuple(map(spelt_anew, before.tool_calls)))
            assert before.role == after.role
            assert counter.count_message(before) == counter.count_message(after)
        assert counter.count_tools(read.tools) == counter.count_tools(recording.tools)


def spelt_anew(call: ToolCall) -> ToolCall:
    return ToolCall(call.id, call.name, dump_json(parse_json(call.arguments)))


@given(recording=any_recordings())
def test_native_has_a_place_for_everything(recording: Recording) -> None:
    assert not write([recording], io.StringIO(), "native")


def test_a_folder_gets_a_file_for_each_called_like_its_id(tmp_path: Path) -> None:
    ids = [
        "air/task-3",
        "../../etc/pass wd",
        "a:b\x00\ud800",
        "AIR/Task-3",
        "//",
        "air/task-3.jsonl/x",
    ]
    out = f"{tmp_path}/new/"
    write([Recording(id, HI.messages) for id in ids], out)
    found = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {
        "new/air/task-3.jsonl",
        "new/etc/pass wd.jsonl",
        "new/a_b__.jsonl",
        "new/AIR/Task-3-2.jsonl",
        "new/recording.jsonl",
        "new/air/task-3.jsonl_/x.jsonl",
    }
    assert {recording.id for recording in load(out)} == set(ids)


def test_a_long_id_is_cut_and_stays_unlike_others(tmp_path: Path) -> None:
    write([Recording("語" * 300 + end, HI.messages) for end in "ab"], tmp_path)
    assert sorted(len(path.stem) for path in tmp_path.iterdir()) == [40, 42]


def test_a_file_holds_recordings_one_after_the_other(tmp_path: Path) -> None:
    write([HI, HI], tmp_path / "deep" / "both.jsonl", "openai")
    assert [r.id for r in load(tmp_path / "deep" / "both.jsonl")] == ["both", "both#2"]


@pytest.fixture
def one() -> Format:
    native = FORMATS["native"]
    return Format(
        "one", "one a file", native.sniff, native.read, native.dump, single_recording=True
    )


def test_a_format_that_holds_one_recording_takes_no_second_in_a_file(
    one: Format, tmp_path: Path
) -> None:
    for out in (tmp_path / "a.json", io.StringIO()):
        with pytest.raises(SpecError, match="write to a folder"):
            write([HI, HI], out, one)
    assert not list(tmp_path.iterdir())
    write([HI, HI], tmp_path, one)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hi-2.json", "hi.json"]


def test_what_is_there_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(SpecError, match="--force"):
        write([HI], path)
    with pytest.raises(SpecError, match="--force"):
        write([Recording("a", HI.messages)], tmp_path)
    assert path.read_text() == "mine"
    write([HI], path, force=True)
    assert next(load(path)).messages == HI.messages


def test_a_file_that_is_read_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hi.jsonl"
    write([HI, Recording("b", HI.messages)], path)
    before = path.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(path)
    for out in (path, tmp_path / "link.jsonl", tmp_path):
        with pytest.raises(SpecError, match="is being read"):
            write(load(path), out, force=True)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def failing() -> Iterator[Recording]:
        yield HI
        raise ValueError("no more")

    (tmp_path / "kept.jsonl").write_text("kept")
    for out in (tmp_path / "kept.jsonl", tmp_path / "new" / "a.jsonl", tmp_path, f"{tmp_path}/b/"):
        with pytest.raises(ValueError, match="no more"):
            write(failing(), out, force=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept.jsonl": "kept"}


def test_only_a_format_that_is_written_can_be_asked_for() -> None:
    with pytest.raises(SpecError, match=f"choose from {', '.join(WRITTEN)}"):
        write([HI], io.StringIO(), "tau-bench")
    with pytest.raises(UnknownName, match="did you mean openai"):
        write([HI], io.StringIO(), "opena")
    with pytest.raises(SpecError, match="expected a local path, got a URL"):
        write([HI], "s3://bucket/a.jsonl")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file" / "a.jsonl", f"{tmp_path}/file/"):
        with pytest.raises(SpecError, match="expected a folder, got a file"):
            write([HI], out)


@pytest.mark.properties
def test_what_is_nested_too_deeply_is_an_error_of_ours() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SpecError, match="nested too deeply"):
        write([Recording("a", HI.messages, meta={"deep": deep})], io.StringIO())


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_file_is_packed_as_its_name_says(tmp_path: Path, suffix: str) -> None:
    path, plain = tmp_path / f"a.jsonl{suffix}", tmp_path / "a.jsonl"
    for each in (path, plain):
        write([HI, Recording("two", HI.messages)], each)
    assert path.read_bytes()[:4] != plain.read_bytes()[:4]
    with open_file(path) as file:
        assert file.read() == plain.read_bytes()


def test_an_empty_place_to_write_to_is_refused() -> None:
    with pytest.raises(SpecError, match="empty"):
        write([HI], "")
