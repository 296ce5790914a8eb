"""Tests that planting canaries changes only the ends of messages."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import chain
from pathlib import Path
from string import Formatter

import msgspec
import pytest
from compacting import summarised
from generated import IMAGE, TOOLS, conversations, strange_conversations
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.answer_matching import contains_answer
from ctxlab.evaluation.canaries import (
    ADJECTIVES,
    CANARY_KINDS,
    DEFAULT_DEPTHS,
    NOUNS,
    PLACES,
    THINGS,
    Canary,
    make_planter,
    plant_canaries,
    read_canaries,
)
from ctxlab.formats import load, write
from ctxlab.messages.entities import find_entities
from ctxlab.messages.types import Compaction, Message, Probe, Recording, ToolCall, message_text
from ctxlab.messages.validation import find_violations


def talk(turns: int = 40, id: str = "talk") -> Recording:
    """Return a chat without tools whose messages have the same length."""
    roles = ("user", "assistant")
    said = [Message(roles[i % 2], f"This is line number {i:03d}.") for i in range(2 * turns)]
    return Recording(id, (Message("system", "Be brief."), *said))


def agent(steps: int = 20) -> Recording:
    """Return a recording with tool calls; half of the results are JSON."""
    messages = [Message("system", "Be careful."), Message("user", "Mend the importer.")]
    for i in range(steps):
        call = ToolCall(f"c{i}", "read", f'{{"path": "src/part_{i}.py"}}')
        said = "I look at it." if i % 3 == 0 else None
        text = f'{{"lines": [{i}, {i}]}}' if i % 2 else f"line one of {i}\nline two of {i}"
        messages += [
            Message("assistant", said, tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    return Recording("agent", (*messages, Message("assistant", "Done.")))


COUNTS = st.integers(1, 12)


def planted_if_there_is_room(recording: Recording, n: int, seed: int) -> Recording:
    try:
        return plant_canaries(recording, n, seed=seed)
    except SpecError as error:
        if "messages before the last request" in str(error):
            assume(False)
        raise


@given(st.one_of(conversations(), strange_conversations()), COUNTS, st.integers(0, 99))
def test_nothing_but_the_ends_of_texts_changes(
    messages: tuple[Message, ...], n: int, seed: int
) -> None:
    before = Recording("r", messages, TOOLS, cluster="c", compactions=(Compaction(1),))
    after = planted_if_there_is_room(before, n, seed)
    assert len(read_canaries(after)) == n
    assert after.request_positions == before.request_positions
    assert find_violations(after.messages) == find_violations(before.messages)
    assert (after.tools, after.cluster, after.compactions) == (TOOLS, "c", (Compaction(1),))
    changed = set()
    for place, (old, new) in enumerate(zip(before.messages, after.messages, strict=True)):
        if old != new:
            changed.add(place)
            assert old.replace(content=None) == new.replace(content=None)
            assert new.text.startswith(old.text)
            assert len(new.text) > len(old.text)
            assert old.role != "system"
        if isinstance(old.content, tuple) and old.content:
            assert isinstance(new.content, tuple)
            assert [p for p in new.content if p == IMAGE] == [p for p in old.content if p == IMAGE]
    places = [c.position for c in read_canaries(after)]
    olds = [c.old_position for c in read_canaries(after) if c.old_position is not None]
    assert sorted([*places, *olds]) == sorted(changed)


@given(st.one_of(conversations(), strange_conversations()), COUNTS, st.integers(0, 99))
def test_every_value_stands_once_in_its_own_message_before_the_last_request(
    messages: tuple[Message, ...], n: int, seed: int
) -> None:
    after = planted_if_there_is_room(Recording("r", messages), n, seed)
    canaries = read_canaries(after)
    values = {c.value: c.position for c in canaries} | {
        c.old: c.old_position for c in canaries if c.old is not None
    }
    assert len(values) == n + sum(c.kind == "superseded" for c in canaries)
    for value, position in values.items():
        assert [
            i for i, m in enumerate(after.messages) if contains_answer(message_text(m), value)
        ] == [position]
        assert position is not None
        assert position < max(after.request_positions)
    for canary in canaries:
        if canary.kind == "superseded":
            assert canary.old_position is not None
            assert canary.old_position < canary.position


def test_no_pattern_takes_a_value_for_a_name_but_that_of_a_path() -> None:
    after = plant_canaries(talk(), 25)
    sentences = [m.text for m, old in zip(after.messages, talk().messages, strict=True) if m != old]
    assert len(sentences) == 30
    for canary in read_canaries(after):
        found = find_entities(canary.value)
        if canary.kind == "path":
            assert [tuple(entity) for entity in found] == [("path", canary.value)]
        else:
            assert found == ()
    named = [entity.text for text in sentences for entity in find_entities(text)]
    assert sorted(named) == sorted(c.value for c in read_canaries(after) if c.kind == "path")


def test_the_words_are_plain_and_none_stands_in_two_lists() -> None:
    words = [*chain(ADJECTIVES, NOUNS, PLACES, THINGS)]
    assert all(re.fullmatch("[a-z]{3,}", word) for word in words)
    assert len(set(words)) == len(words)
    for kind in CANARY_KINDS.values():
        fields = {name for _, name, _, _ in Formatter().parse(kind.statement) if name}
        assert fields == {"thing", "place", "value"}
        asked = {name for _, name, _, _ in Formatter().parse(kind.question) if name}
        assert asked == {"thing", "place"}


def test_a_value_that_the_recording_says_anywhere_is_not_used() -> None:
    first = read_canaries(plant_canaries(talk(), 5))
    taken = [c.value for c in first] + [c.old for c in first if c.old]
    tools = ({"type": "function", "function": {"name": "f", "description": taken[0]}},)
    said = Message("user", f"Is it the {taken[1].upper()}?")
    base = talk()
    again = plant_canaries(
        msgspec.structs.replace(
            base,
            messages=(base.messages[0], said, *base.messages[2:]),
            tools=tools,
            compactions=(summarised(base.messages, 9, f"They said {taken[2]}."),),
        ),
        5,
    )
    second = {c.value for c in read_canaries(again)}
    assert not second & set(taken[:3])


def test_the_same_seed_plants_the_same_and_another_recording_gets_others() -> None:
    one = plant_canaries(talk(), 10, seed=7)
    assert one == plant_canaries(talk(), 10, seed=7)
    other_seed, other_id = (
        plant_canaries(talk(), 10, seed=8),
        plant_canaries(talk(id="other"), 10, seed=7),
    )
    for other in (other_seed, other_id):
        assert not {c.value for c in read_canaries(one)} & {c.value for c in read_canaries(other)}


def test_each_canary_has_a_probe_of_its_own_beside_those_that_are_there() -> None:
    known = Probe("canary-0", "Who?", ("Mia",))
    after = plant_canaries(msgspec.structs.replace(talk(), probes=(known,)), 10)
    assert after.probes[0] == known
    assert len({probe.id for probe in after.probes}) == 11
    assert len({probe.question for probe in after.probes}) == 11
    for canary, probe in zip(read_canaries(after), after.probes[1:], strict=True):
        assert probe.id == canary.id
        assert (probe.answers, probe.evidence) == ((canary.value,), (canary.position,))
        assert (probe.category, probe.position) == (f"canary:{canary.kind}", None)
        assert not contains_answer(probe.question, canary.value)


def test_five_kinds_at_five_depths_are_crossed_and_stand_where_they_are_said_to() -> None:
    after = plant_canaries(talk(200), 25)
    assert Counter((c.kind, c.depth) for c in read_canaries(after)) == Counter(
        {(kind, depth): 1 for kind in CANARY_KINDS for depth in DEFAULT_DEPTHS}
    )
    for canary in read_canaries(after):
        assert abs(canary.at - canary.depth) < 0.02
        assert abs(canary.position / 400 - canary.depth) < 0.02


@pytest.mark.simulations
def test_no_kind_stands_deeper_than_another_over_many_recordings() -> None:
    depths: dict[str, list[float]] = {kind: [] for kind in CANARY_KINDS}
    for i in range(200):
        for canary in read_canaries(plant_canaries(talk(20, f"r{i}"), 5)):
            depths[canary.kind].append(canary.depth)
    means = {kind: sum(found) / len(found) for kind, found in depths.items()}
    assert max(means.values()) - min(means.values()) < 0.12, means


def test_a_depth_is_where_it_really_stands_where_no_message_is_near() -> None:
    short = [Message("user" if i % 2 == 0 else "assistant", f"line {i}") for i in range(8)]
    huge = Message("user", "word " * 9000)
    recording = Recording("huge", (*short, huge, *short[1:]))
    (canary,) = read_canaries(plant_canaries(recording, 1, "fact", (0.2, 0.9)))
    assert canary.depth == min((0.2, 0.9), key=lambda share: abs(share - canary.at))


def test_kinds_stand_in_messages_of_fitting_roles_and_break_no_json() -> None:
    after = plant_canaries(agent(60), 25)
    for canary in read_canaries(after):
        old, new = agent(60).messages[canary.position], after.messages[canary.position]
        assert old.tool_calls == new.tool_calls
        assert not old.text.startswith("{")
        if canary.kind == "decision":
            assert canary.role == "assistant"
        elif canary.kind == "path":
            assert canary.role in ("tool", "assistant")
        else:
            assert canary.role == "tool"


def test_where_no_message_fits_the_nearest_holds_it() -> None:
    users = [Message("user", f"line {i}") for i in range(30)]
    (canary,) = read_canaries(
        plant_canaries(Recording("r", (*users, Message("assistant", "done"))), 1, "decision", 0.5)
    )
    assert (canary.role, abs(canary.at - 0.5) < 0.05) == ("user", True)


def test_the_task_is_no_place_for_a_canary() -> None:
    after = plant_canaries(talk(20), 10, depths=0.0)
    assert min(c.position for c in read_canaries(after)) == 2


def test_what_is_planted_survives_the_native_format(tmp_path: Path) -> None:
    after = plant_canaries(agent(), 10)
    text = io.StringIO()
    assert not write([after], text, "native")
    (tmp_path / "planted.jsonl").write_text(text.getvalue(), encoding="utf-8")
    (again,) = load(tmp_path / "planted.jsonl")
    assert read_canaries(again) == read_canaries(after)
    assert (again.messages, again.probes) == (after.messages, after.probes)


def test_planting_twice_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^talk: already has canaries"):
        plant_canaries(plant_canaries(talk(), 2), 2)


def test_what_has_no_room_says_how_much_there_is() -> None:
    small = Recording("small", talk(3).messages)
    assert len(read_canaries(plant_canaries(small, 3, "fact"))) == 3
    with pytest.raises(SpecError, match=r"^small: 3 canaries need 6 suitable messages .* got 4"):
        plant_canaries(small, 3, "superseded")
    with pytest.raises(SpecError, match=r"^small: 99 canaries need 99 .* plant fewer"):
        plant_canaries(small, 99, "fact")
    for nothing in ((), (Message("user", "hi"),), (Message("system", "x"), Message("assistant"))):
        with pytest.raises(SpecError, match="request, got 0"):
            plant_canaries(Recording("nothing", nothing), 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "expected 1 to"),
        ({"n": True}, "expected 1 to"),
        ({"n": 10**6}, "expected 1 to"),
        ({"kinds": ()}, "at least one kind"),
        ({"depths": ()}, "one depth"),
        ({"depths": 1.5}, "expected shares from 0 to 1, got 1.5"),
        ({"depths": (0.5, -1)}, "expected shares from 0 to 1, got -1"),
        ({"depths": ("deep",)}, "expected shares from 0 to 1, got 'deep'"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        plant_canaries(talk(), **arguments)  # type: ignore[arg-type]


def test_a_kind_that_is_not_known_offers_those_near_it() -> None:
    with pytest.raises(UnknownName, match="did you mean decision"):
        make_planter(1, "decisions", 0.5, 0)


def test_canaries_that_cannot_be_are_refused_where_they_are_read() -> None:
    base = talk(2)
    wrong = Canary("canary-0", "fact", "red fox", 99, "user", 0.5, 0.5)
    for meta, says in (
        ([msgspec.to_builtins(wrong)], "got 99"),
        ([{"id": 1}], "meta has invalid canaries"),
    ):
        with pytest.raises(SpecError, match=says):
            read_canaries(msgspec.structs.replace(base, meta={"canaries": meta}))


def test_several_recordings_at_once_are_refused_with_the_remedy() -> None:
    talk = Recording("r", (Message("user", "a"), Message("assistant", "b")))
    with pytest.raises(
        SpecError, match=r"got list; use \[plant_canaries\(each\) for each in recordings\]"
    ):
        plant_canaries([talk, talk])  # type: ignore[arg-type]
