"""A client that caches replies on disk.

The key of a reply is a digest of the whole request and of the client's options. The reply is stored
as JSON. Data from disk is never unpickled, so a cache folder from another person is safe to read.
The files are readable by their owner only, because they contain requests and replies.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec
from typing_extensions import override

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import create_file, make_folder
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, UnknownName
from ctxlab.llm.base import (
    BaseClient,
    Client,
    Embedder,
    Embedding,
    OnReply,
    Replies,
    Reply,
    ReplyOrError,
    Request,
    as_embedder,
    client_options,
    complete_each,
    report_replies,
    split_for_workers,
)
from ctxlab.llm.concurrency import run_uninterrupted
from ctxlab.llm.redaction import without_credentials
from ctxlab.messages.types import Usage

CacheMode: TypeAlias = Literal["auto", "record", "replay"]

_log = logging.getLogger("ctxlab.llm")
_MIN_FILE_BYTES = 2**40
"""Size in bytes from which diskcache writes a value to a separate file. No value is that large.
Separate files are avoided because every user could read them."""
_Stored = TypeVar("_Stored", Reply, "_Vector")


class _Vector(msgspec.Struct, frozen=True):
    """Embedding vector of one string, with the string's share of the call's tokens and cost."""

    vector: list[float]
    tokens: int
    usd: float


class CachedClient(BaseClient, Embedder):
    """Client that stores replies on disk and calls another client only for missing replies.

    Several processes may share the folder. A cached reply has ``cached`` set to True and
    ``attempts`` set to 0. Its usage and cost are those of the original call. ``embed`` caches each
    string separately and sends only the missing ones. The usage and cost of its result cover all
    strings, and ``attempts`` counts the HTTP requests for the missing ones. Errors are not cached.
    The cache is open only while replies are read or stored, so there is nothing to close.

    Parameters
    ----------
    client : Client or None
        Client to call for missing replies. With None, a missing reply raises
        ``ModelRequestRejected``. A stored reply is found only if it was stored by a client with
        equal options (see ``ctxlab.llm.base.client_options``). None counts as having no options.
    folder : str or pathlib.Path
        Folder of the cache.
    mode : {"auto", "record", "replay"}, optional
        ``auto`` calls the client for missing replies and stores them. ``record`` calls the client
        for all requests and overwrites stored replies. ``replay`` never calls the client, and a
        missing reply raises ``ModelRequestRejected``.

    Raises
    ------
    UnknownName
        If ``mode`` is not one of the three modes.

    Examples
    --------
    >>> import tempfile
    >>> from ctxlab.llm import ScriptedClient
    >>> from ctxlab.messages.types import Message
    >>> question = Request("gpt-4o", (Message("user", "Hi"),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     client = CachedClient(ScriptedClient("Hello.", "Hello again."), folder)
    ...     replies = [client.complete(question) for _ in range(2)]
    >>> [(reply.text, reply.cached, reply.attempts) for reply in replies]
    [('Hello.', False, 1), ('Hello.', True, 0)]
    """

    def __init__(self, client: Client | None, folder: str | Path, mode: CacheMode = "auto") -> None:
        if mode not in get_args(CacheMode):
            raise UnknownName("cache mode", mode, get_args(CacheMode))
        self.client = client
        self.folder = Path(folder)
        self.mode = mode
        self._disk: Any = None

    def __repr__(self) -> str:
        """Show the wrapped client, the folder and the mode."""
        return f"CachedClient({self.client!r}, {str(self.folder)!r}, {self.mode!r})"

    def __reduce__(self) -> tuple[type[CachedClient], tuple[Any, ...]]:
        """Pickle the client without its cache; the copy opens the folder again."""
        return type(self), (self.client, self.folder, self.mode)

    @override
    def split_for_workers(self, workers: int, /) -> CachedClient:
        inner = None if self.client is None else split_for_workers(self.client, workers)
        return CachedClient(inner, self.folder, self.mode)

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        # Yield the cached replies first, then the new ones as they arrive.
        return report_replies(self._complete_each(requests), on_reply)

    def cache_key(self, request: Request) -> str:
        """Return the key under which the reply to a request is stored.

        Equal requests have equal keys if the options of the wrapped client are equal too.

        Parameters
        ----------
        request : Request
            Request to compute the key for.

        Returns
        -------
        str
            Digest of the request and of the wrapped client's options.
        """
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        # Fields of a message that are not sent to the provider do not change the key.
        fields["messages"] = [message.to_dict() for message in request.messages]
        return self._build_key("reply", fields)

    def has_answer(self, key: str) -> bool:
        """Return True if the cache contains a usable reply for a key.

        Parameters
        ----------
        key : str
            Key of a request, as returned by ``cache_key``.

        Returns
        -------
        bool
            True if a reply is stored; always False in mode ``record``, which calls the client for
            every request.
        """
        if self.mode == "record" or not self.folder.is_dir():
            return False
        with self._open_cache() as disk:
            return key in disk

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        keys = [self._build_key("embedding", {"model": model, "text": text}) for text in texts]
        known = self._load_all(dict.fromkeys(keys), _Vector)
        found = {key: vector for key, vector in known.items() if vector is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        attempts = 0
        if missing:
            what = f"the embedding by {model} of {_quote_text(texts[0])}"
            answer = as_embedder(self._client_for_missing(what)).embed(model, [*missing.values()])
            attempts, total = answer.attempts, answer.usage.input
            tokens = _split_proportionally(total, [len(text) for text in missing.values()])
            costs = [count * (answer.usd / total) if total else 0.0 for count in tokens]
            new = dict(zip(missing, map(_Vector, answer.vectors, tokens, costs), strict=True))
            run_uninterrupted(functools.partial(self._store, new))
            found |= new
        used = [found[key] for key in known]
        vectors = [found[key].vector for key in keys]
        usage, usd = Usage(sum(each.tokens for each in used)), sum(each.usd for each in used)
        return Embedding(vectors, usage, usd, attempts, not missing)

    def _complete_each(self, requests: Sequence[Request]) -> Replies:
        indices: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            indices.setdefault(self.cache_key(request), []).append(index)
        missing: dict[str, Request] = {}
        for key, known in self._load_all(indices, Reply).items():
            if known is None:
                missing[key] = requests[indices[key][0]]
            else:
                known = msgspec.structs.replace(known, cached=True, attempts=0)
                yield from _repeat_reply(known, indices[key])
        if not missing:
            return
        keys, to_send = list(missing), list(missing.values())

        def store(number: int, reply: ReplyOrError) -> None:
            if isinstance(reply, Reply):
                self._store({keys[number]: reply})

        client = self._client_for_missing(_describe_reply(to_send[0]))
        with closing(complete_each(client, to_send, store)) as replies:
            for number, reply in replies:
                yield from _repeat_reply(reply, indices[keys[number]])

    def _client_for_missing(self, what: str) -> Client:
        """Return the client to call for a missing reply; raise an error if no call is allowed.

        ``what`` describes the missing reply in the error message.
        """
        if self.client is not None and self.mode != "replay":
            return self.client
        advice = "use the cache mode 'auto' or 'record' to call the model"
        raise ModelRequestRejected(f"{what} is not in the cache {self.folder}; {advice}")

    def _build_key(self, kind: str, fields: dict[str, Any]) -> str:
        options = without_credentials(client_options(self.client))
        text = json.dumps([kind, fields, options], sort_keys=True, default=repr)
        return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"

    def _load_all(self, keys: Iterable[str], kind: type[_Stored]) -> dict[str, _Stored | None]:
        """Return the value stored under each key; None if the key is missing or its value unreadable."""
        if self.mode == "record":
            return dict.fromkeys(keys)
        with self._open_cache() as disk:
            return {key: self._load(disk, key, kind) for key in keys}

    def _load(self, disk: Any, key: str, kind: type[_Stored]) -> _Stored | None:
        try:
            blob = disk.get(key, retry=True)
            if blob is None:
                return None
            value = parse_json(blob)
            if value["usd"] is None:  # JSON has no nan
                value["usd"] = math.nan
            return msgspec.convert(value, kind)
        except (ValueError, TypeError, KeyError, msgspec.ValidationError, sqlite3.Error):
            _log.warning("cannot read reply %s in the cache %s; it is ignored", key, self.folder)
            return None

    def _store(self, entries: Mapping[str, Reply | _Vector]) -> None:
        # This is never called in the main thread: if a signal interrupts the start of a transaction,
        # SQLite waits forever for the end of the transaction.
        try:
            with self._open_cache() as disk:
                for key, value in entries.items():
                    blob = dump_json(msgspec.to_builtins(value)).encode()
                    disk.set(key, blob, retry=True)
        except (OSError, sqlite3.Error) as error:  # do not lose a reply that was paid for
            _log.warning("cannot store a reply in the cache %s: %s", self.folder, error)

    def _open_cache(self) -> Any:
        """Return the cache as a context manager that closes the connection at its end.

        diskcache opens a connection for each thread, and no other thread can close it. A connection
        that stayed open would be lost with its thread.
        """
        if self._disk is not None:
            return self._disk
        import diskcache

        try:
            _create_private_cache(self.folder)
            keep_all = {"eviction_policy": "none", "cull_limit": 0}
            options = {"disk": _disk_class(), "disk_min_file_size": _MIN_FILE_BYTES, **keep_all}
            disk = diskcache.Cache(str(self.folder), **options)  # opens a connection of this thread
        except (OSError, sqlite3.Error) as error:
            raise ModelRequestRejected(f"cannot open the cache {self.folder}: {error}") from error
        self._disk = disk
        return disk


def _create_private_cache(folder: Path) -> None:
    """Create the cache folder and diskcache's database file, readable by their owner only."""
    where = Path(os.path.expandvars(os.path.expanduser(folder)))  # as diskcache does
    make_folder(where)
    create_file(where / "cache.db")


@functools.cache
def _disk_class() -> type:
    """Return a subclass of diskcache's ``Disk`` that never unpickles data.

    ctxlab stores only str keys and bytes values, which diskcache does not pickle. A row of
    the database that is marked as a pickle was not written by ctxlab, so it is read as None.
    """
    from diskcache import Disk
    from diskcache.core import MODE_PICKLE

    class Plain(Disk):  # type: ignore[misc]
        def fetch(self, mode: int, filename: str, value: Any, read: bool) -> Any:
            return None if mode == MODE_PICKLE else super().fetch(mode, filename, value, read)

    return Plain


def _repeat_reply(reply: ReplyOrError, indices: Sequence[int]) -> Replies:
    """Yield the reply to a request once for each index at which the request occurs in a batch.

    Equal requests of a batch are sent once. The first occurrence gets the reply itself, and each
    further occurrence gets a copy that is marked as cached.
    """
    yield indices[0], reply
    for index in indices[1:]:
        if isinstance(reply, Reply):
            yield index, msgspec.structs.replace(reply, cached=True, attempts=0)
        else:
            yield index, ModelUnavailable(str(reply), 0)


def _split_proportionally(total: int, sizes: Sequence[int]) -> list[int]:
    """Split ``total`` into integers that are proportional to ``sizes`` and add up to ``total``."""
    whole = sum(sizes) or 1
    ends = [total * seen // whole for seen in accumulate(sizes)]
    return [end - start for start, end in pairwise([0, *ends])]


def _describe_reply(request: Request) -> str:
    said = _quote_text(request.messages[-1].text if request.messages else "")
    again = f" (replicate {request.replicate})" if request.replicate else ""
    return f"the reply of {request.model} to {said}{again}"


def _quote_text(text: str) -> str:
    said = " ".join(text.split())
    return f"“{said[:60]}…”" if len(said) > 60 else f"“{said}”"
