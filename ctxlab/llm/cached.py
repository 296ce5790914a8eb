"""A client that caches replies on disk.

The key is a digest of the whole request and of the client's options; the value is JSON. Nothing on
disk is unpickled, so the folder of another person is safe to read. The files are readable by their
owner only, because they contain requests and replies.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import re
import sqlite3
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

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
from ctxlab.messages.types import Usage

CacheMode: TypeAlias = Literal["auto", "record", "replay"]

_log = logging.getLogger("ctxlab.llm")
_MIN_FILE_BYTES = 2**40
"""Size from which diskcache writes a value to a separate file; too large to be reached, because
every user could read that file."""
# Options that identify the caller and do not change the reply.
_CREDENTIAL = re.compile("key|secret|password|credential|header|ad_token|session_token")
_Stored = TypeVar("_Stored", Reply, "_Vector")


class _Vector(msgspec.Struct, frozen=True):
    """The embedding of one text, with its share of the tokens and cost of the call."""

    vector: list[float]
    tokens: int
    usd: float


class CachedClient(BaseClient, Embedder):
    """Client that calls another client for requests whose reply is not on disk.

    Several processes may share the folder. A reply from disk has ``cached`` set and 0 attempts; its
    usage and cost are those of the original call. Each text of ``embed`` is cached on its own, and
    only new ones are sent; usage and cost cover all texts, ``attempts`` those of this call. Errors
    are not cached. Nothing is opened before the first request.

    Parameters
    ----------
    client : Client or None
        The client to call. None suffices to replay replies of a client without options.
    folder : str or pathlib.Path
        Folder of the cache.
    mode : {"auto", "record", "replay"}, optional
        ``auto`` calls the client for missing replies and stores them. ``record`` calls it for all
        requests and overwrites. ``replay`` never calls it: a missing reply raises
        ``ModelRequestRejected``.

    Raises
    ------
    UnknownName
        If ``mode`` is none of the three.

    Examples
    --------
    >>> import tempfile
    >>> from ctxlab.llm import ScriptedClient
    >>> from ctxlab.messages.types import Message
    >>> question = Request("gpt-4o", (Message("user", "Hi"),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with CachedClient(ScriptedClient("Hello.", "Hello again."), folder) as client:
    ...         replies = [client.complete(question) for _ in range(2)]
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
        """Let a copy in another process open the files itself."""
        return type(self), (self.client, self.folder, self.mode)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self.close()

    def close(self) -> None:
        """Close the files; the next request opens them again."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    @override
    def split_for_workers(self, workers: int, /) -> CachedClient:
        inner = None if self.client is None else split_for_workers(self.client, workers)
        return CachedClient(inner, self.folder, self.mode)

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        # First the replies on disk, then the others as they arrive.
        return report_replies(self._complete_each(requests), on_reply)

    def cache_key(self, request: Request) -> str:
        """Return the key under which the reply to a request is stored; equal requests have equal keys.

        Parameters
        ----------
        request : Request
            The request.

        Returns
        -------
        str
            The key.
        """
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        # Only what is sent of a message tells requests apart.
        fields["messages"] = [message.to_dict() for message in request.messages]
        return self._build_key("reply", fields)

    def has_answer(self, key: str) -> bool:
        """Return True if the reply under a key is on disk and would be used.

        Parameters
        ----------
        key : str
            Key of a request; see ``cache_key``.

        Returns
        -------
        bool
            False in mode ``record``, which uses no stored replies.
        """
        return self.mode != "record" and self.folder.is_dir() and key in self._open_cache()

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        keys = [self._build_key("embedding", {"model": model, "text": text}) for text in texts]
        known = {key: self._load(key, _Vector) for key in dict.fromkeys(keys)}
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
        for key, same in indices.items():
            if (known := self._load(key, Reply)) is None:
                missing[key] = requests[same[0]]
            else:
                known = msgspec.structs.replace(known, cached=True, attempts=0)
                yield from _repeat_reply(known, same)
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
        """Return the client to call for a missing reply."""
        if self.client is not None and self.mode != "replay":
            return self.client
        advice = "use mode 'auto' or 'record' to call the model"
        raise ModelRequestRejected(f"{what} is not in the cache {self.folder}; {advice}")

    def _build_key(self, kind: str, fields: dict[str, Any]) -> str:
        options = client_options(self.client)
        told = {name: options[name] for name in options if not _CREDENTIAL.search(name)}
        text = json.dumps([kind, fields, told], sort_keys=True, default=repr)
        return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"

    def _load(self, key: str, kind: type[_Stored]) -> _Stored | None:
        """Return the stored value; one that cannot be read counts as missing."""
        if self.mode == "record":
            return None
        disk = self._open_cache()
        try:
            blob = disk.get(key, retry=True)
            if blob is None:
                return None
            value = parse_json(blob)
            if value["usd"] is None:  # JSON has no nan
                value["usd"] = math.nan
            return msgspec.convert(value, kind)
        except (ValueError, TypeError, KeyError, msgspec.ValidationError, sqlite3.Error):
            _log.warning("cannot read the entry %s of the cache %s", key, self.folder)
            return None

    def _store(self, entries: Mapping[str, Reply | _Vector]) -> None:
        # Never called in the main thread: if a signal interrupts the start of a transaction, SQLite
        # waits forever for its end.
        try:
            for key, value in entries.items():
                blob = dump_json(msgspec.to_builtins(value)).encode()
                self._open_cache().set(key, blob, retry=True)
        except (OSError, sqlite3.Error) as error:  # do not lose a reply that was paid for
            _log.warning("cannot store a reply in the cache %s: %s", self.folder, error)

    def _open_cache(self) -> Any:
        if self._disk is None:
            import diskcache

            try:
                _create_private_cache(self.folder)
                keep_all = {"eviction_policy": "none", "cull_limit": 0}
                options = {"disk": _disk_class(), "disk_min_file_size": _MIN_FILE_BYTES, **keep_all}
                self._disk = diskcache.Cache(str(self.folder), **options)
            except (OSError, sqlite3.Error) as error:
                message = f"cannot open the cache {self.folder}: {error}"
                raise ModelRequestRejected(message) from error
            weakref.finalize(self, self._disk.close)
        return self._disk


def _create_private_cache(folder: Path) -> None:
    """Create the folder and the database that diskcache will open, readable by their owner only."""
    where = Path(os.path.expandvars(os.path.expanduser(folder)))  # as diskcache does
    make_folder(where)
    create_file(where / "cache.db")


@functools.cache
def _disk_class() -> type:
    """Return diskcache's ``Disk`` class without its use of pickle.

    Keys are str and values are bytes, so diskcache never writes a pickle here. A row that claims to
    be a pickle was put there by somebody else and is read as None.
    """
    from diskcache import Disk
    from diskcache.core import MODE_PICKLE

    class Plain(Disk):  # type: ignore[misc]
        def fetch(self, mode: int, filename: str, value: Any, read: bool) -> Any:
            return None if mode == MODE_PICKLE else super().fetch(mode, filename, value, read)

    return Plain


def _repeat_reply(reply: ReplyOrError, indices: Sequence[int]) -> Replies:
    """Yield a reply for each index of a request that occurs several times but was sent once."""
    yield indices[0], reply
    for index in indices[1:]:
        if isinstance(reply, Reply):
            yield index, msgspec.structs.replace(reply, cached=True, attempts=0)
        else:
            yield index, ModelUnavailable(str(reply), 0)


def _split_proportionally(total: int, sizes: Sequence[int]) -> list[int]:
    """Split a whole number in proportion to sizes, into whole numbers with the same sum."""
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
