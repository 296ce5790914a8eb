"""Rules for every request of a live agent, over conversations with tools, files and restarts."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from acting import calls
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.loop import Agent
from ctxlab.agent.session import AgentSession
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.sessions import JsonlStore, SessionStore, SqliteStore

LIMIT, RESERVE = 8_000, 800


class Turn(NamedTuple):
    """What happens in a turn."""

    restart: str
    "what happened to the program before the turn"
    file: str | None
    "file that the user has open"
    words: int
    "length of the user's message"
    results: list[list[int]]
    "for each reply with tool calls, the lengths of the results in words"
    answer_words: int
    "length of the last reply"


LENGTHS = st.sampled_from([0, 5, 300, 3_000])
TURNS = st.builds(
    Turn,
    st.sampled_from(["none", "none", "closed", "killed"]),
    st.sampled_from([None, "a.md", "b.md"]),
    st.sampled_from([3, 100, 1_000]),
    st.lists(st.lists(LENGTHS, min_size=1, max_size=4), max_size=9),
    st.sampled_from([3, 600]),
)


class Model:
    """Client that plays the turns and keeps what it was asked."""

    def __init__(self) -> None:
        self.turn: Turn
        self.agent: Agent
        self.asked: list[Request] = []
        self.numbers = count(1)

    def complete(self, request: Request, /) -> Reply:
        self.asked.append(request)
        assert find_violations(request.messages) == []
        assert self.agent.manager.tokens <= LIMIT - RESERVE
        if len(self.asked) <= len(self.turn.results):
            lengths = self.turn.results[len(self.asked) - 1]
            return Reply(calls(*[("read", f'{{"words": {length}}}') for length in lengths]))
        text = f"Answer {next(self.numbers)}." + " or" * self.turn.answer_words
        return Reply(Message("assistant", text))


def read(words: int) -> str:
    """Reads a file."""
    return "text " * words


@pytest.mark.properties
@pytest.mark.parametrize("kind", [SqliteStore, JsonlStore])
@given(turns=st.lists(TURNS, min_size=2, max_size=7))
def test_each_request_is_valid_and_fits_and_contains_the_question_and_the_last_answer(
    kind: type[SessionStore], turns: list[Turn]
) -> None:
    model, last = Model(), None
    answers: dict[str | None, str] = {}

    def agent() -> Agent:
        model.agent = Agent(
            "gpt-4o", client=model, tools=[read], system="You help.", limit=LIMIT, reserve=RESERVE
        )
        return model.agent

    with TemporaryDirectory() as folder, closing(kind(Path(folder), fsync="never")) as store:
        live = AgentSession.start(store, agent())
        for number, turn in enumerate(turns):
            if turn.restart == "closed":
                live.close()
            if turn.restart != "none":
                live = AgentSession.resume(store, live.id, agent())
                # What was said about other files is in the summary at most.
                answers = {last: answers[last]} if number else {}
            question = f"Question {number}:" + " why" * turn.words
            model.turn, model.asked, last = turn, [], turn.file
            outcome = live.run(question, file=turn.file)
            texts = [[message.text for message in request.messages] for request in model.asked]
            assert all(question in each for each in texts)
            assert answers.get(turn.file, "") in "\n".join(texts[0])
            answers[turn.file] = outcome.text.partition(" or")[0]
