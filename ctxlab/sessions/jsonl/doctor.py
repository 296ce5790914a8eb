"""Check and rebuild the sessions of a JSONL store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import ReadError
from ctxlab.messages.openai_format import message_from_row
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, encode_chunk
from ctxlab.sessions.jsonl.files import encode_first_row, read_first_row
from ctxlab.sessions.jsonl.store import JsonlStore, StoredWindow


def check_session(store: JsonlStore, id: str) -> None:
    """Check the chunk headers and the resume window of a session, and tell ``store.damage``.

    Parameters
    ----------
    store : JsonlStore
        Store of the session.
    id : str
        Session id.
    """
    for number in store._files.list_chunks(id):
        store._headers.read(id, number)
    path = store._files.sidecar_path(id, "window")
    try:
        window = read_first_row(path, "session-window", StoredWindow)
        for row in window.recent:
            message_from_row(row)
    except FileNotFoundError:
        pass
    except (ReadError, TypeError, ValueError):
        store.damage.tell(path, "damaged; it is rebuilt when the session is resumed", id)


def rebuild(store: JsonlStore, folder: Path, ids: Iterable[str]) -> None:
    """Write damaged sessions of a store anew, to a copy of its folder.

    Parameters
    ----------
    store : JsonlStore
        Damaged store.
    folder : Path
        Copy of the folder of the store.
    ids : iterable of str
        Sessions to write. Files of other sessions stay as they are.
    """
    made = JsonlStore(folder, max_history=store.max_history)
    files = made._files
    for id in sorted(ids):
        meta, session = store._load_meta(id), store.get(id)
        messages, lines = list(store.read_messages(id)), store.turn_summaries(id)
        for path in files.list_files(id):
            path.unlink()
        tail = ChunkTail(chunk=0)
        for start in range(0, max(1, len(messages)), store.max_history):
            some = messages[start : start + store.max_history]
            tail = tail.next_chunk()
            text = encode_chunk(tail, id, meta.model, some)
            files.replace(files.chunk_path(id, tail.chunk), text, modified=session.updated)
            tail.add_roles(*(message.role for message in some))
        if session.tools:
            made._write_sidecar(id, "tools", tools=session.tools)
        if lines:
            rows = [
                f"{dump_json({'turn': n, 'line': line})}\n".encode() for n, line in lines.items()
            ]
            whole = encode_first_row("session-lines", id) + b"".join(rows)
            files.replace(files.summaries_path(id), whole)
        made._write_meta(id, replace(meta, chunk=tail.chunk))
