"""Tests that both stores give the same results and the same errors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anything import any_messages, any_objects, any_texts
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numbering import assert_numbers_agree

from ctxlab.errors import CtxlabError
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import AgentPlan, ResumeState, SearchHit, Session, SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.sqlite.store import SqliteStore

CAPS = ResumeCaps(messages=5, message_chars=200, total_chars=900, summary_chars=300)
GOOD = ("a", "b", "c.1")
BAD = ("", ".a", "a/b", "../a", "a\0", "\ud800", "%", "é", "x" * 101)

_ids = st.sampled_from(GOOD) | st.sampled_from(["a"] * 30 + [*GOOD * 4, *BAD, "nobody"])
_names = st.none() | any_texts
_words = st.lists(
    st.sampled_from(["fix", "the", "Parser", "STRASSE", "straße", "日本", "日 本", "語"])
)
_said = _words.map(" ".join)
_messages = any_messages | st.builds(Message, st.sampled_from(["user", "assistant"]), _said)
_numbers = st.integers(-3, 12)
_times = st.none() | st.sampled_from([0.0, 4e9])


def told(answer: Any) -> Any:
    """Return an answer without times and search scores, which may differ between the stores."""
    if isinstance(answer, Session):
        titles = [(t.title, t.turn, t.interaction_id) for t in answer.titles]
        return {
            **{name: getattr(answer, name) for name in Session.__dataclass_fields__},
            "created": 0,
            "updated": 0,
            "titles": titles,
        }
    if isinstance(answer, SearchHit):
        place = answer.session_id, answer.turn, answer.label, answer.position
        return *place, answer.role, answer.snippet
    if isinstance(answer, Recording):
        meta = {key: value for key, value in answer.meta.items() if key != "created"}
        return answer.id, answer.messages, answer.tools, answer.model, meta
    if isinstance(answer, ResumeState | AgentPlan | tuple | dict | int) or answer is None:
        return answer
    some = list(answer)
    if all(isinstance(each, SearchHit | Session) for each in some):
        return sorted((told(each) for each in some), key=repr)
    return some


class BothStores(RuleBasedStateMachine):
    """Random operations on a JSONL store and a SQLite store, with the same results expected."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores: list[SessionStore] = self._opened()
        self.said: dict[str, list[Message]] = {}

    def _opened(self) -> list[SessionStore]:
        chunks = JsonlStore(self.folder / "c", max_history=3, fsync="never", caps=CAPS)
        return [chunks, SqliteStore(self.folder / "w", fsync="never", caps=CAPS)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def both(self, act: Callable[[SessionStore], Any]) -> Any:
        """Run an operation on both stores and return the common answer; None if both refuse it."""
        answers: list[Any] = []
        for store in self.stores:
            try:
                answers.append(told(act(store)))
            except CtxlabError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return None if isinstance(answers[0], type) else answers[0]

    @initialize()
    def begin(self) -> None:
        for id in GOOD:
            self.create(id, "", (None,) * 4, False, (), {})

    @rule(
        id=_ids, title=any_texts, names=st.tuples(_names, _names, _names, _names),
        system=st.booleans(), tools=st.lists(any_objects, max_size=2).map(tuple), meta=any_objects,
    )  # fmt: skip
    def create(
        self,
        id: str,
        title: str,
        names: tuple[str | None, ...],
        system: bool,
        tools: tuple[dict[str, Any], ...],
        meta: dict[str, Any],
    ) -> None:
        model, agent, file, strategy = names

        def act(store: SessionStore) -> Session:
            return store.create(
                id=id, title=title, model=model, agent=agent, file=file, strategy=strategy,
                system=system, tools=tools, meta=meta,
            )  # fmt: skip

        if self.both(act) is not None:
            self.said[id] = []
            self._one_active(id)

    @rule(messages=st.lists(_messages, min_size=1, max_size=8))
    def say(self, messages: list[Message]) -> None:
        self.append("a", messages)

    @rule(id=_ids, messages=st.lists(_messages, max_size=8))
    def append(self, id: str, messages: list[Message]) -> None:
        position = self.both(lambda store: store.append(id, *messages))
        if position is not None:
            assert position == len(self.said[id])
            self.said[id] += messages

    @rule(id=_ids)
    def open(self, id: str) -> None:
        if self.both(lambda store: store.open(id)) is not None:
            self._one_active(id)

    @rule(id=_ids, steps=st.lists(any_texts, max_size=3), current=st.none() | _numbers)
    def save(self, id: str, steps: list[str], current: int | None) -> None:
        plan = (
            AgentPlan(tuple(steps), current, awaiting_continuation=bool(steps)) if current else None
        )
        self.both(lambda store: store.save(id, plan=plan))

    @rule(id=_ids, title=any_texts, turn=_numbers)
    def retitle(self, id: str, title: str, turn: int) -> None:
        self.both(lambda store: store.retitle(id, title, turn))

    @rule(id=_ids, status=st.sampled_from(["active", "closed", "archived", "asleep"]))
    def set_status(self, id: str, status: Any) -> None:
        if self.both(lambda store: store.set_status(id, status)) is not None and status == "active":
            self._one_active(id)

    @rule(id=_ids, turn=_numbers, line=any_texts)
    def save_turn_summary(self, id: str, turn: int, line: str) -> None:
        self.both(lambda store: store.save_turn_summary(id, turn, line))

    @rule(id=_ids)
    def delete(self, id: str) -> None:
        self.both(lambda store: store.delete(id))
        self.said.pop(id, None)

    @rule()
    def begin_again(self) -> None:
        for store in self.stores:
            store.close()
        self.stores = self._opened()

    @rule(id=_ids, start=_numbers, stop=st.none() | _numbers, turn=_numbers, step=_numbers)
    def look(self, id: str, start: int, stop: int | None, turn: int, step: int) -> None:
        for act in (
            lambda store: list(store.read_messages(id, start, stop)),
            lambda store: store.read_turn(id, turn),
            lambda store: store.read_turn(id, turn, step),
            lambda store: store.count_steps(id, turn),
            lambda store: store.count_turns(id),
            lambda store: store.turn_summaries(id),
            lambda store: store.recording(id),
            lambda store: store.get(id),
        ):
            self.both(act)

    @rule(query=_said | any_texts, id=st.none() | _ids)
    def search(self, query: str, id: str | None) -> None:
        self.both(lambda store: store.search(query, id, limit=1000))

    @rule(
        query=st.none() | _said | any_texts, since=_times, before=_times, agent=_names,
        status=st.none() | st.sampled_from(["active", "closed", "archived", "asleep"]),
    )  # fmt: skip
    def sessions(self, query: Any, since: Any, before: Any, agent: Any, status: Any) -> None:
        self.both(
            lambda store: store.sessions(
                query, since=since, before=before, status=status, agent=agent
            )
        )

    @invariant()
    def what_was_said_is_there(self) -> None:
        for store in self.stores:
            for id, messages in self.said.items():
                assert list(store.read_messages(id)) == messages
                assert_numbers_agree(store, id, messages)

    def _one_active(self, id: str) -> None:
        """Close the sessions of the JSONL store that the SQLite store closed to keep one active."""
        chunks, workspace = self.stores
        for session in chunks.sessions(status="active"):
            if workspace.get(session.id).status == "closed":
                chunks.set_status(session.id, "closed")


TestBothStores = pytest.mark.properties(BothStores.TestCase)
TestBothStores.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)


def test_a_summary_does_not_depend_on_when_it_was_written(tmp_path: Path) -> None:
    """A summary of which no oldest line was kept is continued with the same lines in both stores."""
    caps = ResumeCaps(messages=1, message_chars=200, total_chars=900, summary_chars=120)
    chunks = JsonlStore(tmp_path / "c", max_history=1, fsync="never", caps=caps)
    workspace = SqliteStore(tmp_path / "w", fsync="never", caps=caps)
    for store in (chunks, workspace):  # one writes its summary with each message, one at the end
        store.create(id="a")
        for text in ("x" * 112, "b", "c", "d"):
            store.append("a", Message("user", text))
    assert chunks.open("a") == workspace.open("a")
    workspace.close()
