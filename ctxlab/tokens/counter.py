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
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.tokens.encodings import find_encoding_name, load_encoding
from ctxlab.tokens.images import count_image_tokens, model_family
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile, find_profile
from ctxlab.tokens.tool_schemas import render_tools

__all__ = [
    "CONTROL_TOKENS",
    "DEFAULT_MODEL",
    "TokenCounter",
    "count_tokens",
    "get_counter",
    "render_message",
    "render_request",
]

DEFAULT_MODEL = "gpt-5"

CONTROL_TOKENS = ("\ufdd0start\ufdd1", "\ufdd0sep\ufdd1", "\ufdd0end\ufdd1")
"""Stand-ins for ``<|im_start|>``, ``<|im_sep|>`` and ``<|im_end|>``: non-characters, which no honest
text holds, so that a log that quotes the real ones is still counted as text."""

_IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})

# tiktoken's regular expression overflows its stack on about 600,000 white-space characters in a row
# and raises a BaseException; such a run is counted in pieces.
_MAX_BLANK_RUN = 100_000
_LONG_BLANK = re.compile(rf"\s{{{_MAX_BLANK_RUN},}}")

# Texts above this length are not kept for being seen again: they would hold on to memory.
_MAX_CACHED_CHARS = 20_000


class TokenCounter:
    """Counts tokens as one model would, each distinct text once.

    >>> counter = TokenCounter("gpt-4o")
    >>> counter.count_text("hello world"), counter.count_message(Message("user", "hello world"))
    (2, 6)
    >>> counter.count_request([Message("user", "hello world")])
    9
    >>> TokenCounter("claude-opus-4-5").exact
    False
    """

    REPLY_TOKENS = 3
    """Tokens that open the reply, once a request."""

    def __init__(self, model: str = DEFAULT_MODEL, profile: TokenProfile | None = None) -> None:
        self.model = model
        self.profile = find_profile(model) if profile is None else profile
        "what turns counts into what is billed; ``UNCALIBRATED`` leaves them as they are"
        self.encoding_name, self.exact = find_encoding_name(model)
        self.family = model_family(model)
        self._is_uncalibrated = self.profile == UNCALIBRATED
        self._encoding = load_encoding(self.encoding_name)
        self._count_cached = lru_cache(maxsize=8192)(self._count_uncached)

    def __repr__(self) -> str:
        """Whose counter it is, and how far it can be trusted.

        >>> TokenCounter("gpt-4o")
        TokenCounter('gpt-4o', exact)
        """
        known = "exact" if self.exact else "approximate"
        return f"TokenCounter({self.model!r}, {known if self._is_uncalibrated else 'calibrated'})"

    def __reduce__(self) -> tuple[type[TokenCounter], tuple[str, TokenProfile]]:
        # A vocabulary is megabytes: send its name.
        return TokenCounter, (self.model, self.profile)

    @property
    def accuracy_note(self) -> str:
        """How far the counts can be trusted, as a sentence."""
        if self.exact and self._is_uncalibrated:
            return f"tokens are counted with {self.encoding_name}, the vocabulary of {self.model}"
        if self.profile != UNCALIBRATED:
            return (
                f"the vocabulary of {self.model} is not public: tokens are approximated as "
                f"{self.profile.accuracy_note}"
            )
        return (
            f"the vocabulary of {self.model} is not public: tokens are approximated with "
            f"{self.encoding_name} and may be 20 % low or worse"
        )

    def count_text(self, text: str) -> int:
        """Tokens of a text on its own; special tokens in it are text."""
        return self.profile.billed_tokens(self._count_raw(text), len(text))

    def count_message(self, message: Message) -> int:
        """Tokens of a message with its overhead, its calls and its images."""
        text, chars, images = self.count_parts(message)
        if self._is_uncalibrated:
            return text + images
        return self.profile.billed_tokens(text, chars, len(message.tool_calls)) + images

    def count_parts(self, message: Message) -> tuple[int, int, int]:
        """Tokens of text and calls before calibration, their characters, and tokens of images."""
        content, calls = message.content, message.tool_calls
        total = chars = images = 0
        if content or not calls:
            header = message.role if message.name is None else f"{message.role}:{message.name}"
            body = content if isinstance(content, str) else _content_text(message)
            total = 3 + self._count_cached(header) + (self._count_raw(body) if body else 0)
            chars = len(body)
            if isinstance(content, tuple):
                images = sum(count_image_tokens(p, self.family) for p in content if _is_image(p))
        for call in calls:
            total += (
                3 + self._count_cached(_call_header(call.name)) + self._count_raw(call.arguments)
            )
            chars += len(call.arguments)
        return total, chars, images

    def count_reasoning(self, message: Message) -> int:
        """Tokens of a message's hidden reasoning, where recorded; ``count_message`` leaves it out."""
        said = message.reasoning
        return round(self._count_raw(said) * self.profile.reasoning) if said else 0

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of the tool definitions as the provider would write them into the prompt."""
        text = render_tools([dict(t) for t in tools], self.family) if tools else ""
        return self.profile.billed_tokens(3 + self._count_raw(text), len(text)) if text else 0

    def count_request(
        self, messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Tokens of a whole request: messages, tool definitions, the opening of the reply."""
        return sum(map(self.count_message, messages)) + self.count_tools(tools) + self.REPLY_TOKENS

    def _count_raw(self, text: str) -> int:
        return (
            self._count_cached(text)
            if len(text) <= _MAX_CACHED_CHARS
            else self._count_uncached(text)
        )

    def _count_uncached(self, text: str) -> int:
        if len(text) >= _MAX_BLANK_RUN:
            return sum(map(self._count_piece, _split_blank_runs(text)))
        return self._count_piece(text)

    def _count_piece(self, text: str) -> int:
        try:
            # Only the number is asked for: an array is made faster than a list.
            return self._encoding.encode_to_numpy(text, disallowed_special=()).size
        except UnicodeEncodeError:  # lone surrogates, which the list variant replaces
            return len(self._encoding.encode_ordinary(text))


def count_tokens(
    content: str | Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]],
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
    counter = get_counter(model)
    if isinstance(content, str):
        return counter.count_text(content)
    if isinstance(content, Message):
        return counter.count_message(content)
    if isinstance(content, Mapping):
        return counter.count_message(message_from_dict(content))
    messages = (m if isinstance(m, Message) else message_from_dict(m) for m in content)
    return counter.count_request(messages, tools)


def get_counter(model: str = DEFAULT_MODEL, profile: TokenProfile | None = None) -> TokenCounter:
    """Return the counter of a model, the same one each time, with the texts that it has counted.

    Parameters
    ----------
    model : str, optional
        Name of the model.
    profile : TokenProfile, optional
        What turns counts into what is billed. None: the built-in one.

    Returns
    -------
    TokenCounter

    Examples
    --------
    >>> get_counter("gpt-4o") is get_counter("gpt-4o")
    True
    """
    return _cached_counter(model, find_profile(model) if profile is None else profile)


@lru_cache(maxsize=16)
def _cached_counter(model: str, profile: TokenProfile) -> TokenCounter:
    return TokenCounter(model, profile)


def render_request(
    messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = (), family: str = "openai"
) -> str:
    """The request as one text with ``CONTROL_TOKENS``; encoded in one pass it gives its tokens.

    Images are no text: their tokens come on top. Tool definitions stand first, in a block of their own,
    which agrees with what OpenAI's API bills for them.
    """
    start, sep, end = CONTROL_TOKENS
    text = render_tools([dict(t) for t in tools], family) if tools else ""
    head = f"{start}{sep}{text}{end}" if text else ""
    body = "".join(map(render_message, messages))
    # The reply opens with start, "assistant", sep: a role is one token in the chat vocabularies.
    return f"{head}{body}{start}assistant{sep}"


def render_message(message: Message) -> str:
    """One message as text between ``CONTROL_TOKENS``: a block for the content, one for each call."""
    start, sep, end = CONTROL_TOKENS
    blocks = []
    if message.content or not message.tool_calls:
        header = message.role if message.name is None else f"{message.role}:{message.name}"
        blocks.append(f"{start}{header}{sep}{_content_text(message)}{end}")
    blocks.extend(
        f"{start}{_call_header(c.name)}{sep}{c.arguments}{end}" for c in message.tool_calls
    )
    return "".join(blocks)


def _call_header(name: str) -> str:
    return f"assistant to=functions.{name}"


def _is_image(part: Mapping[str, Any]) -> bool:
    return part.get("type") in _IMAGE_PARTS


def _content_text(message: Message) -> str:
    """The content as text: parts one a line, a part of unknown kind as its JSON."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "\n".join(map(_part_text, message.content))


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "" if _is_image(part) else dump_json(part)


def _split_blank_runs(text: str) -> Iterator[str]:
    """A long text cut inside its runs of white space, so that no piece holds too long a run."""
    last = 0
    for run in _LONG_BLANK.finditer(text):
        for cut in range(run.start() + _MAX_BLANK_RUN, run.end(), _MAX_BLANK_RUN):
            yield text[last:cut]
            last = cut
    yield text[last:]
