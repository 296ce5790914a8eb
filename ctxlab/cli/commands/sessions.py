"""``ctxlab sessions``: list, read, search, export and delete stored chats."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.dates import parse_date
from ctxlab.cli.options import FORCE, JSON, WRITABLE_FORMAT, App, argument, flag, option
from ctxlab.cli.output import losses_text, one_line, print_note, print_result, stdout_or
from ctxlab.cli.session_lookup import (
    find_session,
    find_sessions,
    list_all_sessions,
    open_session_library,
    open_writable_store,
    short_ids,
)
from ctxlab.errors import SessionError, SpecError, UnknownSession

if TYPE_CHECKING:
    from ctxlab.sessions.base import Session

_STORE = option(
    "--store PATH",
    "A workspace, a folder of session-*.jsonl files, or logs of another agent. Default: the current "
    "folder.",
)
_ID = argument("ID", "Id of a session, or a unique beginning of its id.", default=...)
_IDS = argument("ID…", "Ids of sessions, or unique beginnings of ids.", default=...)
_YES = flag("--yes -y", "Do not ask for confirmation.")
_AGENT = option("--agent NAME", "Select only sessions of this agent.")

app = App()


@app.callback()
def _describe() -> None:
    """List, read, search, export and delete the sessions of ctxlab chat.

    Examples
    --------
    ctxlab sessions list --search delegation --since 7d
    ctxlab sessions show 3f2a             properties and table of contents
    ctxlab sessions show 3f2a --turn 5    a message with all that answers it
    ctxlab sessions show 3f2a --turn 5.2  one step of the answer
    ctxlab sessions search "retry logic"  search all messages
    ctxlab sessions export 3f2a -o session.jsonl && ctxlab eval session.jsonl
    ctxlab sessions list --store ~/.claude/projects
    ctxlab sessions doctor                check all sessions; --repair mends them

    Sessions are stored in the file .ctxlab/sessions.db of the workspace, the folder of the chat. Times
    are local times. In JSON they are in UTC.
    """


@app.command("list", short_help="List the sessions, newest first.")
def list_sessions(
    store: str | None = _STORE,
    search: str | None = option(
        "--search WORDS", "List only sessions with these words in the title."
    ),
    since: str | None = option(
        "--since DATE",
        "List only sessions last updated at or after this date, such as 2026-11-22, "
        "'2026-11-22 10:30', yesterday, or 7d for seven days ago.",
    ),
    before: str | None = option(
        "--before DATE", "List only sessions last updated before this date."
    ),
    agent: str | None = _AGENT,
    all: bool = flag("--all", "Include archived sessions."),
    json: bool = JSON,
) -> None:
    """List the sessions of a workspace, most recently updated first.

    Examples
    --------
    ctxlab sessions list --agent tester --search delegation
    ctxlab sessions list --since 2026-11-01 --before 2026-11-08 --json
    """
    from ctxlab.cli.render import format as show_as
    from ctxlab.cli.render.sessions import session_to_row, sessions_table
    from ctxlab.sessions.open import find_store

    limits: dict[str, Any] = {
        "since": None if since is None else parse_date(since),
        "before": None if before is None else parse_date(before),
        "agent": agent,
    }
    if store is None and find_store(".") is None:
        print_note(f"no sessions in {Path().absolute()}; start a session with ctxlab chat")
        return print_result("[]") if json else None
    with open_session_library(store) as library:
        known = list_all_sessions(library)
        found = library.sessions(search, **limits)
        if all:
            found += library.sessions(search, status="archived", **limits)
            found.sort(key=lambda session: session.updated, reverse=True)
    if json:
        return print_result(show_as.to_json_array(map(session_to_row, found)))
    if found:
        print_result(show_as.render_to_text(sessions_table(found, short_ids(s.id for s in known))))
    hidden = 0 if all else sum(s.status == "archived" for s in known)
    of = f" of {len(known) - hidden:,}" if search or any(limits.values()) else ""
    more = f"; {pluralize(hidden, 'archived session')} hidden (--all)" if hidden else ""
    print_note(f"{pluralize(len(found), 'session')}{of}{more}")
    return None


@app.command("search", short_help="Search the messages of sessions.")
def search(
    words: list[str] = argument(
        "WORDS", "Words to find. A message must contain all of them as whole words.", default=...
    ),
    session: str | None = option(
        "--session ID", "Search only this session, even if it is archived."
    ),
    limit: int = option("--limit -n N", "Maximum number of messages to show.", default=20, min=1),
    store: str | None = _STORE,
    json: bool = JSON,
) -> None:
    """Search the messages of all sessions, or of one session. The best matches are shown first.

    A message matches if it contains all words. Only whole words match: hel does not match hello.
    """
    from ctxlab.cli.render import format as show_as
    from ctxlab.cli.render.sessions import hit_to_row, hits_table

    if not "".join(words).strip():
        raise SpecError("expected words to search for, got an empty string")
    with open_session_library(store) as library:
        id = None if session is None else find_session(library, session).id
        hits = library.search(" ".join(words), id, limit=limit)
        ids = short_ids(s.id for s in list_all_sessions(library))
    if json:
        return print_result(show_as.to_json_array(map(hit_to_row, hits)))
    if hits:
        print_result(show_as.render_to_text(hits_table(hits, ids)))
    full = "; there may be more, set a larger -n" if len(hits) == limit else ""
    more = full if hits else "; only whole words match"
    print_note(f"{pluralize(len(hits), 'message')} found{more}")
    return None


@app.command("show", short_help="Show a session, or turns in full.")
def show(
    id: str = _ID,
    turn: str | None = option(
        "--turn N",
        "Show these turns in full: 3 (one turn), 3.2 (one step of it), 3-5 (three turns) or 3- (from "
        "turn 3).",
    ),
    store: str | None = _STORE,
    json: bool = JSON,
) -> None:
    """Show the properties, titles and turns of a session. With --turn, show single turns in full."""
    from ctxlab.cli.render import format as show_as
    from ctxlab.cli.render.sessions import parse_turns, session_details, session_to_row
    from ctxlab.cli.render.transcript import render_turns, text_for_stdout
    from ctxlab.sessions.table_of_contents import get_contents, get_turn

    with open_session_library(store) as library:
        session = find_session(library, id)
        if turn is not None:
            labels = parse_turns(turn, library.count_turns(session.id))
            turns = (get_turn(library, session.id, str(label)) for label in labels)
            if json:
                return print_result(show_as.to_json_array(map(asdict, turns)))
            for text in render_turns(turns):
                print_result(text_for_stdout(text))
            return None
        made = get_contents(library, session.id)
    if json:
        row = session_to_row(session) | {"turns": made.total_turns}
        return print_result(show_as.to_json_array([row]))
    return print_result(show_as.render_to_text(session_details(session, made)))


@app.command("toc", short_help="Show the table of contents of a session.")
def toc(
    id: str = _ID,
    max_steps: int | None = option(
        "--max-steps N",
        "Maximum number of steps to list for each turn; 0 lists none. Default: all steps.",
        min=0,
    ),
    store: str | None = _STORE,
    json: bool = JSON,
) -> None:
    """Show the table of contents of a session: one line per turn and, indented, one per step.

    A turn is a message of the user with everything that answers it. Turns are numbered from 1. A step
    is one reply of the model with its tool calls: 3.2 is the second step of turn 3.
    """
    from ctxlab.cli.render import format as show_as
    from ctxlab.cli.render.sessions import contents_text
    from ctxlab.cli.render.transcript import text_for_stdout
    from ctxlab.sessions.table_of_contents import get_contents

    with open_session_library(store) as library:
        made = get_contents(library, find_session(library, id).id, max_steps=max_steps)
    if json:
        return print_result(show_as.to_json_array([asdict(made)]))
    return print_result(text_for_stdout(contents_text(made)))


@app.command("export", short_help="Write sessions as recordings.")
def export(
    ids: list[str] = _IDS,
    out: str | None = option(
        "--out -o FILE",
        "A file for all sessions, or a folder for one file per session. Write / at the end of the "
        "folder's name if it does not exist. Default: standard output.",
    ),
    to: str = WRITABLE_FORMAT,
    force: bool = FORCE,
    store: str | None = _STORE,
) -> None:
    """Write sessions as recordings, for ctxlab eval and other commands.

    The native format keeps all data. For other formats, the data that they cannot store is listed.
    """
    from ctxlab.formats import write
    from ctxlab.formats.write import writable_format

    writable_format(to)
    target = stdout_or(out or "-")
    with open_session_library(store) as library:
        found = find_sessions(library, ids)
        recordings = (library.recording(session.id) for session in found)
        lost = write(recordings, target, to, force=force)
    if lost or out is not None:
        print_note(f"{pluralize(len(found), 'session')} written as {to}{losses_text(lost)}")


@app.command("archive", short_help="Hide sessions from lists and searches.")
def archive(
    ids: list[str] = _IDS,
    undo: bool = flag("--undo", "Show archived sessions again."),
    store: str | None = _STORE,
) -> None:
    """Hide sessions from lists and searches. They can still be shown and resumed by id."""
    with open_writable_store(store) as library:
        found = find_sessions(library, ids)
        there = [session for session in found if undo and session.status != "archived"]
        moved = [session for session in found if session not in there]
        for session in moved:
            library.set_status(session.id, "closed" if undo else "archived")
    if moved:
        print_note(f"{'restored' if undo else 'archived'}: {_list_titles(moved)}")
    if there:
        print_note(f"not archived, so unchanged: {_list_titles(there)}")


@app.command("delete", short_help="Delete sessions.")
def delete(ids: list[str] = _IDS, store: str | None = _STORE) -> None:
    """Delete sessions permanently. If one of the ids does not exist, no session is deleted."""
    with open_writable_store(store) as library:
        found = find_sessions(library, ids)
        for session in found:
            library.delete(session.id)
    print_note(f"deleted: {_list_titles(found)}")


@app.command("delete-all", short_help="Delete all sessions, or all of one agent.")
def delete_all(agent: str | None = _AGENT, yes: bool = _YES, store: str | None = _STORE) -> None:
    """Delete all sessions permanently, or all sessions of one agent. Archived sessions are included.

    You are asked for confirmation first. Without a terminal, --yes is required.
    """
    whose = f" of {one_line(agent)}" if agent else ""
    with open_writable_store(store) as library:
        found = list_all_sessions(library, agent)
        if found and not yes:
            if not sys.stdin.isatty():
                what = pluralize(len(found), "session")
                raise SessionError(f"nothing was deleted; to delete {what}{whose}, add --yes")
            active = sum(session.status == "active" for session in found)
            if active:
                print_note(f"{pluralize(active, 'session')} active; a chat may have one open")
            question = f"Delete {pluralize(len(found), 'session')}{whose} permanently?"
            typer.confirm(question, abort=True, err=True)
        count = 0
        for session in found:
            try:
                library.delete(session.id)
            except UnknownSession:
                continue  # another process deleted the session in the meantime
            count += 1
    print_result(f"{pluralize(count, 'session')}{whose} deleted")


@app.command("doctor", short_help="Check a store, and repair it.")
def doctor(
    store: str = argument("STORE", "A workspace or a folder of session files.", default="."),
    repair: bool = flag(
        "--repair", "Back up the store, and replace it by a copy of all that can be read."
    ),
    backup: Path | None = option(
        "--backup DIR",
        "Folder for the backup, which must not exist. Default: a new folder beside the store.",
    ),
    json: bool = JSON,
) -> None:
    """Check every session of a store: files or pages, rows, numbers, and the full-text index.

    Without --repair, nothing is changed. Exit code: 0 if the store is in order or was repaired, 1 if
    something is damaged, 2 if it cannot be read.

    A repair copies the store to a backup first, and never overwrites one. Messages that are lost are
    replaced by placeholders, so that all others keep their numbers. A store that another process uses is
    not repaired. If you interrupt a repair, the store is as before.
    """
    import logging

    from ctxlab.cli.render import format as show_as
    from ctxlab.sessions.doctor import check_store, repair_store

    if backup is not None and not repair:
        raise SpecError("--backup has no effect without --repair; add --repair")
    logging.getLogger("ctxlab.sessions").setLevel(logging.ERROR)  # the damage is printed below
    with open_writable_store(store) as library:
        done = repair_store(library, backup) if repair else None
        found = check_store(library) if done is None else done.before
    if json:
        print_result(show_as.to_json_array(each._asdict() for each in found.found))
    else:
        for each in found.found:
            print_result(str(each))
    lost = f", {pluralize(found.lost, 'message')} lost" if found.lost else ""
    said = f"{pluralize(found.sessions, 'session')}, {pluralize(found.messages, 'message')}{lost}"
    if done is not None:
        print_note(f"{said}; repaired; the damaged store is kept in {done.backup}")
    elif found.found:
        count = pluralize(len(found.found), "finding")
        where = f" {store}" if store != "." else ""
        print_note(f"{said}; {count}; to repair: ctxlab sessions doctor --repair{where}")
        raise typer.Exit(1)
    else:
        print_note(f"{said}; nothing is damaged")


@app.command("migrate", short_help="Convert a folder of older session files.")
def migrate(
    folder: str = argument(
        "FOLDER", "Folder with session files of an older version of ctxlab.", default=...
    ),
    dry_run: bool = flag("--dry-run", "Show what would be done, and change nothing."),
) -> None:
    """Convert a folder of older session files to the current format, so that --store FOLDER reads it.

    Older files have names such as session-ID.jsonl. New files have a number after the id, as in
    session-ID.1.jsonl. Headers of version 1 are rewritten. An old file is removed only after the new
    files were compared with it. Copies of a session are never joined: the same messages are not stored
    twice, and a file with other messages becomes a session of its own. Other files are not changed. If
    the conversion is interrupted, no data is lost, and you can repeat the command.
    """
    from ctxlab.sessions.jsonl.migrate import migrate_folder

    report = migrate_folder(Path(folder).expanduser(), dry_run=dry_run)
    print_result(str(report))
    if dry_run:
        print_note("nothing was changed; leave out --dry-run to migrate")


def _list_titles(sessions: list[Session]) -> str:
    """Return the titles of the first three sessions and the number of the remaining sessions."""
    titles = [one_line(session.title) or session.id for session in sessions[:3]]
    more = f" and {len(sessions) - 3} more" if len(sessions) > 3 else ""
    return f"{', '.join(titles)}{more}"
