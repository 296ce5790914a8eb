"""Generate the data set ``long-chat``: a year of chats with a few facts, some of which change.

Topics are short dialogues with placeholders, in text files. A seed decides which topics are used,
how placeholders are filled and in which session each part of a topic takes place. The text files
contain each question directly after the line that answers it, so that the evidence and the answer
of every question are known.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from ctxlab.messages.types import Probe, Recording
from datasets.make.transcript import Bag, Transcript

NAME = "long-chat"

_T = TypeVar("_T")

_FOLDER = Path(__file__).parent / "chat"
_PEOPLE = (
    ("Judith", "Marten", 11),
    ("Anselm", "Corinna", 12),
    ("Sabine", "Tarek", 13),
    ("Oliver", "Jannis", 14),
    ("Magda", "Friederike", 15),
)
"""Name of the user, name of the user's partner, and seed of the recording."""

_SESSIONS = 28
_FACT_TOPICS = 22
_SMALL_TALK = {"small_talk.txt": 16, "questions.txt": 25}
_PROBES = 36
_ASKED_BETWEEN = 7  # number of probes that are asked before the end of the conversation
_LONG = 300  # characters from which an answer counts as an explanation
_CHOICE = re.compile(r"\[([^\]]*\|[^\]]*)\]")
_SLOT = re.compile(r"\{([a-z]+)(\d*)\}")
_EUROS = {
    "price": (37, 180),
    "medium": (185, 390),
    "large": (420, 980),
    "rent": (1_010, 1_690),
    "huge": (2_100, 4_800),
}
_MADE = ("soon", "past", "time", "code", "bib", *_EUROS)


@dataclass
class _Line:
    """One message of a topic as written in the text file, with the questions that it answers."""

    speaker: str
    text: str
    label: str = ""
    questions: list[tuple[str, str, str, str]] = field(default_factory=list)
    "tuples of category, question, answer, and label of a second line of evidence or an empty string"


def recordings() -> Iterator[tuple[str, Recording]]:
    """Yield the file name and the recording of each conversation of this data set."""
    for me, partner, seed in _PEOPLE:
        chat = _Chat(me, partner, seed)
        chat.run()
        name = f"{me.lower()}-and-assistant"
        meta = {"seed": seed, "task": name, "user": me, "sessions": _SESSIONS}
        recording = chat.transcript.recording(NAME, name, name, meta, probes=chat.probes())
        yield f"{name}.jsonl", recording


def _lines(name: str) -> list[str]:
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]


def _topics(name: str) -> dict[str, list[list[_Line]]]:
    """Parse a file of topics and return, for each topic name, its parts as lists of lines."""
    topics: dict[str, list[list[_Line]]] = {}
    for line in _lines(name):
        if line.startswith("== "):
            parts = topics.setdefault(line[3:], [[]])
        elif line == "--":
            parts.append([])
        elif line.startswith("? "):
            category, rest = line[2:].split(" ", 1)
            question, answer = rest.rsplit(" = ", 1)
            answer, _, other = answer.partition(" &")
            parts[-1][-1].questions.append((category, question, answer.strip(), other.strip()))
        else:
            head, text = line.split(": ", 1)
            label, _, speaker = head.rpartition(" ")
            parts[-1].append(_Line(speaker, text, label.removeprefix("#")))
    return topics


def _frames() -> dict[str, tuple[str, ...]]:
    pools: dict[str, list[str]] = {}
    for line in _lines("frames.txt"):
        if line.startswith("== "):
            pool = pools.setdefault(line[3:], [])
        else:
            pool.append(line)
    return {name: tuple(pool) for name, pool in pools.items()}


class _Chat:
    """One user's conversation over a year: its schedule, its messages and its probes."""

    def __init__(self, me: str, partner: str, seed: int) -> None:
        self.me, self.partner = me, partner
        self.rng = random.Random(seed)
        self.words = Bag(_frames(), self.rng)
        self.today = date(2025, 1, 6) + timedelta(days=self.rng.randrange(20))
        self.transcript = Transcript(self.rng, 0, lambda name, arguments: "")
        self.pools = {
            name: self._shuffled(values.split(", "))
            for name, values in (line.split(": ", 1) for line in _lines("pools.txt"))
        }
        self.slots: dict[tuple[str, str], str] = {}
        self.labels: dict[tuple[str, str], int] = {}
        self.asked: list[Probe] = []

    def run(self) -> None:
        """Write the messages of all sessions in order."""
        self.transcript.clock = self._morning()
        self.transcript.system(self.words("system", me=self.me, partner=self.partner))
        for blocks in self._schedule():
            self.transcript.clock = self._morning() + self.rng.randrange(14 * 3_600)
            names = {"partner": self.partner}
            self.transcript.user(self.words("open_user", **names), 0, 5)
            self.transcript.say(self.words("open_assistant", **names))
            for turn, (topic, lines) in enumerate(blocks):
                self._talk(topic, lines, self.words("turn_user") if turn else "")
            self.transcript.user(self.words("close_user", **names), 20, 90)
            self.transcript.say(self.words("close_assistant", **names))
            self.today += timedelta(days=self.rng.randrange(6, 14))

    def _morning(self) -> int:
        """Return the timestamp of 7:00 UTC on the day of the current session."""
        day = self.today
        return int(datetime(day.year, day.month, day.day, 7, tzinfo=UTC).timestamp())

    def probes(self) -> list[Probe]:
        """Return all probes of the categories ``multi`` and ``update``, and a sample of the others."""
        hard = [p for p in self.asked if p.category in ("multi", "update")]
        easy = [p for p in self.asked if p.category not in ("multi", "update")]
        chosen = hard + self.rng.sample(easy, max(0, min(len(easy), _PROBES - len(hard))))
        chosen.sort(key=lambda probe: probe.evidence[-1])
        last = len(self.transcript.messages)
        early = [p for p in chosen if p.category != "update" and p.evidence[-1] < last * 2 // 3]
        between = {p.id for p in self.rng.sample(early, _ASKED_BETWEEN)}
        numbered = []
        for number, probe in enumerate(chosen, 1):
            position = None
            if probe.id in between:
                later = self.rng.randrange(probe.evidence[-1] + 40, last)
                position = later // 2 * 2 - 1  # a message of the user
            answers, evidence = probe.answers, probe.evidence
            name = f"q{number:02d}"
            numbered.append(
                Probe(name, probe.question, answers, evidence, position, probe.category)
            )
        return numbered

    # -- one session ------------------------------------------------------------------------

    def _schedule(self) -> list[list[tuple[str, list[_Line]]]]:
        """Assign the parts of topics to sessions; a later part never comes before an earlier one."""
        sessions: list[list[tuple[str, list[_Line]]]] = [[] for _ in range(_SESSIONS)]
        facts = _topics("facts.txt")
        for name in self.rng.sample(sorted(facts), _FACT_TOPICS):
            parts = facts[name]
            at = self.rng.randrange(_SESSIONS if len(parts) == 1 else _SESSIONS * 2 // 3)
            for part in parts:
                sessions[at].append((name, part))
                at = self.rng.randrange(min(at + 4, _SESSIONS - 1), _SESSIONS)
        fillers = []
        for file, count in _SMALL_TALK.items():
            topics = _topics(file)
            fillers += [(n, topics[n][0]) for n in self.rng.sample(sorted(topics), count)]
        for filler in self._shuffled(fillers):
            least = min(len(blocks) for blocks in sessions)
            quiet = self.rng.choice([b for b in sessions if len(b) == least])
            quiet.insert(self.rng.randrange(len(quiet) + 1), filler)
        return sessions

    def _talk(self, topic: str, lines: list[_Line], lead: str) -> None:
        for turn, line in enumerate(lines):
            text = self._fill(topic, line.text)
            text = f"{lead} {text}" if lead and not turn else text
            position = self._user(text) if line.speaker == "U" else self._assistant(text)
            if line.label:
                self.labels[topic, line.label] = position
            for category, question, answer, other in line.questions:
                evidence = (self.labels[topic, other], position) if other else (position,)
                filled = self._fill(topic, question), (self._fill(topic, answer),)
                name = f"{topic}-{position}-{len(self.asked)}"
                self.asked.append(Probe(name, *filled, evidence, None, category))
        if lines[-1].speaker == "U":
            asked = any(len(line.text) > _LONG for line in lines)
            pool = "glad_assistant" if asked else "aside_assistant"
            self.transcript.say(self.words(pool, partner=self.partner))

    def _user(self, text: str) -> int:
        if self.rng.random() < 0.3:
            text += " " + self.words("aside_user", partner=self.partner)
        return self.transcript.user(text, 20, 200)

    def _assistant(self, text: str) -> int:
        if len(text) < _LONG and not text.endswith("?") and self.rng.random() < 0.2:
            text += " " + self.words("aside_assistant", partner=self.partner)
        return self.transcript.say(text)

    # -- blanks -----------------------------------------------------------------------------

    def _fill(self, topic: str, text: str) -> str:
        text = _CHOICE.sub(lambda match: self.rng.choice(match[1].split("|")), text)
        text = text.replace("{me}", self.me).replace("{partner}", self.partner)
        return _SLOT.sub(lambda match: self._slot(topic, match[1], match[2]), text)

    def _slot(self, topic: str, pool: str, number: str) -> str:
        key = (topic, pool + number)
        if key not in self.slots:
            made = pool in _MADE
            self.slots[key] = self._made(pool) if made else self._drawn(pool)
        return self.slots[key]

    def _drawn(self, pool: str) -> str:
        return self.pools[pool].pop()

    def _made(self, kind: str) -> str:
        rng = self.rng
        if kind in ("soon", "past"):
            days = rng.randrange(8, 45) if kind == "soon" else -rng.randrange(2, 6)
            day = self.today + timedelta(days=days)
            return f"{day.day} {day:%B}"
        if kind == "time":
            return f"{rng.randrange(7, 20)}:{rng.choice(['10', '15', '20', '30', '40', '45'])}"
        if kind == "code":
            letters = "".join(rng.choice("BCDFGHKLMNPRTVXZ") for _ in range(2))
            return f"{letters}-{rng.randrange(10_000, 100_000)}-{rng.randrange(10)}"
        if kind == "bib":
            return str(rng.randrange(1_050, 4_900))
        return f"{rng.randrange(*_EUROS[kind]):,} euros"

    def _shuffled(self, values: list[_T]) -> list[_T]:
        self.rng.shuffle(values)
        return values
