"""Tests of the reader of tables: columns, conversations in rows, and messages in rows."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import HERE, files_of, packed

from ctxlab.errors import ReadError, SpecError, UnknownFormat, UnknownName
from ctxlab.formats import load
from ctxlab.messages.types import Recording

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    {"role": "assistant", "content": "One file."},
]


def parquet(path: Path, *rows: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, **options)
    return path


def table(path: Path, *rows: dict[str, Any], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def roles(recording: Recording) -> list[str]:
    return [message.role for message in recording.messages]


def test_nested_messages_and_json_text_are_the_same_conversation(tmp_path: Path) -> None:
    nested = parquet(tmp_path / "a.parquet", {"messages": CHAT, "id": "x"})
    text = parquet(tmp_path / "b.parquet", {"messages": json.dumps(CHAT), "id": "x"})
    (one,), (other,) = load(nested), load(text)
    assert one.messages == other.messages
    assert roles(one) == ["user", "assistant", "tool", "assistant"]
    assert one.messages[1].tool_calls[0].arguments == '{"path": "."}'


@pytest.mark.parametrize("name", ["messages", "conversation", "Trajectory", "traj", "history"])
def test_a_column_of_messages_is_recognised_by_its_name(tmp_path: Path, name: str) -> None:
    (recording,) = load(parquet(tmp_path / "a.parquet", {"k": 1, name: CHAT}))
    assert len(recording.messages) == 4


def test_a_count_of_messages_is_not_a_column_of_messages(tmp_path: Path) -> None:
    path = table(tmp_path / "index.tsv", {"file": "a", "messages": 12}, delimiter="\t")
    with pytest.raises(UnknownFormat):
        list(load(path))


def test_ids_clusters_models_tools_and_meta_are_read_from_other_columns(tmp_path: Path) -> None:
    row = {
        "trajectory_id": "run-1",
        "instance_id": "task-9",
        "model_name": "gpt-5",
        "tools": [json.dumps({"name": "ls", "input_schema": {"type": "object"}})],
        "resolved": True,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "patch": "x" * 5_000,
        "trajectory": CHAT,
    }
    (recording,) = load(parquet(tmp_path / "runs.parquet", row))
    assert (recording.id, recording.cluster, recording.model) == ("runs/run-1", "task-9", "gpt-5")
    assert recording.tools[0]["function"]["name"] == "ls"
    at = "2026-01-02T00:00:00+00:00"
    assert recording.meta == {"trajectory_id": "run-1", "resolved": True, "at": at}


def test_named_columns_take_precedence_over_known_ones(tmp_path: Path) -> None:
    row = {"messages": CHAT, "history": CHAT[:1], "instance_id": "a-1", "repo": "a", "key": 7}
    path = parquet(tmp_path / "a.parquet", row)
    (recording,) = load(path, columns="messages=history,id=key,cluster=repo")
    assert (len(recording.messages), recording.id, recording.cluster) == (1, "a/7", "a")


def test_json_lines_are_a_table_if_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"log": CHAT, "key": k}) + "\n" for k in "xy"))
    found = list(load(path, columns={"messages": "log", "id": "key"}))
    assert [(each.id, len(each.messages)) for each in found] == [("a/x", 4), ("a/y", 4)]


def test_a_folder_is_searched_for_files_with_the_named_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"log": CHAT}))
    (tmp_path / "b.jsonl").write_text(json.dumps({"messages": CHAT}))
    told: list[str] = []
    found = load(tmp_path, columns="messages=log", on_skip=lambda path, _: told.append(str(path)))
    assert [each.id for each in found] == ["a"]
    assert [Path(path).name for path in told] == ["b.jsonl"]


def test_an_unknown_or_malformed_field_is_rejected() -> None:
    with pytest.raises(UnknownName, match="did you mean messages"):
        load(HERE, columns="mesages=a")
    with pytest.raises(SpecError, match="expected pairs"):
        load(HERE, columns="messages")
    with pytest.raises(SpecError, match="name only one kind"):
        load(HERE, columns="messages=a,role=b")
    with pytest.raises(SpecError, match="expected the format table"):
        load(HERE, columns="messages=a", format="openai")


def test_a_missing_column_is_named_with_those_that_exist(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"messages": CHAT})
    with pytest.raises(
        ReadError, match=r"expected the column 'key' .id., but the columns are messages"
    ):
        list(load(path, columns="id=key"))


def test_a_table_without_messages_says_how_to_name_its_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"spent": 1, "at": 2})
    with pytest.raises(ReadError, match=r"name the columns with --input-columns.* spent, at"):
        list(load(path))


def test_null_values_of_other_rows_are_not_part_of_a_message(tmp_path: Path) -> None:
    rich = [{"role": "user", "content": "hi", "mood": "glad", "tool_calls": None}]
    path = parquet(tmp_path / "a.parquet", {"messages": rich}, {"messages": CHAT})
    _, second = load(path)
    assert [message.extra for message in second.messages] == [{}] * 4


def test_messages_of_other_apis_are_read(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "ls", "input": {"path": "."}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "a.py"}
    said = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, use]},
        {"role": "user", "content": [result]},
    ]
    (recording,) = load(parquet(tmp_path / "a.parquet", {"messages": json.dumps(said)}))
    assert roles(recording) == ["user", "assistant", "tool"]
    assert recording.messages[1].tool_calls[0].name == "ls"


def test_turns_of_sharegpt_are_read(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
    (recording,) = load(parquet(tmp_path / "a.parquet", {"conversations": turns}))
    assert roles(recording) == ["user", "assistant"]


def test_texts_and_roles_of_nebius_are_read(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "system_prompt": "Be brief.", "text": None},
        {"role": "user", "system_prompt": None, "text": "hi"},
        {"role": "ai", "system_prompt": None, "text": "hello"},
    ]
    (recording,) = load(parquet(tmp_path / "a.parquet", {"trajectory": turns}))
    assert [(m.role, m.content) for m in recording.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", "hello"),
    ]


def test_messages_of_swe_agent_are_read_without_repeating_thought_and_action(
    tmp_path: Path,
) -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": "Fix"}], "agent": "main"},
        {"role": "assistant", "content": "I look. ls", "thought": "I look.", "agent": "main"}
        | {"action": "ls", "tool_calls": [CALL]},
        {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["c1"]},
    ]
    (recording,) = load(parquet(tmp_path / "a.parquet", {"messages": json.dumps(said)}))
    assert recording.messages[1].extra == {}
    assert recording.messages[2].tool_call_id == "c1"


def test_the_messages_may_be_inside_an_object(tmp_path: Path) -> None:
    body = json.dumps({"system": "Be brief.", "model": "gpt-5", "messages": CHAT})
    (recording,) = load(parquet(tmp_path / "a.parquet", {"traj": body}))
    assert (roles(recording)[0], recording.model) == ("system", "gpt-5")


def test_a_malformed_row_is_named_or_skipped(tmp_path: Path) -> None:
    rows = [{"messages": json.dumps(CHAT)}, {"messages": "[{"}, {"messages": json.dumps(CHAT)}]
    path = parquet(tmp_path / "a.parquet", *rows)
    with pytest.raises(ReadError, match="row 1: column messages: expected JSON"):
        list(load(path))
    found = list(load(path, on_error="skip"))
    assert len(found) == 2
    assert found[-1].skipped == {"broken row: column messages: expected JSON with messages (1)": 1}


def test_text_of_a_python_list_is_explained(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"messages": str(CHAT)})
    with pytest.raises(ReadError, match=r"Python list, so write it with json\.dumps"):
        list(load(path))


def test_an_empty_conversation_is_counted(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"messages": CHAT}, {"messages": []})
    (recording,) = load(path)
    assert recording.skipped == {"conversation without messages (1)": 1}


def test_a_damaged_parquet_file_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"messages": CHAT})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ReadError, match=r"a\.parquet: broken Parquet file"):
        list(load(path))


def test_row_groups_and_batches_do_not_change_what_is_read(tmp_path: Path) -> None:
    rows = [{"messages": CHAT, "id": number} for number in range(40)]
    found = list(load(parquet(tmp_path / "a.parquet", *rows, row_group_size=7)))
    assert [each.id for each in found] == [f"a/{number}" for number in range(40)]


def test_a_csv_error_names_the_first_line_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    chat = json.dumps(CHAT, indent=1).replace('"', '""')
    path.write_text(f'id,messages\nx,"{chat}"\ny,"[{{"\n')
    line = 3 + chat.count("\n")
    with pytest.raises(ReadError) as caught:
        list(load(path))
    assert caught.value.line == line


def test_a_malformed_line_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"chat_id","role","content"\n"a","user","hi"\n"a"\n"a","assistant","yes"\n')
    (recording,) = load(path, on_error="skip")
    assert len(recording.messages) == 2
    assert recording.skipped == {"broken line: expected 3 columns, got 1 (3)": 1}


def test_a_line_of_a_csv_file_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('chat_id,role,content\na,user,"hi\n{}\n"\na,assistant,yes\n')
    (recording,) = load(path)
    assert recording.messages[0].content == "hi\n{}\n"


def test_a_row_with_too_few_columns_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    chat = json.dumps(CHAT).replace('"', '""')
    path.write_text(f'id,messages\nx,"{chat}"\ny\n')
    with pytest.raises(ReadError, match="3: expected 2 columns, got 1"):
        list(load(path))


def test_rows_of_messages_are_joined_and_sorted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"thread_id": thread, "turn": turn, "role": role, "text": f"{thread}{turn}", "site": "x"}
        for turn, role in ((1, "assistant"), (0, "user"))
        for thread in "ab"
    ]
    found = list(load(table(tmp_path / "t.csv", *rows)))
    assert [each.id for each in found] == ["t/a", "t/b"]
    assert [[m.content for m in each.messages] for each in found] == [["a0", "a1"], ["b0", "b1"]]
    assert found[0].meta == {"thread_id": "a", "site": "x"}


def test_values_that_differ_between_messages_are_their_extra(tmp_path: Path) -> None:
    rows = [
        {"session_id": 1, "role": "user", "content": "hi", "mood": "glad"},
        {"session_id": 1, "role": "assistant", "content": "hello", "mood": "calm"},
    ]
    (recording,) = load(parquet(tmp_path / "t.parquet", *rows))
    assert [message.extra for message in recording.messages] == [{"mood": "glad"}, {"mood": "calm"}]


def test_calls_and_times_in_columns_belong_to_their_message(tmp_path: Path) -> None:
    rows = [
        {"chat_id": 1, "role": "user", "content": "hi", "tool_calls": None, "time": 1_700_000_000},
        {"chat_id": 1, "role": "assistant", "content": "", "time": 1_700_000_001}
        | {"tool_calls": json.dumps([CALL])},
    ]
    (recording,) = load(parquet(tmp_path / "t.parquet", *rows))
    assert recording.messages[1].tool_calls[0].name == "ls"
    assert recording.messages[1].time == 1_700_000_001


def test_rows_of_messages_with_other_names_are_read_if_they_are_named(tmp_path: Path) -> None:
    rows = [
        {"ticket": 7, "who": "user", "said": "hi"},
        {"ticket": 7, "who": "assistant", "said": "hello"},
    ]
    path = table(tmp_path / "t.tsv", *rows, delimiter="\t")
    (recording,) = load(path, columns="role=who,content=said,id=ticket")
    assert (recording.id, roles(recording)) == ("t/7", ["user", "assistant"])


def test_a_row_without_the_id_of_its_conversation_is_counted(tmp_path: Path) -> None:
    rows = [
        {"chat_id": "a", "role": "user", "content": "hi"},
        {"chat_id": "", "role": "user", "content": "lost"},
    ]
    (recording,) = load(table(tmp_path / "t.csv", *rows))
    assert recording.skipped == {"line without the id of a conversation (3)": 1}


def test_an_order_that_is_not_a_number_is_an_error(tmp_path: Path) -> None:
    rows = [{"chat_id": "a", "turn": "first", "role": "user", "content": "hi"}]
    with pytest.raises(ReadError, match="column turn: expected a number, got 'first'"):
        list(load(table(tmp_path / "t.csv", *rows)))


def test_a_parquet_file_may_be_compressed_as_a_whole(tmp_path: Path) -> None:
    import gzip

    content = packed(files_of(HERE / "table.nested.parquet"))
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(content))
    assert [each.id for each in load(tmp_path)] == ["a/run-1", "a/run-2"]
