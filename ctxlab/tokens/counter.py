"""Count the tokens of strings, messages and requests.

Requests are counted in OpenAI's chat layout: each message and each tool call has three control
tokens and a header with the role, and three more tokens open the reply. The tokenizer never merges
text across a control token. The counts of single messages therefore add up exactly to the count of
the request, and each message is counted only once. The tokenizers of other providers are not public,
so counts for their models are approximate and ``TokenCounter.exact`` is False.

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
from ctxlab.tokens.count_cache import MIN_CHARS, CountCache
from ctxlab.tokens.encodings import find_encoding_name, load_encoding
from ctxlab.tokens.images import count_image_tokens, is_image_part, model_family
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile, find_profile
from ctxlab.tokens.tool_schemas import render_tools

DEFAULT_MODEL = "gpt-5"

# tiktoken's regular expression overflows its stack on runs of about 600,000 white-space characters
# and raises a BaseException, so such runs are counted in pieces.
_MAX_BLANK_RUN = 100_000
_LONG_BLANK = re.compile(rf"\s{{{_MAX_BLANK_RUN},}}")

# Part of the keys of stored counts. Increase it if ``_tokenize`` counts a string differently.
_COUNTING_VERSION = 1

# These encodings never merge text across a line break if the next line begins with a character other
# than white space and a slash, or is indented. The counts of the lines, each with its line break, then
# add up. Those of older encodings do not.
_LINE_ENCODINGS = frozenset({"o200k_base", "o200k_harmony", "cl100k_base"})
_LINE_BREAK = re.compile(r"\n(?=[^\s/]|[ \t]+\S)")

_MIN_ARRAY_CHARS = 1000

# Counts of longer strings are not cached, because the cache keeps the strings in memory.
_MAX_CACHED_CHARS = 20_000


class TokenCounter:
    """Counts the tokens of strings, messages and requests for one model.

    Counts of strings are cached.

    Parameters
    ----------
    model : str, optional
        Name of the model.
    profile : TokenProfile, optional
        Profile that converts counts to billed tokens. By default, the built-in profile of the
        model's family. With ``UNCALIBRATED``, counts are not converted.
    count_cache : CountCache, optional
        Cache on disk for the counts of strings. None keeps counts in memory only.

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
    "Number of tokens that open the reply, counted once per request."

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        profile: TokenProfile | None = None,
        count_cache: CountCache | None = None,
    ) -> None:
        self.model = model
        self.profile = find_profile(model) if profile is None else profile
        "profile that converts counts to billed tokens; ``UNCALIBRATED`` leaves counts unchanged"
        self._count_cache = count_cache
        self.encoding_name, self.exact = find_encoding_name(model)
        self.family = model_family(model)
        self._is_uncalibrated = self.profile == UNCALIBRATED
        self._encoding = load_encoding(self.encoding_name)
        self._count_cached = lru_cache(maxsize=8192)(self._count_uncached)
        # A strategy counts a summary several times, for example when it extends the summary.
        self._count_lines = lru_cache(maxsize=16)(self._count_each_line)

    def __repr__(self) -> str:
        """Return the model and the accuracy of the counter.

        >>> TokenCounter("gpt-4o")
        TokenCounter('gpt-4o', exact)
        """
        known = "exact" if self.exact else "approximate"
        return f"TokenCounter({self.model!r}, {known if self._is_uncalibrated else 'calibrated'})"

    def __reduce__(self) -> tuple[type[TokenCounter], tuple[Any, ...]]:
        """Pickle the arguments only, because a pickled encoding has several megabytes."""
        return TokenCounter, (self.model, self.profile, self._count_cache)

    @property
    def accuracy_note(self) -> str:
        """Sentence on the accuracy of the counts, without a full stop."""
        if self.exact and self._is_uncalibrated:
            return f"tokens are counted with {self.encoding_name}, the encoding of {self.model}"
        how = f"as {self.profile.accuracy_note}"
        if self._is_uncalibrated:
            how = f"with {self.encoding_name}, and counts may be too low by 20 % or more"
        return f"the tokenizer of {self.model} is not public: tokens are approximated {how}"

    def count_text(self, text: str, by_line: bool = False) -> int:
        r"""Return the number of tokens of a string, without the overhead of a message.

        Parameters
        ----------
        text : str
            String to count. Special tokens in it are counted as text.
        by_line : bool, default False
            Count each line on its own, and remember it. The result is the same. This is faster if
            the string has most lines in common with earlier ones, such as a summary that extends
            another one.

        Returns
        -------
        int
            Number of tokens, converted to billed tokens by the counter's profile.

        Examples
        --------
        >>> counter = TokenCounter("gpt-4o")
        >>> counter.count_text("one line\nand another", by_line=True)
        5
        """
        raw = self._count_lines(text) if by_line else self._count_raw(text)
        return self.profile.billed_tokens(raw, len(text))

    def count_message(self, message: Message, by_line: bool = False) -> int:
        """Return the number of tokens of a message, including overhead, tool calls and images.

        Parameters
        ----------
        message : Message
            Message to count. Its hidden reasoning is not counted; see ``estimate_reasoning``.
        by_line : bool, default False
            Count each line of the content on its own; see ``count_text``.

        Returns
        -------
        int
            Number of tokens, converted to billed tokens by the counter's profile.
        """
        text, chars, images = self.count_parts(message, by_line)
        if self._is_uncalibrated:
            return text + images
        return self.profile.billed_tokens(text, chars, len(message.tool_calls)) + images

    def count_parts(self, message: Message, by_line: bool = False) -> tuple[int, int, int]:
        """Count the text, characters and images of a message, before conversion to billed tokens.

        Parameters
        ----------
        message : Message
            Message to count.
        by_line : bool, default False
            Count each line of the content on its own; see ``count_text``.

        Returns
        -------
        tuple of (int, int, int)
            Tokens of text and tool calls, characters of text and tool calls, and tokens of images.
            The profile of this counter is not applied to them.
        """
        content, calls = message.content, message.tool_calls
        total = chars = images = 0
        if content or not calls:
            header = message.role if message.name is None else f"{message.role}:{message.name}"
            if isinstance(content, tuple):
                shown = [part for part in content if is_image_part(part)]
                images = sum(count_image_tokens(part, self.model) for part in shown)
                body = "\n".join(map(_part_text, content))
            else:
                body = content or ""
            count = self._count_lines if by_line else self._count_raw
            total = 3 + self._count_cached(header) + (count(body) if body else 0)
            chars = len(body)
        for call in calls:
            header = f"assistant to=functions.{call.name}"
            total += 3 + self._count_cached(header) + self._count_raw(call.arguments)
            chars += len(call.arguments)
        return total, chars, images

    def count_reasoning(self, message: Message) -> int:
        """Return the number of tokens of the hidden reasoning that is recorded with a message.

        ``count_message`` does not include these tokens.

        Parameters
        ----------
        message : Message
            Message with the reasoning.

        Returns
        -------
        int
            Number of tokens, converted to billed tokens by the counter's profile; 0 if no reasoning
            is recorded.
        """
        said = message.reasoning
        return round(self._count_raw(said) * self.profile.reasoning) if said else 0

    def estimate_reasoning(self, message: Message) -> int:
        """Return the number of tokens that the hidden reasoning of a reply adds if it is sent back.

        Logs often contain only a summary of the reasoning, or none. The number is therefore taken
        from the bill of the reply, if it tells: the billed reasoning or, for Claude, the billed output
        beyond the visible reply. Otherwise the recorded text is counted.

        Parameters
        ----------
        message : Message
            Reply with the reasoning or with its bill.

        Returns
        -------
        int
            Number of tokens; 0 if neither the bill nor a recorded text tells it.

        Examples
        --------
        >>> from ctxlab.messages.types import Usage
        >>> reply = Message("assistant", "Yes.", usage=Usage(output=400, reasoning=384))
        >>> TokenCounter("gpt-5.5").estimate_reasoning(reply)
        384
        """
        if message.usage and message.usage.reasoning:
            return message.usage.reasoning
        if message.usage and self.family == "anthropic":
            hidden = message.usage.output - self.count_message(message)
            # Some logs contain the output only of the beginning of a reply, so it may be too low.
            if hidden > self._count_raw(message.reasoning or ""):
                return hidden
        return self.count_reasoning(message)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Return the number of tokens that tool definitions add to the prompt.

        Parameters
        ----------
        tools : sequence of mapping
            Tool definitions in OpenAI's or Anthropic's format.

        Returns
        -------
        int
            Number of tokens, converted to billed tokens by the counter's profile.
        """
        text = render_tools([dict(t) for t in tools], self.family) if tools else ""
        return self.profile.billed_tokens(3 + self._count_raw(text), len(text)) if text else 0

    def count_request(
        self, messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Return the number of tokens of a request.

        The result is the sum of the tokens of the messages, of the tool definitions and of the
        opening of the reply.

        Parameters
        ----------
        messages : iterable of Message
            Messages of the request.
        tools : sequence of mapping, optional
            Tool definitions of the request.

        Returns
        -------
        int
            Number of tokens, converted to billed tokens by the counter's profile.
        """
        return sum(map(self.count_message, messages)) + self.count_tools(tools) + self.REPLY_TOKENS

    def clear_cache(self) -> None:
        """Forget the cached counts and their strings.

        The cache of one counter can keep thousands of texts in memory, which are of no use if other
        recordings follow.

        Examples
        --------
        >>> counter = TokenCounter("gpt-4o")
        >>> before = counter.count_text("hello world")
        >>> counter.clear_cache()
        >>> counter.count_text("hello world") == before
        True
        """
        self._count_cached.cache_clear()
        self._count_lines.cache_clear()

    def _count_raw(self, text: str) -> int:
        cached = len(text) <= _MAX_CACHED_CHARS
        return self._count_cached(text) if cached else self._count_uncached(text)

    def _count_each_line(self, text: str) -> int:
        if self.encoding_name not in _LINE_ENCODINGS:
            return self._count_raw(text)
        *lines, last = _LINE_BREAK.split(text)
        pieces = [*[line + "\n" for line in lines], last]
        # Most lines are in the cache, and asking each for its length would take as long as the count.
        cached = max(map(len, pieces)) <= _MAX_CACHED_CHARS
        return sum(map(self._count_cached if cached else self._count_raw, pieces))

    def _count_uncached(self, text: str) -> int:
        if self._count_cache is None or len(text) < MIN_CHARS:
            return self._tokenize(text)
        rules = f"{self.encoding_name}/{_COUNTING_VERSION}"
        return self._count_cache.count(rules, text, self._tokenize)

    def _tokenize(self, text: str) -> int:
        if len(text) >= _MAX_BLANK_RUN:
            return sum(map(self._count_piece, _split_blank_runs(text)))
        return self._count_piece(text)

    def _count_piece(self, text: str) -> int:
        try:
            # Only the length is needed. An array is faster to make than a list of many tokens.
            if len(text) < _MIN_ARRAY_CHARS:
                return len(self._encoding.encode_ordinary(text))
            return self._encoding.encode_to_numpy(text, disallowed_special=()).size
        except UnicodeEncodeError:  # lone surrogates; encode_ordinary replaces them
            return len(self._encoding.encode_ordinary(text))


def count_tokens(
    content: str | Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]],
    model: str = DEFAULT_MODEL,
    tools: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Return the number of tokens of a string, a message or a request.

    A string is counted without overhead, and a message with the overhead of its role. A list of
    messages is counted as one request, including the opening of the reply.

    Parameters
    ----------
    content : str, Message, mapping or iterable of Message or mapping
        String, message or messages to count. A message can be a dict in OpenAI's chat format.
    model : str, optional
        Name of the model.
    tools : sequence of mapping, optional
        Tool definitions. They are counted only if ``content`` is a list of messages.

    Returns
    -------
    int
        Number of tokens.

    Raises
    ------
    ValueError
        If a dict is not a message in OpenAI's chat format.

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


def get_counter(
    model: str = DEFAULT_MODEL,
    profile: TokenProfile | None = None,
    count_cache: CountCache | None = None,
) -> TokenCounter:
    """Return a token counter for a model.

    Calls with equal arguments return the same counter, so that its cache is shared.

    Parameters
    ----------
    model : str, optional
        Name of the model.
    profile : TokenProfile, optional
        Profile that converts counts to billed tokens. By default, the built-in profile of the
        model's family.
    count_cache : CountCache, optional
        Cache on disk for the counts of strings. None keeps counts in memory only.

    Returns
    -------
    TokenCounter
        Counter for the model with this profile.

    Examples
    --------
    >>> get_counter("gpt-4o") is get_counter("gpt-4o")
    True
    """
    profile = find_profile(model) if profile is None else profile
    return _cached_counter(model, profile, count_cache)


_cached_counter = lru_cache(maxsize=16)(TokenCounter)


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "" if is_image_part(part) else dump_json(part)


def _split_blank_runs(text: str) -> Iterator[str]:
    """Split a string within long runs of white space, so that tiktoken can encode each piece."""
    last = 0
    for run in _LONG_BLANK.finditer(text):
        for cut in range(run.start() + _MAX_BLANK_RUN, run.end(), _MAX_BLANK_RUN):
            yield text[last:cut]
            last = cut
    yield text[last:]
