"""Recall, computed from ``docs/recall.md`` alone.

This file shares no code with ctxlab and imports nothing of it. Its sections are those of the page. It is
meant to be read, not to be fast. ``agreement.py`` compares its results with those of ctxlab.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

FAR_TOKENS = 4000


# ---------------------------------------------------------------------------------------------- input


@dataclass
class Call:
    """A tool call."""

    name: str
    arguments: str


@dataclass
class Said:
    """A message of the recording, or a message of a request."""

    role: str
    content: str
    calls: list[Call] = field(default_factory=list)
    tokens: int = 0

    @cached_property
    def parts(self) -> tuple[str, list[Part]]:
        """Text of the message, and its parts."""
        return message_text(self)


@dataclass
class Sent:
    """A message of a request, and the positions ``start`` to ``stop`` in the recording it replaces."""

    start: int
    stop: int
    form: str
    message: Said


@dataclass(frozen=True)
class Entity:
    """A name or value that one must know to write it."""

    kind: str
    text: str


@dataclass(frozen=True)
class Need:
    """A use of an entity that an earlier message mentions."""

    request: int
    argument: int
    entity: Entity
    origin: str
    gap: int


# ------------------------------------------------------------------------------------------- entities

EXTENSIONS = (
    "c cc cfg cpp cs css csv env go h hpp html ini ipynb java js json jsonl jsx kt lock log lua md mjs "
    "patch php pl proto py pyi rb rs rst sh sql svg swift tex toml ts tsv tsx txt vue xml yaml yml"
)
KNOWN_EXTENSIONS = set(EXTENSIONS.split())
URL = re.compile(r"""https?://[^\s"'\\,;<>()\[\]{}`]+""")
WORD = re.compile(r"[\w./@~+#:-]*[\w/]")
EDGES = ".:#+-"
EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d.*)?|\d\d?[./]\d\d?[./]\d{4}")
HASH = re.compile(r"(?=.*[a-f])(?=.*\d)[0-9a-f]{7,64}")
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NUMBER = re.compile(r"\d+\.\d+|\d{4,}")
SNAKE = re.compile(r"(?!.*\d{3})_*[A-Za-z][A-Za-z0-9]*(_+[A-Za-z0-9]+)+_*|(?!.*\d{3})__\w+__")
ID = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?=.{4})[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
CAMEL = re.compile(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def is_path(word: str) -> bool:
    """Check if a word is a path: with a ``/``, or a name with a known extension."""
    if "/" not in word:
        name, dot, extension = word.rpartition(".")
        return bool(
            dot and re.fullmatch(r"[\w.@+-]*\w[\w.@+-]*", name) and extension in KNOWN_EXTENSIONS
        )
    body = word[1:] if word.startswith("~") else word
    parts = body.removeprefix("/").split("/")
    if not all(re.fullmatch(r"[\w.@+-]+", part) for part in parts if part or len(parts) > 1):
        return False
    known = word[0] in "/~." or word.count("/") > 1 or "." in word or "_" in word
    return known and all(parts) and any(letter.isalnum() for letter in word)


def classify(word: str) -> str | None:
    """Return the kind of a word of 3 to 200 characters, or None if it is no entity."""
    if re.fullmatch(r"[^\W\d_]+", word) and word[1:].islower():
        return None
    patterns = [("email", EMAIL), ("date", DATE), ("path", None), ("hash", HASH), ("hash", UUID)]
    patterns += [("number", NUMBER), ("identifier", SNAKE), ("id", ID)]
    patterns += [("identifier", CAMEL), ("identifier", DOTTED)]
    for kind, pattern in patterns:
        if pattern.fullmatch(word) if pattern else is_path(word):
            return kind
    return None


def word_entities(word: str) -> Iterator[Entity]:
    """Find the entities of a word."""
    if re.match(r"\.\.?/|\.\w", word):
        path = word.rstrip(EDGES).removesuffix("/")
        if 3 <= len(path) <= 200 and is_path(path):
            yield Entity("path", path)
            return
    word = word.strip(EDGES).removesuffix("/")
    is_whole = EMAIL.fullmatch(word) or DATE.fullmatch(word)
    if not is_whole and re.search("[:#]", word):
        for part in re.split("::|:|#", word):
            yield from word_entities(part)
    elif 3 <= len(word) <= 200 and (kind := classify(word)):
        yield Entity(kind, word)


def text_entities(text: str) -> list[Entity]:
    """Find the entities of a text."""
    found = [Entity("url", url.rstrip(".:")) for url in URL.findall(text)]
    for word in WORD.findall(URL.sub(" ", text)):
        found += word_entities(word)
    return found


def value_entities(value: Any) -> list[Entity]:
    """Find the entities of an argument."""
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, (int, float)):
        counts = value % 1 or abs(value) >= 1000
        return [Entity("number", str(value))] if counts else []
    value = value.strip()
    if re.fullmatch(r"\d{2,3}", value):
        return [Entity("id", f'"{value}"')]
    if found := text_entities(value):
        return found
    tells = any(c.isalpha() for c in value) or sum(c.isdigit() for c in value) > 4
    fits = 3 <= len(value) <= 60 and "\n" not in value and value.count(" ") <= 5
    is_option = value.isalpha() and value.islower()
    return [Entity("value", value)] if tells and fits and not is_option else []


# ----------------------------------------------------------------------------------- texts of messages


def argument_leaves(call: Call) -> list[Any]:
    """List the leaves of the arguments of a call."""

    def leaves(value: Any) -> Iterator[Any]:
        if isinstance(value, (dict, list)):
            for each in value.values() if isinstance(value, dict) else value:
                yield from leaves(each)
        else:
            yield value

    return list(leaves(parsed_arguments(call)))


def keys(value: Any) -> Iterator[str]:
    """List the names of all parameters in the arguments of a call."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from keys(each)


def parsed_arguments(call: Call) -> Any:
    """Parse the JSON of the arguments; if it is not valid, return the string."""
    try:
        return json.loads(call.arguments) if call.arguments else {}
    except ValueError:
        return call.arguments


def written_value(value: Any) -> str:
    """Write an argument as it stands in the text of its message."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f'"{value}"' if re.fullmatch(r"\d{1,3}", value) else value
    return str(value)


@dataclass
class Part:
    """The content of a message, or one argument: ``text[start:stop]`` of the text of the message."""

    start: int
    stop: int
    tool: str | None = None


def message_text(message: Said) -> tuple[str, list[Part]]:
    """Return the text of a message and its parts."""
    text = message.content
    parts = [Part(0, len(text))]
    for call in message.calls:
        for value in argument_leaves(call) or [None]:
            text += f"\n{call.name} "
            start = len(text)
            text += written_value(value)
            parts.append(Part(start, len(text), call.name))
    return text, parts


# ------------------------------------------------------------------------------------------- one line


@dataclass(frozen=True)
class Source:
    """A source line: the text to find, where the entity stands in it, and whether it is bare."""

    text: str
    offset: int
    is_bare: bool


class Recall:
    """The needs of a recording, and the tier of each need in a request.

    Parameters
    ----------
    messages : list of Said
        Messages of the recording, with their tokens.
    tools : str
        Names and texts of all tool definitions.
    folder : str, optional
        Folder that the log names.
    """

    def __init__(
        self, messages: Sequence[Said], tools: str = "", folder: str | None = None
    ) -> None:
        self.messages, self.tools = messages, tools
        self.texts, self.parts = zip(*(message.parts for message in messages), strict=True)
        self.calls = [call for message in messages for call in message.calls]
        self.workspace = (folder or self.first_folder() or "").rstrip("/")
        self.schema_words = {call.name for call in self.calls}
        for call in self.calls:
            self.schema_words |= set(keys(parsed_arguments(call)))
        self.known_mentions: dict[Entity, dict[int, list[int]]] = {}
        self.known_sources: dict[tuple[Entity, int], list[tuple[list[Source], str | None]]] = {}
        roles = [message.role for message in messages]
        begun = min((roles.index(role) for role in ("user", "tool") if role in roles), default=0)
        self.requests = [
            i for i in range(begun, len(roles)) if roles[i] == "assistant" and begun < i
        ]

    def first_folder(self) -> str | None:
        """Return the first absolute folder to which a recorded call changes."""
        for call in self.calls:
            for value in argument_leaves(call):
                if isinstance(value, str) and (
                    found := re.search(r"""\bcd\s+["']?(/[^\s"';&|)]+)""", value)
                ):
                    return found[1]
        return None

    def written_once(self, entity: Entity) -> Entity:
        """Write a path in its one form."""
        if entity.kind != "path":
            return entity
        path = entity.text
        if self.workspace:
            path = path.removeprefix(self.workspace + "/")
        while path.startswith("./"):
            path = path[2:]
        return Entity("path", path)

    def entities(self, text: str) -> set[Entity]:
        """Return the entities of a text, with paths in one form."""
        return {self.written_once(entity) for entity in text_entities(text)}

    # -------------------------------------------------------------------------------------- mentions

    def mentions(self, entity: Entity, text: str) -> list[int]:
        """Return where a text mentions an entity."""
        name, found = entity.text, []
        start = text.find(name)
        while start >= 0:
            before, after = text[start - 1 : start], text[start + len(name) : start + len(name) + 1]
            continued = word_character(before) and word_character(name[0])
            continued = continued or (word_character(after) and word_character(name[-1]))
            if not continued and not (
                entity.kind == "path" and self.ends_longer(text, start, name)
            ):
                found.append(start)
            start = text.find(name, start + 1)
        return found

    def ends_longer(self, text: str, start: int, path: str) -> bool:
        """Check if a path in a text is the end of a longer path."""
        before = text[:start]
        if path[0] in "/.~" and re.search(r"[A-Za-z0-9_.~@]$", before[-1:]):
            return True
        if not before.endswith("/"):
            return False
        if before.endswith("./") and not before.endswith("../"):
            return False
        if self.workspace and before.endswith(self.workspace + "/"):
            return False
        return not re.search(r"""(^|[\s"'`])[ab]/$""", before[-3:])

    def earlier_mentions(self, entity: Entity, request: int) -> dict[int, list[int]]:
        """Return the positions in the text of each message before a request that mentions an entity."""
        if entity not in self.known_mentions:
            places = ((i, self.mentions(entity, text)) for i, text in enumerate(self.texts))
            self.known_mentions[entity] = {i: found for i, found in places if found}
        return {i: found for i, found in self.known_mentions[entity].items() if i < request}

    # ----------------------------------------------------------------------------------------- needs

    def arguments(self, request: int) -> list[list[Entity]]:
        """Return the entities of each argument of the action of a request."""
        if not self.calls:
            return [text_entities(self.messages[request].content)]
        calls = self.messages[request].calls
        return [value_entities(value) for call in calls for value in argument_leaves(call)]

    def needs(self) -> list[Need]:
        """Return all needs of the recording."""
        found = []
        first: dict[str, Entity] = {}
        for request in self.requests:
            for number, used in enumerate(self.arguments(request)):
                for entity in dict.fromkeys(map(self.written_once, used)):
                    if entity.kind == "identifier" and entity.text in self.schema_words:
                        continue
                    if need := self.need(request, number, first.setdefault(entity.text, entity)):
                        found.append(need)
        return found

    def need(self, request: int, argument: int, entity: Entity) -> Need | None:
        """Return the need of a use of an entity, or None if it is no need."""
        earlier = self.earlier_mentions(entity, request)
        if not earlier or self.mentions(entity, self.tools):
            return None
        role = self.messages[min(earlier)].role
        if role == "system" or (role == "assistant" and entity.kind == "value"):
            return None
        last = max(earlier)
        characters = len(self.texts[last])
        after = characters - earlier[last][-1] - len(entity.text)
        gap = self.messages[last].tokens * after // characters
        gap += sum(message.tokens for message in self.messages[last + 1 : request])
        return Need(request, argument, entity, {"assistant": "agent"}.get(role, role), gap)

    # ----------------------------------------------------------------------------------------- tiers

    def tier(self, need: Need, sent: Sequence[Sent]) -> str:
        """Return the tier of a need in its request."""
        entity, earlier = need.entity, self.earlier_mentions(need.entity, need.request)
        if any(each.form == "verbatim" and each.start in earlier for each in sent):
            return "held"
        named = False
        for each in sent:
            is_edited = each.stop - each.start == 1
            if each.form == "verbatim" or (is_edited and each.start not in earlier):
                continue
            text, _ = each.message.parts
            if not self.mentions(entity, text):
                continue
            named = True
            for position in [each.start] if is_edited else earlier:
                if self.quotes(text, entity, position):
                    return "held"
        if named:
            return "named"
        fetchable = (each for each in sent if each.form in ("stub", "pointer"))
        if any(each.start <= position < each.stop for each in fetchable for position in earlier):
            return "pointer"
        return "lost"

    def quotes(self, text: str, entity: Entity, position: int) -> bool:
        """Check if a text quotes a source line of a mention in the message at a position."""
        places = set(self.mentions(entity, text))
        for sources, tool in self.sources(entity, position):
            for source in sources:
                start = text.find(source.text)
                while start >= 0:
                    if start + source.offset in places:
                        return True
                    start = text.find(source.text, start + 1)
            if tool and any(
                self.repeats_call(line, entity, tool, position) for line in text.split("\n")
            ):
                return True
        return False

    def repeats_call(self, line: str, entity: Entity, tool: str, position: int) -> bool:
        """Check if a line contains an entity and its tool, and no entity that is not of the calls."""
        if not self.mentions(entity, line) or not self.mentions(Entity("tool", tool), line):
            return False
        _, parts = self.messages[position].parts
        calls = "\n".join(
            f"{p.tool} {self.texts[position][p.start : p.stop]}" for p in parts if p.tool
        )
        return all(self.mentions(other, calls) for other in self.entities(line))

    def sources(self, entity: Entity, position: int) -> list[tuple[list[Source], str | None]]:
        """Return what a text must contain to quote each mention of an entity in a message.

        For each mention: the alternatives, and the tool's name if a line with it is enough.
        """
        key = (entity, position)
        if key not in self.known_sources:
            found = self.known_sources[key] = []
            for start in self.mentions(entity, self.texts[position]):
                stop = start + len(entity.text)
                parts = [p for p in self.parts[position] if p.start <= start and stop <= p.stop]
                found += [self.quotable(entity, self.texts[position], p, start) for p in parts]
        return self.known_sources[key]

    def quotable(
        self, entity: Entity, text: str, part: Part, start: int
    ) -> tuple[list[Source], str | None]:
        """Return what a text must contain to quote one mention."""
        stop = start + len(entity.text)
        line_start = max(text.rfind("\n", part.start, start) + 1, part.start)
        line_stop = text.find("\n", stop, part.stop)
        line_stop = part.stop if line_stop < 0 else line_stop
        first = max(line_start, start - 80)
        last = min(line_stop, max(first + 160, stop))
        line = self.source(entity, text, first, last, start)
        if not line.is_bare:
            return [line], None
        pairs = []
        if first == line_start and line_start > part.start:
            above = max(text.rfind("\n", part.start, line_start - 1) + 1, part.start)
            pairs.append(self.source(entity, text, max(above, line_start - 161), last, start))
        if last == line_stop and line_stop < part.stop:
            below = text.find("\n", line_stop + 1, part.stop)
            below = part.stop if below < 0 else below
            pairs.append(self.source(entity, text, first, min(below, line_stop + 161), start))
        is_argument = part.tool and line.text == text[part.start : part.stop].strip()
        return [pair for pair in pairs if not pair.is_bare], part.tool if is_argument else None

    def source(self, entity: Entity, text: str, first: int, last: int, start: int) -> Source:
        """Return a part of a text without spaces at its ends."""
        while first < start and text[first].isspace():
            first += 1
        while last > start + len(entity.text) and text[last - 1].isspace():
            last -= 1
        rest = URL.sub(" ", text[first:last].replace(entity.text, "a_b"))
        words = [word for word in WORD.findall(rest) if not list(word_entities(word))]
        told = sum(character.isalnum() for word in words for character in word)
        return Source(text[first:last], start - first, told < 6)

    def is_similar(self, need: Need, tier: str, sent: Sequence[Sent]) -> bool:
        """Check if the last two parts of a path are in a request that does not show the path."""
        if need.entity.kind != "path" or tier in ("held", "named"):
            return False
        parts = need.entity.text.split("/")[-2:]
        if len(parts) < 2 or not any(character.isalnum() for character in parts[0]):
            return False
        ending = Entity("ending", "/".join(parts))
        return any(self.mentions(ending, each.message.parts[0]) for each in sent)


def word_character(character: str) -> bool:
    """Check if a character is an ASCII letter, digit or underscore."""
    return bool(re.match(r"[A-Za-z0-9_]", character))
