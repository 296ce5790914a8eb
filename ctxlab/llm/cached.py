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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import create_file, make_folder
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, UnknownName
from ctxlab.llm.base import (
    Client,
    Embedder,
    Embedding,
    IncrementalClient,
    Reply,
    Request,
    client_options,
    split_for_workers,
)
from ctxlab.llm.concurrency import BatchMixin, run_uninterrupted
from ctxlab.messages.types import Usage

CacheMode: TypeAlias = Literal["auto", "record", "replay"]

_log = logging.getLogger("ctxlab.llm")
_MIN_FILE_BYTES = 2**40
"""Size from which diskcache writes a value to a separate file, which every user could read."""
# Options that identify the caller and do not change the reply.
_CREDENTIAL = re.compile("key|secret|password|credential|header|ad_token|session_token")
_Stored = TypeVar("_Stored", Reply, "_Vector")


class _Vector(msgspec.Struct, frozen=True):
    """The embedding of one text, with its share of the tokens and cost of the call."""

    vector: list[float]
    tokens: int
    usd: float | None


class CachedClient(BatchMixin):
    """Client that calls another client for requests whose reply is not on disk.

    Several processes may share the folder. A reply from disk has ``cached`` set and 0 attempts; its
    usage and cost are those of the original call. Errors are not cached. Nothing is opened before
    the first request.

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
        return f"CachedClient({self.client!r}, {str(self.folder)!r}, {self.mode!r})"

    def __reduce__(self) -> tuple[type[CachedClient], tuple[Any, ...]]:
        return type(self), (self.client, self.folder, self.mode)

    def __enter__(self) -> CachedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the next request opens them again."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def split_for_workers(self, workers: int) -> CachedClient:
        """Return a client for each of several worker processes; see ``LiteLLMClient.split_for_workers``.

        Parameters
        ----------
        workers : int
            Number of worker processes.

        Returns
        -------
        CachedClient
            Client for one worker.
        """
        inner = None if self.client is None else split_for_workers(self.client, workers)
        return CachedClient(inner, self.folder, self.mode)

    def complete_each(
        self, requests: Sequence[Request], /
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """Yield the replies: first those on disk, then the others as they arrive.

        Each reply is stored before it is yielded, whatever happens to the others. A caller that
        leaves early must close the generator: running calls are then awaited and stored.

        Parameters
        ----------
        requests : sequence of Request
            The requests.

        Yields
        ------
        tuple of int and (Reply or ModelUnavailable)
            Index of the request and its reply.

        Raises
        ------
        ModelRequestRejected
            If a reply is missing and the client must not be called.
        """
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(self.cache_key(request), []).append(place)
        missing: dict[str, Request] = {}
        for key, (first, *others) in places.items():
            found = self._look_up([key], _parse_reply)
            if key in found:
                yield from _repeat_for_places(found[key], (first, *others))
            else:
                missing[key] = requests[first]
        if not missing:
            return
        names = list(missing)

        def keep(number: int, reply: Reply | ModelUnavailable) -> None:
            if isinstance(reply, Reply):
                self._store(names[number], msgspec.to_builtins(reply))

        client = self._client_for_missing(next(iter(missing.values())))
        with closing(_complete_each(client, list(missing.values()), keep)) as replies:
            for number, reply in replies:
                yield from _repeat_for_places(reply, places[names[number]])

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
        return self._build_key("reply", _request_fields(request))

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

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """Return one vector per text; each text is cached separately, and only new ones are sent.

        Usage and cost cover all texts, whenever they were sent; ``attempts`` are those of this
        call.

        Parameters
        ----------
        model : str
            Name of the embedding model.
        texts : sequence of str
            The texts.

        Returns
        -------
        Embedding
            The vectors, in the order of the texts.

        Raises
        ------
        ModelRequestRejected
            If a vector is missing and the client cannot make embeddings or must not be called.
        """
        keys = [self._build_key("embedding", {"model": model, "text": text}) for text in texts]
        found = self._look_up(keys, _parse_vector)
        missing = {k: text for k, text in zip(keys, texts, strict=True) if k not in found}
        attempts = 0
        if missing:
            client = self._client_for_missing(
                f"the embedding by {model} of {_quote_text(next(iter(texts)))}"
            )
            if not isinstance(client, Embedder):
                raise ModelRequestRejected(
                    f"{client!r} has no embed method; pass a client that makes embeddings"
                )
            answer = client.embed(model, list(missing.values()))
            attempts = answer.attempts
            tokens = _split_proportionally(
                answer.usage.input, [len(text) for text in missing.values()]
            )
            price = answer.usd / answer.usage.input if answer.usage.input else 0.0
            usd = [None if math.isnan(price) else share * price for share in tokens]
            new = dict(zip(missing, map(_Vector, answer.vectors, tokens, usd), strict=True))
            run_uninterrupted(lambda: self._store_vectors(new))
            found |= new
        took = [found[key] for key in dict.fromkeys(keys)]
        return Embedding(
            [found[key].vector for key in keys],
            Usage(sum(each.tokens for each in took)),
            sum(math.nan if each.usd is None else each.usd for each in took),
            attempts,
            not missing,
        )

    def _client_for_missing(self, what: Request | str) -> Client:
        """Return the client to call for a missing reply."""
        if self.client is not None and self.mode != "replay":
            return self.client
        if isinstance(what, Request):
            said = _quote_text(what.messages[-1].text if what.messages else "")
            again = f" (replicate {what.replicate})" if what.replicate else ""
            what = f"the reply of {what.model} to {said}{again}"
        raise ModelRequestRejected(
            f"{what} is not in the cache {self.folder}, which is used without calling a model; run "
            "once with mode 'auto', which calls the model for missing replies, or 'record'"
        )

    def _build_key(self, kind: str, fields: dict[str, Any]) -> str:
        options = {
            k: v for k, v in client_options(self.client).items() if not _CREDENTIAL.search(k)
        }
        text = json.dumps([kind, fields, options], sort_keys=True, default=repr)
        return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"

    def _look_up(self, keys: Sequence[str], read: Callable[[Any], _Stored]) -> dict[str, Any]:
        """Return the stored values; unreadable ones count as missing."""
        found: dict[str, _Stored] = {}
        if self.mode == "record":
            return found
        for key in dict.fromkeys(keys):
            disk = self._open_cache()
            try:
                blob = disk.get(key, retry=True)
                if blob is not None:
                    found[key] = read(parse_json(blob))
            except (ValueError, TypeError, KeyError, msgspec.ValidationError, sqlite3.Error):
                _log.warning("cannot read the entry %s of the cache %s", key, self.folder)
        return found

    def _store(self, key: str, value: Mapping[str, Any]) -> None:
        # Never called in the main thread: if a signal interrupts the start of a transaction, SQLite
        # waits forever for its end.
        try:
            self._open_cache().set(key, dump_json(value).encode(), retry=True)
        except (OSError, sqlite3.Error) as error:  # do not lose a reply that was paid for
            _log.warning("cannot store a reply in the cache %s: %s", self.folder, error)

    def _store_vectors(self, vectors: Mapping[str, _Vector]) -> None:
        for key, vector in vectors.items():
            self._store(key, msgspec.to_builtins(vector))

    def _open_cache(self) -> Any:
        if self._disk is None:
            import diskcache

            try:
                _create_private_cache(self.folder)
                self._disk = diskcache.Cache(
                    str(self.folder),
                    disk=_disk_class(),
                    disk_min_file_size=_MIN_FILE_BYTES,
                    eviction_policy="none",
                    cull_limit=0,
                )
            except (OSError, sqlite3.Error) as error:
                raise ModelRequestRejected(
                    f"cannot open the cache {self.folder}: {error}"
                ) from error
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


def _complete_each(
    client: Client,
    requests: Sequence[Request],
    keep: Callable[[int, Reply | ModelUnavailable], None],
) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
    """Yield the replies as they arrive, if the client supports it; pass each to ``keep`` first."""
    if isinstance(client, IncrementalClient):
        with closing(client.complete_each(requests, keep)) as replies:
            yield from replies
        return
    together = client.complete_all(requests)

    def keep_all() -> None:
        for place, reply in enumerate(together):
            keep(place, reply)

    run_uninterrupted(keep_all)
    yield from enumerate(together)


def _repeat_for_places(
    reply: Reply | ModelUnavailable, places: Sequence[int]
) -> Iterator[tuple[int, Reply | ModelUnavailable]]:
    """Yield the reply for each index of a request that occurs several times but was sent once."""
    yield places[0], reply
    for place in places[1:]:
        yield place, _mark_as_repeated(reply)


def _mark_as_repeated(reply: Reply | ModelUnavailable) -> Reply | ModelUnavailable:
    """Return the reply for a repetition of a request that was sent once."""
    if isinstance(reply, ModelUnavailable):
        return ModelUnavailable(str(reply), 0)
    return msgspec.structs.replace(reply, cached=True, attempts=0)


def _request_fields(request: Request) -> dict[str, Any]:
    """Return all fields that are sent, and none that are not."""
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return {**fields, "messages": [message.to_dict() for message in request.messages]}


def _parse_reply(value: dict[str, Any]) -> Reply:
    # JSON has no nan, so it is stored as null.
    value = {**value, "usd": math.nan if value["usd"] is None else value["usd"]}
    return msgspec.structs.replace(msgspec.convert(value, Reply), cached=True, attempts=0)


def _parse_vector(value: dict[str, Any]) -> _Vector:
    return msgspec.convert(value, _Vector)


def _split_proportionally(total: int, sizes: Sequence[int]) -> list[int]:
    """Split a whole number in proportion to sizes, into whole numbers with the same sum."""
    parts, used, seen, whole = [], 0, 0, sum(sizes) or 1
    for size in sizes:
        seen += size
        upto = total * seen // whole
        parts.append(upto - used)
        used = upto
    return parts


def _quote_text(text: str) -> str:
    said = " ".join(text.split())
    return f"“{said[:60]}…”" if len(said) > 60 else f"“{said}”"
