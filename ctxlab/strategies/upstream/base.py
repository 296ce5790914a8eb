"""Adapters that ask a package, before each request, which messages it would send."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.context import Context
from ctxlab.errors import DataMissing, SpecError, UnknownName
from ctxlab.llm.base import Client
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy, fork_with_messages
from ctxlab.tokens.counter import TokenCounter

PEERS: dict[str, str] = {
    "adk.include_contents_none": "adk:include_contents_none",
    "ag2.sliding_window": "ag2:sliding_window",
    "ag2.token_budget": "ag2:token_budget",
    "agent_framework.context_window": "agent_framework:context_window",
    "agent_framework.selective_tool_calls": "agent_framework:selective_tool_calls",
    "agent_framework.sliding_window": "agent_framework:sliding_window",
    "agent_framework.summarization": "agent_framework:summarization",
    "agent_framework.tool_results": "agent_framework:tool_results",
    "agent_framework.truncation": "agent_framework:truncation",
    "autogen.buffered": "autogen:buffered",
    "autogen.head_and_tail": "autogen:head_and_tail",
    "autogen.token_limited": "autogen:token_limited",
    "deepagents": "deepagents:default",
    "inspect.edit": "inspect:edit",
    "inspect.summary": "inspect:summary",
    "inspect.trim": "inspect:trim",
    "langchain.clear_tool_uses": "langchain:clear_tool_uses",
    "langchain.summarization": "langchain:summarization",
    "langchain.trim_messages": "langchain:trim_messages",
    "langmem.summarize": "langmem:summarize",
    "litellm.trim_messages": "litellm:trim_messages",
    "llama_index.memory": "llama_index:memory",
    "openai_agents.tool_output_trimmer": "openai_agents:tool_output_trimmer",
    "openhands.default": "openhands:default",
    "pydantic_ai.manager": "pydantic_ai:manager",
    "pydantic_ai.sliding": "pydantic_ai:sliding",
    "pydantic_ai.summarization": "pydantic_ai:summarization",
    "semantic_kernel.summarization": "semantic_kernel:summarization",
    "semantic_kernel.truncation": "semantic_kernel:truncation",
    "strands.sliding": "strands:sliding",
    "strands.summarizing": "strands:summarizing",
}
"Maps a name to ``module:factory`` in this folder; a factory takes ``PeerSettings`` and options."


@dataclass(frozen=True)
class PeerSettings:
    """Data and services that a package gets from ctxlab."""

    counter: TokenCounter
    "counts tokens, if the package accepts a counter"
    available: int
    "tokens that the messages may take"
    client: Client | None = None
    "answers the package's model calls"


class PeerAdapter(Protocol):
    """One conversation as a package manages it."""

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the messages that the package would send; called before each request in order.

        Unchanged messages may be returned as the same objects or as equal ones.

        Parameters
        ----------
        history : sequence of Message
            All messages so far.

        Returns
        -------
        sequence of Message
            The messages of the request.
        """
        ...


class EditingAdapter:
    """Adapter for packages that rewrite the conversation, so that edits persist.

    Parameters
    ----------
    edit : callable
        Function that takes the messages and returns the edited messages.
    """

    def __init__(self, edit: Callable[[list[Message]], Sequence[Message]]) -> None:
        self._edit, self._seen, self._kept = edit, 0, list[Message]()

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the package's edit of the last request and the messages since then.

        Parameters
        ----------
        history : sequence of Message
            All messages so far.

        Returns
        -------
        sequence of Message
            The messages of the request.
        """
        messages = [*self._kept, *history[self._seen :]]
        self._seen = len(history)
        self._kept = list(restore_originals(messages, self._edit(messages)))
        return self._kept


@dataclass(frozen=True, repr=False)
class Peer(BaseStrategy):
    """The original code of a package, as a strategy."""

    name: str
    "name in ``PEERS``"
    options: tuple[tuple[str, Any], ...] = ()
    "pairs of name and value of the options"

    def __call__(self, context: Context, /) -> Context:
        adapter: PeerAdapter | None = context.strategy_state.get(self)
        if adapter is None:
            history = context.history
            settings = PeerSettings(history.counter, context.available, history.client)
            adapter = context.strategy_state[self] = _adapter_factory(self.name)(
                settings, **dict(self.options)
            )
        history_so_far = context.history[: context.history_length]
        return fork_with_messages(
            context, restore_originals(history_so_far, adapter.prepare(history_so_far))
        )

    def __repr__(self) -> str:
        return f"peer:{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options)})"


def find_peer(name: str) -> Callable[..., Peer]:
    """Return a function that makes the strategy of a peer from options.

    Parameters
    ----------
    name : str
        Name in ``PEERS``.

    Returns
    -------
    callable
        Function that takes the options as keywords and returns a ``Peer``.

    Raises
    ------
    UnknownName
        If no peer has that name.
    """
    if name not in PEERS:
        raise UnknownName("peer", name, PEERS)

    def make(**options: Any) -> Peer:
        return Peer(name, tuple(sorted(options.items())))

    return make


def restore_originals(originals: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Replace messages that equal an original by the original, with data that a package cannot carry.

    Parameters
    ----------
    originals : sequence of Message
        Messages given to a package.
    messages : sequence of Message
        Messages returned by the package.

    Returns
    -------
    list of Message
        The returned messages, with originals where they are equal.
    """
    known: dict[Hashable, list[Message]] = {}
    for message in reversed(originals):
        known.setdefault(_message_json(message), []).append(message)
    same = {id(message) for message in originals}
    result = []
    for message in messages:
        # Equal messages are used in order, and the last one as often as needed.
        places = known.get(_message_json(message)) if id(message) not in same else None
        result.append((places.pop() if len(places) > 1 else places[0]) if places else message)
    return result


def _message_json(message: Message) -> str:
    return dump_json(message.to_dict())


def _adapter_factory(name: str) -> Callable[..., PeerAdapter]:
    module, _, attribute = PEERS[name].partition(":")
    try:
        found: Callable[..., PeerAdapter] = getattr(
            import_module(f"{__package__}.{module}"), attribute
        )
    except ImportError as error:
        if (error.name or "").startswith("ctxlab"):
            raise
        raise DataMissing(
            f"peer:{name} needs a package that is not installed ({error.name}); "
            "run pip install '.[peers]' in a clone of ctxlab"
        ) from None

    def make(settings: PeerSettings, **options: Any) -> PeerAdapter:
        try:
            return found(settings, **options)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise SpecError(f"peer:{name}: {error}") from None

    return make
