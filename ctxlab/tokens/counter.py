"""Every message is counted once, and the sum is what one pass over the rendered request gives.

The rendering follows OpenAI's chat layout: three control tokens around each block, a role that is
text, three more to open the reply (OpenAI cookbook, "How to count tokens with tiktoken"). A block
boundary is a control token, which no merge crosses: that is why counts of single messages add up
exactly. For other providers the vocabulary is not public; ``TokenCounter.exact`` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.tokens.encodings import (
    encoding,
    encoding_for,
)
from ctxlab.tokens.images import (
    family_of,
    image_tokens,
)
from ctxlab.tokens.profiles import (
    UNCALIBRATED,
    Profile,
    find_profile,
)
from ctxlab.tokens.tool_schemas import render_tools

if TYPE_CHECKING:
    from ctxlab.tokens.calibration import Calibration

__all__ = [
    "CONTROLS",
    "DEFAULT_MODEL",
    "TokenCounter",
    "count_tokens",
    "render",
    "render_message",
]

DEFAULT_MODEL = "gpt-5"

CONTROLS = ("\ufdd0start\ufdd1", "\ufdd0sep\ufdd1", "\ufdd0end\ufdd1")
"""Stand-ins for ``<|im_start|>``, ``<|im_sep|>`` and ``<|im_end|>``: non-characters, which no honest
text holds, so that a log that quotes the real ones is still counted as text."""

_IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})

# tiktoken's regular expression overflows its stack on about 600,000 white-space characters in a row
# and raises a BaseException; such a run is counted in pieces.
_RUN = 100_000
_LONG_BLANK = re.compile(rf"\s{{{_RUN},}}")

# Texts above this length are not kept for being seen again: they would hold on to memory.
_KEEP = 20_000


class TokenCounter:
    """Counts tokens as one model would, each distinct text once.

    >>> counter = TokenCounter("gpt-4o")
    >>> counter.text("hello world"), counter.message(Message("user", "hello world"))
    (2, 6)
    >>> counter.request([Message("user", "hello world")])
    9
    >>> TokenCounter("claude-opus-4-5").exact
    False
    """

    REPLY = 3
    """Tokens that open the reply, once a request."""

    def __init__(self, model: str = DEFAULT_MODEL, profile: Profile | None = None) -> None:
        self.model = model
        self.profile = find_profile(model) if profile is None else profile
        "what turns counts into what is billed; ``UNCALIBRATED`` leaves them as they are"
        self.encoding_name, self.exact = encoding_for(model)
        self.family = family_of(model)
        self._plain = self.profile == UNCALIBRATED
        self._encoding = encoding(self.encoding_name)
        self._short = lru_cache(maxsize=8192)(self._count)

    def __repr__(self) -> str:
        """Whose counter it is, and how far it can be trusted.

        >>> TokenCounter("gpt-4o")
        TokenCounter('gpt-4o', exact)
        """
        known = "exact" if self.exact else "approximate"
        return f"TokenCounter({self.model!r}, {known if self._plain else 'calibrated'})"

    def __reduce__(self) -> tuple[type[TokenCounter], tuple[str, Profile]]:
        # A vocabulary is megabytes: send its name.
        return TokenCounter, (self.model, self.profile)

    @staticmethod
    def calibrate(recordings: Iterable[Recording], model: str = "claude-opus-4-5") -> Calibration:
        """Learns from the provider's own usage in recordings how the family of ``model`` counts.

        ``TokenCounter(model, calibration.profile)`` then counts so; ``calibration.save()`` stores
        the profile for later runs in the project. See ``ctxlab.tokens.calibration.calibrate``.
        """
        from ctxlab.tokens.calibration import calibrate

        return calibrate(recordings, model)

    @property
    def note(self) -> str:
        """How far the counts can be trusted, as a sentence."""
        if self.exact and self._plain:
            return f"tokens are counted with {self.encoding_name}, the vocabulary of {self.model}"
        if self.profile != UNCALIBRATED:
            return (
                f"the vocabulary of {self.model} is not public: tokens are approximated as "
                f"{self.profile.note}"
            )
        return (
            f"the vocabulary of {self.model} is not public: tokens are approximated with "
            f"{self.encoding_name} and may be 20 % low or worse"
        )

    def text(self, text: str) -> int:
        """Tokens of a text on its own; special tokens in it are text."""
        return self.profile.tokens(self._text(text), len(text))

    def message(self, message: Message) -> int:
        """Tokens of a message with its overhead, its calls and its images."""
        text, chars, images = self.parts(message)
        if self._plain:
            return text + images
        return self.profile.tokens(text, chars, len(message.tool_calls)) + images

    def parts(self, message: Message) -> tuple[int, int, int]:
        """Tokens of text and calls before calibration, their characters, and tokens of images."""
        content, calls = message.content, message.tool_calls
        total = chars = images = 0
        if content or not calls:
            header = message.role if message.name is None else f"{message.role}:{message.name}"
            body = content if isinstance(content, str) else _body(message)
            total = 3 + self._short(header) + (self._text(body) if body else 0)
            chars = len(body)
            if isinstance(content, tuple):
                images = sum(image_tokens(p, self.family) for p in content if _is_image(p))
        for call in calls:
            total += 3 + self._short(_to(call.name)) + self._text(call.arguments)
            chars += len(call.arguments)
        return total, chars, images

    def reasoning(self, message: Message) -> int:
        """Tokens of a message's hidden reasoning, as far as it was recorded; ``message`` has none."""
        said = message.reasoning
        return round(self._text(said) * self.profile.reasoning) if said else 0

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of the tool definitions as the provider would write them into the prompt."""
        text = render_tools([dict(t) for t in tools], self.family) if tools else ""
        return self.profile.tokens(3 + self._text(text), len(text)) if text else 0

    def request(self, messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Tokens of a whole request: messages, tool definitions, the opening of the reply."""
        return sum(map(self.message, messages)) + self.tools(tools) + self.REPLY

    def _text(self, text: str) -> int:
        return self._short(text) if len(text) <= _KEEP else self._count(text)

    def _count(self, text: str) -> int:
        if len(text) >= _RUN:
            return sum(map(self._count_piece, _pieces(text)))
        return self._count_piece(text)

    def _count_piece(self, text: str) -> int:
        try:
            # Only the number is asked for: an array is made faster than a list.
            return self._encoding.encode_to_numpy(text, disallowed_special=()).size
        except UnicodeEncodeError:  # lone surrogates, which the list variant replaces
            return len(self._encoding.encode_ordinary(text))


def count_tokens(
    what: str | Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]],
    model: str = DEFAULT_MODEL,
    tools: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Tokens of a text, of one message, or of a request.

    Messages may be dicts in OpenAI's shape. A text counts for itself, a message with its overhead, a
    list of messages as a request with its tool definitions.

    >>> count_tokens("hello world", "gpt-4o")
    2
    >>> count_tokens([{"role": "user", "content": "hello world"}], "gpt-4o")
    9
    """
    counter = _counter(model)
    if isinstance(what, str):
        return counter.text(what)
    if isinstance(what, Message):
        return counter.message(what)
    if isinstance(what, Mapping):
        return counter.message(Message.from_dict(what))
    messages = (m if isinstance(m, Message) else Message.from_dict(m) for m in what)
    return counter.request(messages, tools)


@lru_cache(maxsize=8)
def _counter(model: str) -> TokenCounter:
    return TokenCounter(model)


def render(
    messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = (), family: str = "openai"
) -> str:
    """The request as one text with ``CONTROLS``; encoding it in one pass gives the request's tokens.

    Images are no text: their tokens come on top. Tool definitions stand first, in a block of their own,
    which agrees with what OpenAI's API bills for them.
    """
    start, sep, end = CONTROLS
    text = render_tools([dict(t) for t in tools], family) if tools else ""
    head = f"{start}{sep}{text}{end}" if text else ""
    body = "".join(map(render_message, messages))
    # The reply opens with start, "assistant", sep: a role is one token in the chat vocabularies.
    return f"{head}{body}{start}assistant{sep}"


def render_message(message: Message) -> str:
    """One message as text between ``CONTROLS``: a block for the content, one for each call."""
    start, sep, end = CONTROLS
    blocks = []
    if message.content or not message.tool_calls:
        header = message.role if message.name is None else f"{message.role}:{message.name}"
        blocks.append(f"{start}{header}{sep}{_body(message)}{end}")
    blocks.extend(f"{start}{_to(c.name)}{sep}{c.arguments}{end}" for c in message.tool_calls)
    return "".join(blocks)


def _to(name: str) -> str:
    return f"assistant to=functions.{name}"


def _is_image(part: Mapping[str, Any]) -> bool:
    return part.get("type") in _IMAGE_PARTS


def _body(message: Message) -> str:
    """The content as text: parts one a line, a part of unknown kind as its JSON."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "\n".join(map(_part_text, message.content))


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "" if _is_image(part) else dump_json(part)


def _pieces(text: str) -> Iterator[str]:
    """A long text cut inside its runs of white space, so that no piece holds too long a run."""
    last = 0
    for run in _LONG_BLANK.finditer(text):
        for cut in range(run.start() + _RUN, run.end(), _RUN):
            yield text[last:cut]
            last = cut
    yield text[last:]
