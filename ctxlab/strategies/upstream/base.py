"""Base classes of the strategies that run the original code of upstream packages.

A strategy of this kind has an adapter for each conversation. Before each request, the adapter passes
the new messages to the package and returns the messages that the package would send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeAlias, TypeVar

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.context import Context
from ctxlab.errors import DataMissing, SpecError, UnknownName
from ctxlab.llm.base import Client, Request
from ctxlab.messages.types import Message
from ctxlab.messages.validation import UnitTracker
from ctxlab.strategies.base import BaseStrategy, fork_with_messages
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.helpers.message_blocks import group_blocks
from ctxlab.tokens.counter import TokenCounter

_T = TypeVar("_T")
_Convert: TypeAlias = Callable[[Any], Message]

PEERS: tuple[str, ...] = tuple(name for name, each in BASELINES.items() if each.package)
"""Names of the upstream strategies as ``MODULE.METHOD``, or ``MODULE`` if there is only one method.

The module is a file of this folder. Its ``FACTORIES`` maps each method to a function that takes
``PeerSettings`` and the options of the baseline with the same name, and returns a ``PeerAdapter``."""

Block = tuple[Message, ...]
"One message, or several consecutive tool results."

Writer = Callable[[str | Iterable[Message]], str]
"Function that sends a prompt or messages to a model and returns the text of the reply."


@dataclass(frozen=True)
class PeerSettings:
    """Data and services that ctxlab provides to an upstream package."""

    counter: TokenCounter
    "token counter, for packages that accept one"
    available: int
    "maximum number of tokens of the messages in a request"
    client: Client | None = None
    "client for the model calls of the package; None if there is no client"
    overhead: int = 0
    "tokens of a request outside of its messages, such as the tool definitions"
    reserve: int = 0
    "tokens kept free for the reply"

    @property
    def window(self) -> int:
        """Size of the context window in tokens, including the room for reply and tool definitions."""
        return self.available + self.reserve + self.overhead

    def with_room(self, options: dict[str, Any], key: str = "max_tokens") -> dict[str, Any]:
        """Return a copy of options in which a missing token limit is set to ``available``.

        Parameters
        ----------
        options : dict
            Options for the package.
        key : str, default "max_tokens"
            Name of the option with the token limit.

        Returns
        -------
        dict
            Copy of the options with a token limit.
        """
        return {**options, key: self.available if options.get(key) is None else options[key]}

    def make_writer(self, model: str | None, max_tokens: int | None = None) -> Writer:
        """Return a function that sends the model calls of a package to ``client``.

        Parameters
        ----------
        model : str or None
            Name of the model to call.
        max_tokens : int, optional
            Maximum number of tokens of a reply.

        Returns
        -------
        Writer
            Function that takes messages, or the text of one user message, and returns the reply.

        Raises
        ------
        SpecError
            If ``model`` or ``client`` is None.
        """
        client = self.client
        if model is None or client is None:
            raise SpecError(
                f"Expected a model and a client for the model calls of the package, got {model=}, "
                f"{client=}; pass model='…' and a client"
            )

        def write(prompt: str | Iterable[Message]) -> str:
            asked = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
            return client.complete(Request(model, asked, max_tokens=max_tokens)).text

        return write


class PeerAdapter(ABC):
    """Base class of adapters. An adapter runs the code of an upstream package on one conversation.

    Parameters
    ----------
    settings : PeerSettings
        Data and services that ctxlab provides to the package.
    """

    separate_prompt: ClassVar[bool] = True
    "True if leading system messages are kept in ``prompt`` and are not passed to the package"
    group_results: ClassVar[bool] = False
    "True if consecutive tool results are passed to ``add`` as one block"

    def __init__(self, settings: PeerSettings) -> None:
        self.settings = settings
        self.history: Sequence[Message] = ()
        "all messages of the conversation so far"
        self.prompt: list[Message] = []
        "leading system messages; empty if ``separate_prompt`` is False"
        self._units = UnitTracker()
        self._originals: dict[int, tuple[Any, Block]] = {}

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Add new messages to the package's conversation and return the messages of the request.

        The method is called once for each request, in order. An unchanged message may be returned
        as the same object or as an equal copy.

        Parameters
        ----------
        history : sequence of Message
            All messages of the conversation so far.

        Returns
        -------
        sequence of Message
            Messages of the request. They begin with the system messages in the attribute ``prompt``.
        """
        start, self.history = len(self.history), history
        for position, block in self._new_blocks(start):
            self.add(position, block)
        return [*self.prompt, *self.select()]

    def _new_blocks(self, position: int) -> Iterator[tuple[int, Block]]:
        added = self.history[position:]
        for message in added:
            self._units.add(message)
        for block in group_blocks(added) if self.group_results else zip(added):
            if self.separate_prompt and block[0].role == "system" and len(self.prompt) == position:
                self.prompt.append(block[0])
            else:
                yield position, block
            position += len(block)

    def add(self, position: int, block: Block) -> None:  # noqa: B027 - not all adapters need it
        """Add messages to the package's conversation. The default does nothing.

        Parameters
        ----------
        position : int
            Position of the first of these messages in ``history``.
        block : Block
            One message, or several consecutive tool results.
        """

    @abstractmethod
    def select(self) -> Iterable[Message]:
        """Return the messages that the package would send, without the messages in ``prompt``.

        Returns
        -------
        iterable of Message
            Messages of the request, in order.
        """

    def link(self, translated: _T, block: Block) -> _T:
        """Remember the messages from which an object of the package was created.

        Parameters
        ----------
        translated : object
            Object of the package, such as one of its messages.
        block : Block
            ctxlab's messages with the same content.

        Returns
        -------
        object
            ``translated``, unchanged.
        """
        self._originals[id(translated)] = (translated, block)
        return translated

    def original_block(self, translated: Any) -> Block | None:
        """Return the messages that ``link`` stored for an object of the package.

        Parameters
        ----------
        translated : object
            Object of the package.

        Returns
        -------
        Block or None
            Original messages; None if the package itself created the object, for example a summary.
        """
        return self._originals.get(id(translated), (None, None))[1]

    def to_messages(self, objects: Iterable[Any], convert: _Convert) -> list[Message]:
        """Convert objects of the package to messages, using the original messages if possible.

        Parameters
        ----------
        objects : iterable of object
            Objects that the package would send.
        convert : callable
            Function that converts one object to a message. It is called for objects without original
            messages, such as summaries.

        Returns
        -------
        list of Message
            Original and converted messages, in the order of the objects.
        """
        return [m for each in objects for m in self.original_block(each) or (convert(each),)]

    def tool_name(self, position: int) -> str:
        """Return the name of the tool that produced a result; ``tool`` if it is unknown.

        Parameters
        ----------
        position : int
            Position of the tool result in ``history``.

        Returns
        -------
        str
            Name of the tool.
        """
        call = self._units.calls_by_result.get(position)
        return call.name if call else self.history[position].name or "tool"


@dataclass(frozen=True, repr=False)
class Peer(BaseStrategy):
    """Strategy that runs the original code of an upstream package."""

    name: str
    "name of the strategy in ``PEERS``"
    options: tuple[tuple[str, Any], ...] = ()
    "options as pairs of a name and a value"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with the messages that the package would send."""
        history = context.history[: context.history_length]
        adapter: PeerAdapter | None = context.strategy_state.get(self)
        if adapter is None:
            adapter = context.strategy_state[self] = self._make_adapter(context)
        return fork_with_messages(context, restore_originals(history, adapter.prepare(history)))

    def __repr__(self) -> str:
        """Return the text form of the strategy, such as ``peer:autogen.buffered(buffer_size=20)``."""
        return f"peer:{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options)})"

    def _make_adapter(self, context: Context) -> PeerAdapter:
        family, _, method = self.name.partition(".")
        history = context.history
        budget = context.budget
        parts = budget.overhead, budget.reserve
        settings = PeerSettings(history.counter, context.available, history.client, *parts)
        try:
            make = import_module(f"{__package__}.{family}").FACTORIES[method]
            adapter: PeerAdapter = make(settings, **dict(self.options))
        except ImportError as error:
            if (error.name or "").startswith("ctxlab"):
                raise
            raise DataMissing(
                f"peer:{self.name} needs a package that is not installed ({error.name}); "
                "run pip install '.[peers]' in a clone of ctxlab, or nox -s peers"
            ) from None
        except (TypeError, ValueError) as error:
            if isinstance(error, TypeError) and "argument" not in str(error):
                raise
            raise SpecError(f"peer:{self.name}: {error}") from None
        return adapter


def find_peer(name: str) -> Callable[..., Peer]:
    """Return a function that creates the upstream strategy with a given name.

    Parameters
    ----------
    name : str
        Name of the strategy in ``PEERS``.

    Returns
    -------
    callable
        Function that takes the options as keyword arguments and returns a ``Peer``.

    Raises
    ------
    UnknownName
        If ``name`` is not in ``PEERS``.
    """
    if name not in PEERS:
        raise UnknownName("upstream strategy", name, PEERS)

    def make(**options: Any) -> Peer:
        return Peer(name, tuple(sorted(options.items())))

    return make


def restore_originals(originals: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Replace copies of messages by the original messages.

    Original messages can have further data, such as billed token counts, which the copies of a
    package lack.

    Parameters
    ----------
    originals : sequence of Message
        Messages that were passed to a package.
    messages : sequence of Message
        Messages that the package returned.

    Returns
    -------
    list of Message
        Returned messages, in which unchanged messages are replaced by the originals.
    """
    known: dict[Hashable, list[Message]] = {}
    for message in reversed(originals):
        known.setdefault(_message_json(message), []).append(message)
    same = {id(message) for message in originals}
    result = []
    for message in messages:
        # Originals with the same content are used in order; the last one is used repeatedly.
        places = known.get(_message_json(message)) if id(message) not in same else None
        result.append((places.pop() if len(places) > 1 else places[0]) if places else message)
    return result


def _message_json(message: Message) -> str:
    return dump_json(message.to_dict())


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits for an event.

    Unlike ``asyncio.run``, this also works in a thread with a running event loop.

    Parameters
    ----------
    coroutine : coroutine
        Coroutine to run.

    Returns
    -------
    object
        Result of the coroutine.

    Raises
    ------
    RuntimeError
        If the coroutine waits for an event.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("Expected a coroutine that never waits, got one that waits for an event")
