"""Canaries: facts planted in a copy of a recording, to measure if a strategy keeps them.

A canary is a sentence appended to an existing message. Roles, tool calls, the order of messages,
validity and the number of requests stay as recorded. The value of a canary is a pair of ordinary
words that occurs nowhere else in the recording. A summary therefore contains the value only if it
keeps the fact. The value of a canary of the kind ``path`` is a file name made of two such words.
Strategies that collect file names by their form keep this value even if they drop the sentence.
Comparing this kind with the others shows the effect of such strategies.

The depth of a canary is its position in the text before the last request: 0 is the start, 1 is the
end. It is measured in characters and not in tokens, so that it does not depend on the tokenizer. (A
position among the messages would be misleading, because sizes of messages differ by three orders of
magnitude.) No canary is planted in the system prompt or the first user message, because no strategy
drops them.
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
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.answer_matching import normalize_answer
from ctxlab.messages.types import ContentPart, Message, Probe, Recording, message_text


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
"""First words of canary values."""
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
"""Second words of canary values."""
THINGS: tuple[str, ...] = _split_words(
    """
    alarm attic boiler calendar cellar chimney corridor entrance fountain garden gate heating kitchen
    ledger lift mailbox noticeboard parking pantry roof staircase terrace workshop
    """
)
"""Things that canaries state a fact about, such as the attic."""
PLACES: tuple[str, ...] = _split_words(
    """
    abbey bakery barracks brewery casino chapel clinic college dairy embassy gallery hostel hotel
    laundry monastery museum nursery observatory orphanage pharmacy planetarium refinery sawmill
    shipyard spa stadium tannery theatre vicarage winery
    """
)
"""Places that the things belong to, such as the brewery."""
DEFAULT_DEPTHS: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Default depths of canaries, as shares of the text before the last request."""


class CanaryKind(NamedTuple):
    """Templates of one kind of canary, and the roles of messages to which it can be appended."""

    statement: str
    "template of the planted sentence"
    question: str
    "template of the probe's question about the value"
    roles: tuple[str, ...]
    "roles of suitable messages, as ``_canary_role`` returns them"
    superseded_statement: str = ""
    "template of the earlier sentence with the older value; empty if there is no older value"
    value_format: str = "{} {}"
    "format string for the two words of a value"


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
        value_format="plans/{}_{}.md",
    ),
    "superseded": CanaryKind(
        "Correction: the {thing} of the {place} is looked after by the {value} group now.",
        "Which group looks after the {thing} of the {place} now?",
        _INPUT_ROLES,
        "The {thing} of the {place} is looked after by the {value} group.",
    ),
}
"""Kinds of canaries by name. A value consists of two words, such as ``velvet harbour``. For ``path``
it is a file name, such as ``plans/velvet_harbour.md``."""
_META_KEY = "canaries"
_TOPICS = [*product(THINGS, PLACES)]
_DEPTH_TOLERANCE = 0.1
"""a message with a suitable role that is at most this far from the depth is preferred to nearer
messages with other roles"""


class Canary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value and position of one planted canary, as stored in ``Recording.meta``."""

    id: str
    "id of the canary and of its probe"
    kind: str
    "name of the kind, from ``CANARY_KINDS``"
    value: str
    "value that a strategy should keep in view"
    position: int
    "position of the message to which the canary was appended"
    role: str
    "role of the message to which the canary was appended"
    at: float
    "actual depth, as a share of the text before the last request"
    depth: float
    "requested depth that is nearest to the actual depth"
    old: str | None = None
    "older value that the canary supersedes, if any"
    old_position: int | None = None
    "position of the message with the older value, if any"


@dataclass(frozen=True)
class CanaryPlanter:
    """Callable that returns a copy of a recording with canaries.

    Kinds alternate, and each kind is planted at all depths in turn. The first depth is random for
    each recording, so that all kinds have the same depth on average. To plant each kind once at
    each depth, set ``n`` to the number of kinds times the number of depths. Each canary is
    appended to a different message: to a message with a suitable role near the depth or, if there is
    none, to the message nearest to the depth. A canary of the kind ``superseded`` corrects an older
    value, which is planted at half the depth. Raises ``SpecError`` if the settings are invalid.
    """

    n: int = 10
    "number of canaries per recording"
    kinds: tuple[str, ...] = tuple(CANARY_KINDS)
    "kinds of canaries, from ``CANARY_KINDS``"
    depths: tuple[float, ...] = DEFAULT_DEPTHS
    "depths of canaries, as shares of the text before the last request"
    seed: int = 0
    "seed for choosing words and depths"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a setting is invalid."""
        if type(self.n) is not int or not 1 <= self.n <= len(_TOPICS):
            raise SpecError(f"n: expected 1 to {len(_TOPICS)} canaries, got {self.n!r}")
        for name in self.kinds:
            require_known("kind of canary", name, CANARY_KINDS)
        for share in self.depths:
            is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
            if not is_number or not 0 <= share <= 1:
                raise SpecError(f"depths: expected shares from 0 to 1, got {share!r}")
        if not self.kinds or not self.depths:
            raise SpecError("expected at least one kind of canary and one depth, got an empty list")

    def __call__(self, recording: Recording) -> Recording:
        """Return a copy of a recording with canaries and a probe for each.

        Raises ``SpecError`` if the recording already has canaries, or too few suitable messages.
        """
        if not isinstance(recording, Recording):
            raise SpecError(
                f"expected one Recording, got {type(recording).__name__}; use "
                "[plant_canaries(each) for each in recordings]"
            )
        if _META_KEY in recording.meta:
            raise SpecError(f"{recording.id}: already has canaries; use the original recording")
        free, random = _FreeMessages(recording), _seeded_random(recording.id, self.seed)
        shift = random.randrange(len(self.depths))
        turns = [self._kind_and_depth(number, shift) for number in range(self.n)]
        wanted = self.n + sum(bool(CANARY_KINDS[name].superseded_statement) for name, _ in turns)
        if wanted > len(free.positions):
            raise SpecError(
                f"{recording.id}: {self.n} canaries need {wanted} suitable messages before the last "
                f"request, got {len(free.positions)}; plant fewer, or leave the recording out"
            )
        values, topics = _unused_values(recording, random), random.sample(_TOPICS, self.n)
        messages, probes, made = list(recording.messages), list(recording.probes), []
        taken = {probe.id for probe in probes}
        for number, ((name, depth), (thing, place)) in enumerate(zip(turns, topics, strict=True)):
            kind, id = CANARY_KINDS[name], f"canary-{number}"
            while id in taken:
                id += "+"
            old = old_position = None
            if not kind.superseded_statement:
                position = free.take_nearest(free.positions, depth, kind.roles)
            else:  # leave an earlier message for the older value
                position = free.take_nearest(free.positions[1:], depth, kind.roles)
                earlier = free.positions[: bisect_left(free.positions, position)]
                old, old_position = next(values), free.take_nearest(earlier, depth / 2, kind.roles)
                said = kind.superseded_statement.format(thing=thing, place=place, value=old)
                messages[old_position] = _append_sentence(messages[old_position], said)
            value = kind.value_format.format(*next(values).split())
            said = kind.statement.format(thing=thing, place=place, value=value)
            messages[position] = _append_sentence(messages[position], said)
            role, at = messages[position].role, round(free.depth_by_position[position], 4)
            nearest = min(self.depths, key=lambda share: abs(share - at))
            made.append(Canary(id, name, value, position, role, at, nearest, old, old_position))
            asked = kind.question.format(thing=thing, place=place)
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
    """Plant canaries in a copy of a recording, each with a probe that asks for its value.

    Calls with equal arguments return equal copies. ``CanaryPlanter`` describes at which depths and in
    which messages the canaries are planted.

    Parameters
    ----------
    recording : Recording
        Recording to copy.
    n : int, default 10
        Number of canaries.
    kinds : str or iterable of str, optional
        Kinds of canaries, from ``CANARY_KINDS``; all kinds if left out.
    depths : float or iterable of float, optional
        Depths of the canaries, as shares of the text before the last request.
    seed : int, default 0
        Seed for choosing words and depths.

    Returns
    -------
    Recording
        Copy with canaries and probes.

    Raises
    ------
    SpecError
        If an argument is invalid, or the recording already has canaries or too few suitable
        messages.

    Examples
    --------
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
    """Create a ``CanaryPlanter`` from settings that may be single values or contain duplicates.

    Parameters
    ----------
    n : int
        Number of canaries per recording.
    kinds : str or iterable of str
        One or several kinds from ``CANARY_KINDS``; duplicates are removed.
    depths : float or iterable of float
        One or several depths from 0 to 1; duplicates are removed.
    seed : int
        Seed for choosing words and depths.

    Returns
    -------
    CanaryPlanter
        Planter with these settings.

    Raises
    ------
    SpecError
        If an argument is invalid.
    """
    names = (kinds,) if isinstance(kinds, str) else kinds
    shares = depths if isinstance(depths, Iterable) else (depths,)
    return CanaryPlanter(n, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(shares)), seed)


def read_canaries(recording: Recording) -> tuple[Canary, ...]:
    """Read the canaries of a recording from its ``meta``.

    Parameters
    ----------
    recording : Recording
        Recording with or without canaries.

    Returns
    -------
    tuple of Canary
        Canaries in the order of planting; empty if none were planted.

    Raises
    ------
    SpecError
        If ``meta`` contains malformed canaries or a position outside of the recording.
    """
    try:
        found = msgspec.convert(recording.meta.get(_META_KEY, ()), tuple[Canary, ...])
    except msgspec.ValidationError as error:
        raise SpecError(f"{recording.id}: meta has invalid canaries: {error}") from None
    for canary in found:
        for position in (canary.position, canary.old_position):
            if position is not None and not 0 <= position < len(recording.messages):
                last = len(recording.messages) - 1
                raise SpecError(
                    f"{recording.id}: expected a position in 0–{last} for canary {canary.id}, "
                    f"got {position}"
                )
    return found


class _FreeMessages:
    """Messages to which a canary can still be appended, with the depth at which each message ends."""

    def __init__(self, recording: Recording) -> None:
        messages, last = recording.messages, max(recording.request_positions, default=0)
        head = next((i for i, m in enumerate(messages[:last]) if m.role != "system"), last)
        sizes = [len(message_text(message)) for message in messages[head:last]]
        whole = max(sum(sizes), 1)
        self.depth_by_position = {head + i: end / whole for i, end in enumerate(accumulate(sizes))}
        "depth at which each message ends, as a share of the text, by position"
        self.role_by_position = {
            i: role for i in self.depth_by_position if (role := _canary_role(messages[i]))
        }
        if head in self.role_by_position and messages[head].role == "user":
            del self.role_by_position[head]
        self.positions = sorted(self.role_by_position)
        "positions of messages without a canary, in ascending order"

    def take_nearest(self, free: Sequence[int], depth: float, roles: Sequence[str]) -> int:
        """Return the position of ``free`` nearest to a depth, and remove it from ``positions``.

        Positions with a suitable role are preferred if they are close enough to the depth.
        """

        def away(position: int) -> tuple[float, int]:
            return abs(self.depth_by_position[position] - depth), position

        near = [p for p in free if away(p)[0] <= _DEPTH_TOLERANCE]
        fitting = [p for p in near if self.role_by_position[p] in roles]
        position = min(fitting or free, key=away)
        self.positions.remove(position)
        return position


def _canary_role(message: Message) -> str | None:
    """Classify a message by role; None for system prompts and empty messages, which are left out.

    The roles are ``user``, ``assistant``, ``calls`` (tool calls without text), ``output`` (plain
    tool results) and ``data`` (tool results that are empty or JSON). No kind of canary lists
    ``data`` as suitable, because a sentence would make JSON malformed. System prompts are excluded.
    So are empty messages of users and assistants: an empty message can make a request invalid, and a
    sentence in it would make the request valid.
    """
    if message.role == "system":
        return None
    if message.role == "tool":
        return "data" if message.text.lstrip()[:1] in ("", "{", "[") else "output"
    if message.role == "assistant" and message.tool_calls:
        return "assistant" if message.text.strip() else "calls"
    return message.role if message.content else None


def _append_sentence(message: Message, sentence: str) -> Message:
    """Return a copy of a message with a sentence appended to its text."""
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
    """Append a sentence on the same line, or on a new line if the text has several lines."""
    if text[-1:].isspace():
        return text + sentence
    return f"{text}\n{sentence}" if "\n" in text else f"{text} {sentence}"


def _seeded_random(id: str, seed: int) -> Random:
    key = f"{seed}\0{id}".encode(errors="surrogatepass")
    return Random(int.from_bytes(blake2b(key, digest_size=16).digest()))


def _unused_values(recording: Recording, random: Random) -> Iterator[str]:
    """Yield values that do not occur in the recording. Raise ``SpecError`` if none is left."""
    said = [message_text(message) for message in recording.messages]
    said += [s.message.text for c in recording.compactions for s in c.substitutes]
    said.append(dump_json(recording.tools))
    whole = normalize_answer("\n".join(said))
    together = whole.replace(" ", "")
    pairs = [*product(ADJECTIVES, NOUNS)]
    random.shuffle(pairs)
    for first, second in pairs:
        if f"{first}{second}" not in together:
            yield f"{first} {second}"
    raise SpecError(
        f"{recording.id}: all combinations of two words for the value of a canary are in use; "
        "plant fewer canaries"
    )
