"""A canary is a seeded statement, planted in a copy of a recording, whose loss can be watched.

Each is a sentence at the end of a message that is there already, so that roles, calls, order, validity
and the number of requests stay as they were recorded. What it states is ordinary words that occur
nowhere else, so a summary keeps them only where it keeps the statement; the path is the exception, for
whatever collects names by their looks finds it. That contrast is wanted.

A depth is a share of the text, in characters, that stands before the last request: much as of its
tokens, but the same for every tokenizer (messages differ in size by three orders of magnitude, so their
number says little). What no strategy ever drops, the system prompt and the first user message behind
it, is no place for one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, product
from random import Random
from typing import NamedTuple

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.answer_matching import normalize_answer
from ctxlab.messages.types import ContentPart, Message, Probe, Recording, message_text

__all__ = [
    "ADJECTIVES",
    "CANARY_KINDS",
    "DEFAULT_DEPTHS",
    "NOUNS",
    "PLACES",
    "THINGS",
    "Canary",
    "CanaryKind",
    "CanaryPlanter",
    "make_planter",
    "plant_canaries",
    "read_canaries",
]


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES: tuple[str, ...] = _split_words(
    """
    amber ancient autumn bashful bitter blue brave bright bronze calm careful cheerful clever copper
    coral crimson crooked curious dancing distant drowsy dusty eager early earnest elegant emerald
    faithful famous feathered fearless foggy fragrant frosty gentle gilded golden grateful gloomy hazel
    hollow honest humble idle ivory jolly kindly lavender lazy lemon lively lonely lucky marble mellow
    merry mighty misty modest mossy nimble noble noisy northern olive orange painted patient pearly
    pink playful polished proud purple quiet rainy restless rosy rustic salty scarlet secret shady
    shiny silent silver sleepy slender snowy solemn sparkling speckled spotted starry steady stormy
    striped sturdy sunny tender thirsty thorny timid tranquil velvet violet wandering western whispering
    wild winter wooden yellow
    """
)
"""First words of values."""
NOUNS: tuple[str, ...] = _split_words(
    """
    acorn almond anchor antler apricot badger bamboo barrel basket beacon beaver beetle blossom bonfire
    bramble bridge buffalo butterfly cactus camel candle canyon carrot castle cello cherry chestnut
    clover cobbler comet compass cottage cradle cricket cuckoo daisy dolphin donkey dragonfly eagle elm
    falcon feather fern fiddle firefly flamingo forest fox garlic gazelle ginger glacier goose grape
    hammock harbour hazelnut hedgehog heron honey horizon iceberg iris island ivy jasmine juniper
    kettle kingfisher ladder lagoon lantern lark lighthouse lilac lizard lobster magnolia mango maple
    meadow melon mitten mountain mushroom nightingale nutmeg oasis otter owl panther parrot parsley
    peach pebble pelican penguin pepper pigeon pine plum poppy pumpkin rabbit radish raven ribbon
    river robin rooster saffron sailor salmon seagull shepherd snail sparrow spinach squirrel starfish
    swallow thistle thunder tiger trumpet tulip turnip turtle valley violin walnut waterfall willow
    zebra
    """
)
"""Second words of values."""
THINGS: tuple[str, ...] = _split_words(
    """
    alarm attic boiler calendar cellar chimney corridor entrance fountain garden gate heating kitchen
    ledger lift mailbox noticeboard parking pantry roof staircase terrace workshop
    """
)
"""What a canary is about …"""
PLACES: tuple[str, ...] = _split_words(
    """
    abbey bakery barracks brewery casino chapel clinic college dairy embassy gallery hostel hotel
    laundry monastery museum nursery observatory orphanage pharmacy planetarium refinery sawmill
    shipyard spa stadium tannery theatre vicarage winery
    """
)
"""… and where that is."""
DEFAULT_DEPTHS: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the text before the last request at which canaries are planted when nothing is said."""


class CanaryKind(NamedTuple):
    """What is said, what is asked about it later, and in whose messages it fits."""

    statement: str
    question: str
    roles: tuple[str, ...]
    "roles as ``_canary_role`` has them"
    superseded_statement: str = ""
    "what was said first, of a value that is superseded"
    value_format: str = "{}"
    "how a value is written, of its two words …"
    separators: tuple[str, str] = (" ", " ")
    "… and what stands between them"


_INPUT_ROLES = ("user", "output")
CANARY_KINDS: dict[str, CanaryKind] = {
    "fact": CanaryKind(
        "For the record: the {thing} of the {place} is known as the {value}.",
        "As what is the {thing} of the {place} known?",
        _INPUT_ROLES,
    ),
    "constraint": CanaryKind(
        "Keep to this: the {thing} of the {place} stays as it is unless the {value} team agrees.",
        "Which team has to agree before the {thing} of the {place} is changed?",
        _INPUT_ROLES,
    ),
    "decision": CanaryKind(
        "I have decided to model the {thing} of the {place} on the {value}.",
        "On what was it decided to model the {thing} of the {place}?",
        ("assistant", "calls"),
    ),
    "path": CanaryKind(
        "The plans for the {thing} of the {place} are kept in {value} for now.",
        "In which file are the plans for the {thing} of the {place} kept?",
        ("output", "assistant"),
        value_format="plans/{}.md",
        separators=(" ", "_"),
    ),
    "superseded": CanaryKind(
        "Correction: the {thing} of the {place} is looked after by the {value} group now.",
        "Which group looks after the {thing} of the {place} now?",
        _INPUT_ROLES,
        "The {thing} of the {place} is looked after by the {value} group.",
    ),
}
"""By name. Values are two plain words, but for ``path``: ``plans/velvet_harbour.md``."""
_META_KEY = "canaries"
_TOPICS = [*product(THINGS, PLACES)]
_DEPTH_TOLERANCE = 0.1
"how far from its depth a message of a fitting role is preferred to a nearer one of another"


class Canary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One that was planted: what it says, and where; also kept in ``Recording.meta``."""

    id: str
    kind: str
    value: str
    position: int
    "of the message at whose end it stands"
    role: str
    "of that message"
    at: float
    "where it stands, as a share of the text before the last request"
    depth: float
    "the one of the depths asked for that is nearest to that"
    old: str | None = None
    "the value before, where one was superseded"
    old_position: int | None = None


@dataclass(frozen=True)
class CanaryPlanter:
    """How canaries are planted: called with a recording, it gives the copy that holds them.

    Kinds take turns, and each kind goes through all depths in turn; with which depth it begins differs
    between recordings, so that no kind stands deeper than another. (Where ``n`` is kinds × depths, each
    kind stands once at each depth.) A canary stands in a message of its own: of a fitting role where
    one is near its depth, else in the nearest. The old value of one that is superseded stands half as
    deep. Raises ``SpecError`` for kinds and depths that make no sense; called, for a recording that has
    canaries and for one without messages for so many.
    """

    n: int = 10
    kinds: tuple[str, ...] = tuple(CANARY_KINDS)
    depths: tuple[float, ...] = DEFAULT_DEPTHS
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise SpecError(f"n: plant at least one canary, not {self.n!r}")
        if self.n > len(_TOPICS):
            raise SpecError(f"n: there are words for {len(_TOPICS)} canaries, not for {self.n}")
        for name in self.kinds:
            if name not in CANARY_KINDS:
                raise UnknownName("kind of canary", name, CANARY_KINDS)
        for share in self.depths:
            known = isinstance(share, (int, float)) and not isinstance(share, bool)
            if not known or not 0 <= share <= 1:
                raise SpecError(f"depths: shares from 0 to 1, not {share!r}")
        if not self.kinds or not self.depths:
            raise SpecError("name at least one kind of canary and one depth")

    def __call__(self, recording: Recording) -> Recording:
        """See the class."""
        if not isinstance(recording, Recording):
            raise SpecError(
                "recording: canaries are planted in one recording at a time, not in "
                f"{type(recording).__name__}: [plant_canaries(each) for each in recordings]"
            )
        if _META_KEY in recording.meta:
            raise SpecError(
                f"{recording.id}: holds canaries already; plant in it as it was recorded"
            )
        free, random = _FreeMessages(recording), _seeded_random(recording.id, self.seed)
        shift = random.randrange(len(self.depths))
        turns = [self._kind_and_depth(number, shift) for number in range(self.n)]
        wanted = self.n + sum(bool(CANARY_KINDS[name].superseded_statement) for name, _ in turns)
        if wanted > len(free.positions):
            raise SpecError(
                f"{recording.id}: {self.n} canaries take {wanted} messages of their own before the "
                f"last request, and there are {len(free.positions)}: plant fewer, or leave it out"
            )
        values, topics = _unused_values(recording, random), random.sample(_TOPICS, self.n)
        messages, probes, made = list(recording.messages), list(recording.probes), []
        taken = {probe.id for probe in probes}
        for number, ((name, depth), (thing, place)) in enumerate(zip(turns, topics, strict=True)):
            kind, about, id = (
                CANARY_KINDS[name],
                {"thing": thing, "place": place},
                f"canary-{number}",
            )
            while id in taken:
                id += "+"
            old = old_position = None
            position = free.take_nearest(depth, kind.roles, 1 if kind.superseded_statement else 0)
            if kind.superseded_statement:
                old, old_position = (
                    next(values),
                    free.take_nearest_before(position, depth / 2, kind.roles),
                )
                said = kind.superseded_statement.format(**about, value=old)
                messages[old_position] = _append_sentence(messages[old_position], said)
            value = kind.value_format.format(next(values)).replace(*kind.separators)
            said = kind.statement.format(**about, value=value)
            messages[position] = _append_sentence(messages[position], said)
            role, at = messages[position].role, round(free.depth_by_position[position], 4)
            nearest = min(self.depths, key=lambda share: abs(share - at))
            made.append(Canary(id, name, value, position, role, at, nearest, old, old_position))
            asked = kind.question.format(**about)
            probes.append(Probe(id, asked, (value,), (position,), category=f"canary:{name}"))
        meta = recording.meta | {_META_KEY: msgspec.to_builtins(made)}
        return msgspec.structs.replace(
            recording, messages=tuple(messages), probes=tuple(probes), meta=meta
        )

    def _kind_and_depth(self, number: int, shift: int) -> tuple[str, float]:
        turn, place = divmod(number, len(self.kinds))
        return self.kinds[place], self.depths[(place + turn + shift) % len(self.depths)]


def plant_canaries(
    recording: Recording,
    n: int = 10,
    kinds: str | Iterable[str] = tuple(CANARY_KINDS),
    depths: float | Iterable[float] = DEFAULT_DEPTHS,
    seed: int = 0,
) -> Recording:
    """A copy of a recording with ``n`` canaries in it, each with a probe that asks for its value.

    The same recording and seed give the same canaries, another id or seed gives others. See
    ``CanaryPlanter`` for the rest, and for what is raised.

    >>> talk = [Message("user" if i % 2 == 0 else "assistant", f"Line {i}.") for i in range(9)]
    >>> changed = plant_canaries(Recording("talk", tuple(talk)), 1, "fact", 0.5)
    >>> print(changed.messages[2].content)
    Line 2. For the record: the attic of the brewery is known as the ivory apricot.
    >>> changed.probes[0].question, changed.probes[0].answers
    ('As what is the attic of the brewery known?', ('ivory apricot',))
    """
    return make_planter(n, kinds, depths, seed)(recording)


def make_planter(
    n: int, kinds: str | Iterable[str], depths: float | Iterable[float], seed: int
) -> CanaryPlanter:
    """From what a user writes: one where several belong is a list of one, and each counts once."""
    names = (kinds,) if isinstance(kinds, str) else kinds
    shares = depths if isinstance(depths, Iterable) else (depths,)
    return CanaryPlanter(n, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(shares)), seed)


def read_canaries(recording: Recording) -> tuple[Canary, ...]:
    """The canaries of a recording, as they were planted; none where none were.

    Raises ``SpecError`` where what its ``meta`` says of them cannot be.
    """
    try:
        found = msgspec.convert(recording.meta.get(_META_KEY, ()), tuple[Canary, ...])
    except msgspec.ValidationError as error:
        raise SpecError(f"{recording.id}: what is said of its canaries: {error}") from None
    for canary in found:
        for position in (canary.position, canary.old_position):
            if position is not None and not 0 <= position < len(recording.messages):
                raise SpecError(
                    f"{recording.id}: {canary.id} stands at {position}, where nothing is"
                )
    return found


class _FreeMessages:
    """The messages that may yet hold a canary, and where in the text their ends stand."""

    def __init__(self, recording: Recording) -> None:
        messages, last = recording.messages, max(recording.request_positions, default=0)
        head = next((i for i, m in enumerate(messages[:last]) if m.role != "system"), last)
        sizes = [len(message_text(message)) for message in messages[head:last]]
        whole = max(sum(sizes), 1)
        ends = accumulate(sizes)
        self.depth_by_position = {head + i: end / whole for i, end in enumerate(ends)}
        "position → where it ends, as a share of the text"
        self.role_by_position = {
            i: role for i in self.depth_by_position if (role := _canary_role(messages[i]))
        }
        if head in self.role_by_position and messages[head].role == "user":
            del self.role_by_position[head]
        self.positions = sorted(self.role_by_position)
        "positions that are free"

    def take_nearest(self, depth: float, roles: Sequence[str], skip_first: int = 0) -> int:
        """The free message for a depth, of which ``before`` others stand before it."""
        return self._pop_nearest(self.positions[skip_first:], depth, roles)

    def take_nearest_before(self, position: int, depth: float, roles: Sequence[str]) -> int:
        """The same, before a position."""
        return self._pop_nearest(
            self.positions[: bisect_left(self.positions, position)], depth, roles
        )

    def _pop_nearest(self, candidates: Sequence[int], depth: float, roles: Sequence[str]) -> int:
        def away(position: int) -> tuple[float, int]:
            return abs(self.depth_by_position[position] - depth), position

        near = [
            i
            for i in candidates
            if self.role_by_position[i] in roles and away(i)[0] <= _DEPTH_TOLERANCE
        ]
        position = min(near or candidates, key=away)
        self.positions.remove(position)
        return position


def _canary_role(message: Message) -> str | None:
    """What a message is to a canary; None where it can hold none.

    A sentence in an empty message could make a request valid that was not, and one in JSON no JSON.
    """
    if message.role == "system":
        return None
    if message.role == "tool":
        return "data" if message.text.lstrip()[:1] in ("", "{", "[") else "output"
    if message.role == "assistant" and message.tool_calls:
        return "assistant" if message.text.strip() else "calls"
    return message.role if message.content else None


def _append_sentence(message: Message, sentence: str) -> Message:
    """The message with a sentence at the end of its text."""
    content = message.content
    if not content:
        return message.replace(content=sentence)
    if isinstance(content, str):
        return message.replace(content=_join_sentence(content, sentence))
    parts: list[ContentPart] = list(content)
    places = [i for i, part in enumerate(parts) if part.get("type") == "text" and part.get("text")]
    if places:
        part = parts[places[-1]]
        parts[places[-1]] = {**part, "text": _join_sentence(str(part["text"]), sentence)}
    else:
        parts.append({"type": "text", "text": sentence})
    return message.replace(content=tuple(parts))


def _join_sentence(text: str, sentence: str) -> str:
    """Prose goes on in its line; what is made of lines gets another one."""
    if text[-1:].isspace():
        return text + sentence
    return f"{text}\n{sentence}" if "\n" in text else f"{text} {sentence}"


def _seeded_random(id: str, seed: int) -> Random:
    key = f"{seed}\0{id}".encode(errors="surrogatepass")
    return Random(int.from_bytes(blake2b(key, digest_size=16).digest()))


def _unused_values(recording: Recording, random: Random) -> Iterator[str]:
    """Values that are not in the recording, each once. Raises ``SpecError`` where they run out."""
    said = [message_text(message) for message in recording.messages]
    said += [compaction.summary for compaction in recording.compactions if compaction.summary]
    said.append(dump_json(recording.tools))
    whole = normalize_answer("\n".join(said))
    together = whole.replace(" ", "")
    pairs = [*product(ADJECTIVES, NOUNS)]
    random.shuffle(pairs)
    for first, second in pairs:
        if f"{first}{second}" not in together:
            yield f"{first} {second}"
    raise SpecError(f"{recording.id}: there are no words left that it does not hold already")
