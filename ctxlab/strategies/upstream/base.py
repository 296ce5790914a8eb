"""Adapters that ask a package, before each request, which messages it would send."""

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
"""Names of the peers: ``module.method``, where ``FACTORIES`` of the module in this folder maps the
method to a function. It takes ``PeerSettings`` and the options of the baseline of that name."""

Block = tuple[Message, ...]
"A single message, or consecutive tool results."

Writer = Callable[[str | Iterable[Message]], str]
"Function that sends a prompt to a model and returns the text of the reply."


@dataclass(frozen=True)
class PeerSettings:
    """Data and services that a package gets from ctxlab."""

    counter: TokenCounter
    "counts tokens, if the package accepts a counter"
    available: int
    "tokens that the messages may take"
    client: Client | None = None
    "answers the package's model calls"

    def with_room(self, options: dict[str, Any], key: str = "max_tokens") -> dict[str, Any]:
        """Return options in which a limit that is not set is ``available``.

        Parameters
        ----------
        options : dict
            Options of the package.
        key : str, default "max_tokens"
            Name of the limit.

        Returns
        -------
        dict
            The options.
        """
        return {**options, key: self.available if options.get(key) is None else options[key]}

    def make_writer(self, model: str | None, max_tokens: int | None = None) -> Writer:
        """Return the function that answers a package's model calls.

        Parameters
        ----------
        model : str or None
            Name of the model to call.
        max_tokens : int, optional
            Maximum tokens of a reply.

        Returns
        -------
        Writer
            The function. It takes messages, or the text of a user message.

        Raises
        ------
        SpecError
            If there is no client or no model.
        """
        client = self.client
        if model is None or client is None:
            raise SpecError("this peer calls a model; pass model='…' and a client")

        def write(prompt: str | Iterable[Message]) -> str:
            asked = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
            return client.complete(Request(model, asked, max_tokens=max_tokens)).text

        return write


class PeerAdapter(ABC):
    """One conversation as a package manages it.

    Parameters
    ----------
    settings : PeerSettings
        Data and services for the package.
    """

    separate_prompt: ClassVar[bool] = True
    "keep leading system messages apart, as most packages do"
    group_results: ClassVar[bool] = False
    "add consecutive tool results as one block"

    def __init__(self, settings: PeerSettings) -> None:
        self.settings = settings
        self.history: Sequence[Message] = ()
        "all messages so far"
        self.prompt: list[Message] = []
        "leading system messages, if they are kept apart"
        self._units = UnitTracker()
        self._originals: dict[int, tuple[Any, Block]] = {}

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
        """Add a block to the package's conversation; nothing by default.

        Parameters
        ----------
        position : int
            Position of the first message in the history.
        block : Block
            The messages.
        """

    @abstractmethod
    def select(self) -> Iterable[Message]:
        """Return the messages that the package would send, without those in ``prompt``.

        Returns
        -------
        iterable of Message
            The messages.
        """

    def link(self, translated: _T, block: Block) -> _T:
        """Record the original block of an object.

        Parameters
        ----------
        translated : object
            Object of the package.
        block : Block
            The messages that it stands for.

        Returns
        -------
        object
            The same object.
        """
        self._originals[id(translated)] = (translated, block)
        return translated

    def original_block(self, translated: Any) -> Block | None:
        """Return the original block of an object.

        Parameters
        ----------
        translated : object
            Object of the package.

        Returns
        -------
        Block or None
            The messages; None if the package created the object.
        """
        return self._originals.get(id(translated), (None, None))[1]

    def to_messages(self, objects: Iterable[Any], convert: _Convert) -> list[Message]:
        """Return the original messages of objects.

        Parameters
        ----------
        objects : iterable of object
            Objects that the package would send.
        convert : callable
            Function that converts an object created by the package to a message.

        Returns
        -------
        list of Message
            The messages.
        """
        return [m for each in objects for m in self.original_block(each) or (convert(each),)]

    def tool_name(self, position: int) -> str:
        """Return the name of the tool that produced a result; ``tool`` if it is unknown.

        Parameters
        ----------
        position : int
            Position of the result in the history.

        Returns
        -------
        str
            The name.
        """
        call = self._units.calls_by_result.get(position)
        return call.name if call else self.history[position].name or "tool"


@dataclass(frozen=True, repr=False)
class Peer(BaseStrategy):
    """The original code of a package, as a strategy."""

    name: str
    "name in ``PEERS``"
    options: tuple[tuple[str, Any], ...] = ()
    "pairs of name and value of the options"

    def __call__(self, context: Context, /) -> Context:
        """Ask the package which messages it would send, and return a fork that holds them."""
        history = context.history[: context.history_length]
        adapter: PeerAdapter | None = context.strategy_state.get(self)
        if adapter is None:
            adapter = context.strategy_state[self] = self._make_adapter(context)
        return fork_with_messages(context, restore_originals(history, adapter.prepare(history)))

    def __repr__(self) -> str:
        """Return the text form of the peer."""
        return f"peer:{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options)})"

    def _make_adapter(self, context: Context) -> PeerAdapter:
        family, _, method = self.name.partition(".")
        try:
            make = import_module(f"{__package__}.{family}").FACTORIES[method]
        except ImportError as error:
            if (error.name or "").startswith("ctxlab"):
                raise
            raise DataMissing(
                f"peer:{self.name} needs a package that is not installed ({error.name}); "
                "run pip install '.[peers]' in a clone of ctxlab"
            ) from None
        history = context.history
        settings = PeerSettings(history.counter, context.available, history.client)
        try:
            adapter: PeerAdapter = make(settings, **dict(self.options))
        except (TypeError, ValueError) as error:
            if isinstance(error, TypeError) and "argument" not in str(error):
                raise
            raise SpecError(f"peer:{self.name}: {error}") from None
        return adapter


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


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, even if an event loop is running.

    Parameters
    ----------
    coroutine : coroutine
        The coroutine.

    Returns
    -------
    object
        The result of the coroutine.

    Raises
    ------
    RuntimeError
        If the coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the package awaits an event that does not occur in a replay")
