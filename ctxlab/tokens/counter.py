"""Count the tokens of texts, messages and requests.

Requests are rendered in OpenAI's chat layout: each block has three control tokens and the role as
text, and three more tokens open the reply. No merge of the tokenizer crosses a control token. So
the counts of single messages add up exactly to the count of the whole request, and each message is
counted only once. The tokenizers of other providers are not public; then ``TokenCounter.exact`` is
False.

References
----------
- OpenAI cookbook, "How to count tokens with tiktoken"
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
from ctxlab.tokens.images import count_image_tokens, is_image_part, model_family
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile, find_profile
from ctxlab.tokens.tool_schemas import render_tools

DEFAULT_MODEL = "gpt-5"

# tiktoken's regular expression overflows its stack on runs of about 600,000 white-space characters
# and raises a BaseException, so such runs are counted in pieces.
_MAX_BLANK_RUN = 100_000
_LONG_BLANK = re.compile(rf"\s{{{_MAX_BLANK_RUN},}}")

# Counts of longer texts are not cached, because the cache keeps its texts in memory.
_MAX_CACHED_CHARS = 20_000


class TokenCounter:
    """Counts tokens as a model does, and caches the counts of texts.

    Parameters
    ----------
    model : str, optional
        Name of the model.
    profile : TokenProfile, optional
        Calibration of the model's family; ``UNCALIBRATED`` for raw counts. None: the built-in
        profile.

    Examples
    --------
    >>> counter = TokenCounter("gpt-4o")
    >>> counter.count_text("hello world"), counter.count_message(Message("user", "hello world"))
    (2, 6)
    >>> counter.count_request([Message("user", "hello world")])
    9
    >>> TokenCounter("claude-opus-4-5").exact
    False
    """

    REPLY_TOKENS = 3
    "Tokens that open the reply, once per request."

    def __init__(self, model: str = DEFAULT_MODEL, profile: TokenProfile | None = None) -> None:
        self.model = model
        self.profile = find_profile(model) if profile is None else profile
        "converts counts to billed tokens; ``UNCALIBRATED`` leaves counts unchanged"
        self.encoding_name, self.exact = find_encoding_name(model)
        self.family = model_family(model)
        self._is_uncalibrated = self.profile == UNCALIBRATED
        self._encoding = load_encoding(self.encoding_name)
        self._count_cached = lru_cache(maxsize=8192)(self._count_uncached)

    def __repr__(self) -> str:
        """Return the model and the accuracy of the counter.

        >>> TokenCounter("gpt-4o")
        TokenCounter('gpt-4o', exact)
        """
        known = "exact" if self.exact else "approximate"
        return f"TokenCounter({self.model!r}, {known if self._is_uncalibrated else 'calibrated'})"

    def __reduce__(self) -> tuple[type[TokenCounter], tuple[str, TokenProfile]]:
        """Pickle the model and the profile only, because an encoding pickles as megabytes."""
        return TokenCounter, (self.model, self.profile)

    @property
    def accuracy_note(self) -> str:
        """Accuracy of the counts, as a sentence without a full stop."""
        if self.exact and self._is_uncalibrated:
            return f"tokens are counted with {self.encoding_name}, the encoding of {self.model}"
        how = f"as {self.profile.accuracy_note}"
        if self._is_uncalibrated:
            how = f"with {self.encoding_name} and may be 20 % too low or worse"
        return f"the tokenizer of {self.model} is not public: tokens are approximated {how}"

    def count_text(self, text: str) -> int:
        """Return the tokens of a text on its own.

        Parameters
        ----------
        text : str
            The text. Special tokens in it are counted as text.

        Returns
        -------
        int
            Tokens, calibrated.
        """
        return self.profile.billed_tokens(self._count_raw(text), len(text))

    def count_message(self, message: Message) -> int:
        """Return the tokens of a message with its overhead, tool calls and images.

        Parameters
        ----------
        message : Message
            The message. Its hidden reasoning is not counted.

        Returns
        -------
        int
            Tokens, calibrated.
        """
        text, chars, images = self.count_parts(message)
        if self._is_uncalibrated:
            return text + images
        return self.profile.billed_tokens(text, chars, len(message.tool_calls)) + images

    def count_parts(self, message: Message) -> tuple[int, int, int]:
        """Return the counts of a message from which its calibrated tokens are computed.

        Parameters
        ----------
        message : Message
            The message.

        Returns
        -------
        tuple of (int, int, int)
            Uncalibrated tokens of text and tool calls, characters of both, and tokens of images.
        """
        content, calls = message.content, message.tool_calls
        total = chars = images = 0
        if content or not calls:
            header = message.role if message.name is None else f"{message.role}:{message.name}"
            if isinstance(content, tuple):
                shown = [part for part in content if is_image_part(part)]
                images = sum(count_image_tokens(part, self.family) for part in shown)
                body = "\n".join(map(_part_text, content))
            else:
                body = content or ""
            total = 3 + self._count_cached(header) + (self._count_raw(body) if body else 0)
            chars = len(body)
        for call in calls:
            header = f"assistant to=functions.{call.name}"
            total += 3 + self._count_cached(header) + self._count_raw(call.arguments)
            chars += len(call.arguments)
        return total, chars, images

    def count_reasoning(self, message: Message) -> int:
        """Return the tokens of a message's recorded hidden reasoning, which ``count_message`` omits.

        Parameters
        ----------
        message : Message
            The message.

        Returns
        -------
        int
            Tokens, calibrated; 0 if no reasoning is recorded.
        """
        said = message.reasoning
        return round(self._count_raw(said) * self.profile.reasoning) if said else 0

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Return the tokens of tool definitions as the provider writes them into the prompt.

        Parameters
        ----------
        tools : sequence of mapping
            Tool definitions.

        Returns
        -------
        int
            Tokens, calibrated.
        """
        text = render_tools([dict(t) for t in tools], self.family) if tools else ""
        return self.profile.billed_tokens(3 + self._count_raw(text), len(text)) if text else 0

    def count_request(
        self, messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Return the tokens of a request: messages, tool definitions and the opening of the reply.

        Parameters
        ----------
        messages : iterable of Message
            Messages of the request.
        tools : sequence of mapping, optional
            Tool definitions.

        Returns
        -------
        int
            Tokens, calibrated.
        """
        return sum(map(self.count_message, messages)) + self.count_tools(tools) + self.REPLY_TOKENS

    def _count_raw(self, text: str) -> int:
        cached = len(text) <= _MAX_CACHED_CHARS
        return self._count_cached(text) if cached else self._count_uncached(text)

    def _count_uncached(self, text: str) -> int:
        if len(text) >= _MAX_BLANK_RUN:
            return sum(map(self._count_piece, _split_blank_runs(text)))
        return self._count_piece(text)

    def _count_piece(self, text: str) -> int:
        try:
            # Only the length is needed, and an array is faster to make than a list.
            return self._encoding.encode_to_numpy(text, disallowed_special=()).size
        except UnicodeEncodeError:  # lone surrogates; encode_ordinary replaces them
            return len(self._encoding.encode_ordinary(text))


def count_tokens(
    content: str | Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]],
    model: str = DEFAULT_MODEL,
    tools: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Return the tokens of a text, a message or a request.

    A text is counted on its own, a message with its overhead, and a list of messages as a request
    with its tool definitions.

    Parameters
    ----------
    content : str, Message, mapping or iterable of Message or mapping
        What to count. Messages can be dicts in OpenAI's chat format.
    model : str, optional
        Name of the model.
    tools : sequence of mapping, optional
        Tool definitions; counted with a list of messages only.

    Returns
    -------
    int
        Number of tokens.

    Raises
    ------
    ValueError
        If a dict is no message in OpenAI's chat format.

    Examples
    --------
    >>> count_tokens("hello world", "gpt-4o")
    2
    >>> count_tokens([{"role": "user", "content": "hello world"}], "gpt-4o")
    9
    """
    counter = get_counter(model)
    if isinstance(content, str):
        return counter.count_text(content)
    if isinstance(content, (Message, Mapping)):
        return counter.count_message(_as_message(content))
    return counter.count_request(map(_as_message, content), tools)


def _as_message(message: Message | Mapping[str, Any]) -> Message:
    return message if isinstance(message, Message) else message_from_dict(message)


def get_counter(model: str = DEFAULT_MODEL, profile: TokenProfile | None = None) -> TokenCounter:
    """Return the token counter of a model; the same counter each time, so that its cache is shared.

    Parameters
    ----------
    model : str, optional
        Name of the model.
    profile : TokenProfile, optional
        Calibration of the model's family. None: the built-in one.

    Returns
    -------
    TokenCounter
        The counter.

    Examples
    --------
    >>> get_counter("gpt-4o") is get_counter("gpt-4o")
    True
    """
    return _cached_counter(model, find_profile(model) if profile is None else profile)


_cached_counter = lru_cache(maxsize=16)(TokenCounter)


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "" if is_image_part(part) else dump_json(part)


def _split_blank_runs(text: str) -> Iterator[str]:
    """Split a text within long runs of white space, so that no piece contains a run that is too long."""
    last = 0
    for run in _LONG_BLANK.finditer(text):
        for cut in range(run.start() + _MAX_BLANK_RUN, run.end(), _MAX_BLANK_RUN):
            yield text[last:cut]
            last = cut
    yield text[last:]
