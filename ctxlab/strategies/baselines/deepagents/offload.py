"""Baseline of deepagents, which saves long tool results and long user messages in files."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.deepagents.files import stub_result, stub_user_message
from ctxlab.strategies.baselines.settings import arguments

_CHARS_PER_TOKEN = 4
_KEPT_TOOLS = frozenset(("ls", "glob", "grep", "read_file", "edit_file", "write_file", "delete"))


@dataclass(frozen=True, repr=False)
class offload_to_files(BaselineStrategy):
    r"""Replaces long tool results and long user messages by stubs that name a file with the full text.

    A result is replaced before it is sent for the first time. A user message is replaced if it is the
    last message of a request. A stub contains the first and last five lines. A token is four
    characters. The results of deepagents' own file tools are never replaced.

    Source: deepagents, ``FilesystemMiddleware``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    >>> lines = "".join(f"line {i}\n" for i in range(2000))
    >>> talk = [{"role": "user", "content": "Run it."}]
    >>> talk += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> talk += [{"role": "tool", "tool_call_id": "c1", "content": lines}]
    >>> sent = build_messages(None, talk, strategy=offload_to_files(tool_tokens=1000))
    >>> for line in sent[-1]["content"].splitlines()[-8:]:
    ...     print(line)
    4  line 3
    5  line 4
    ... [1990 lines truncated] ...
    1996  line 1995
    1997  line 1996
    1998  line 1997
    1999  line 1998
    2000  line 1999
    """

    positive = ("tool_tokens", "user_tokens")
    tool_tokens: int | None = 20_000
    "size above which a tool result is replaced; None: never"
    user_tokens: int | None = 50_000
    "size above which a user message is replaced; None: never"

    def __call__(self, context: Context, /) -> Context:
        """Replace the long messages that were appended since the last request."""
        history, length = context.history, context.history_length
        for position in range(context.strategy_state.get(self, 0), length):
            index = context.find_index(position)
            if index is None:
                continue
            message = context.entries[index].message
            if message.role == "tool":
                call = history.calls_by_result.get(position)
                name = call.name if call is not None else message.name
                if name not in _KEPT_TOOLS and _exceeds(message.text, self.tool_tokens):
                    context.replace(index, stub_result(message), Form.POINTER)
            last = message.role == "user" and position == length - 1
            if last and _exceeds(message.text, self.user_tokens):
                context.replace(index, stub_user_message(message), Form.POINTER)
        context.strategy_state[self] = length
        return context


def _exceeds(text: str, tokens: int | None) -> bool:
    return tokens is not None and len(text) > tokens * _CHARS_PER_TOKEN


_REPOSITORY_URL = "https://github.com/langchain-ai/deepagents/blob/deepagents%3D%3D0.7.32"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "deepagents.offload",
        offload_to_files(),
        "deepagents 0.7.32",
        _REPOSITORY_URL + "/libs/deepagents/deepagents/middleware/filesystem.py",
        "Tool results of more than 80,000 characters (20,000 tokens), and user messages of more than "
        "200,000, are saved to files, and only their first and last five lines are sent. The results "
        "of the tools that read and write files are always sent in full. deepagents does this "
        "together with `deepagents`, which summarises: `deepagents.offload | deepagents`.",
        (
            "",
            "tool_tokens=500, user_tokens=300",
            "tool_tokens=100, user_tokens=None",
        ),
        settings=arguments(
            "deepagents.middleware.filesystem",
            "FilesystemMiddleware",
            tool_tokens="tool_token_limit_before_evict",
            user_tokens="human_message_token_limit_before_evict",
        ),
    ),
)
