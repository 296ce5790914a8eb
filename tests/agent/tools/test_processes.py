"""Tests of ``ProcessManager`` with real commands and child processes; none may be left running."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ctxlab.agent.tools.processes import ProcessManager

FAMILY = """
sleep {mark} &
(sleep {mark} & sleep {mark}) &
setsid sleep {mark} &
(setsid sh -c 'sleep {mark} & exec sleep {mark}' &)
sh -c 'trap "" TERM INT HUP; while :; do sleep {mark}; done' &
nohup sleep {mark} >/dev/null 2>&1 &
echo ready
"""
"""Children, grandchildren, orphans, sessions of their own, and one that hears no signal."""

MEMBERS = 8
"""Of a family, as many sleep."""

_MARKS = iter(range(700_000 + os.getpid() % 1000 * 100, 10_000_000))


@pytest.fixture
def processes() -> Iterator[ProcessManager]:
    with ProcessManager() as made:
        yield made
    assert made.list_running() == []


@pytest.fixture
def mark() -> Iterator[str]:
    """Return a number of seconds for ``sleep`` that identifies the processes of a test."""
    made = str(next(_MARKS))
    yield made
    for pid in sleeping(made):
        os.kill(pid, signal.SIGKILL)


def sleeping(mark: str) -> list[int]:
    """Return the processes of a test: sleeping ones, and shells that will start ``sleep``."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status", "pid"])
        if f"sleep {mark}" in (command := " ".join(process.info["cmdline"] or ()))
        and "process_supervisor.py" not in command
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def asleep(mark: str) -> int:
    """Return the number of processes that sleep ``mark`` seconds."""
    listed = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return sum(command == ["sleep", mark] for command in listed)


def soon(what: Callable[[], Any], seconds: float = 30.0) -> bool:
    """Return True if a condition becomes true in time."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("code", [0, 1, 42, 126, 255])
def test_the_exit_code_is_the_shells(processes: ProcessManager, code: int) -> None:
    done = processes.run(f"exit {code}", timeout=60)
    assert (done.exit_code, done.output, done.timed_out, done.still_running) == (
        code,
        "",
        False,
        False,
    )


def test_output_and_errors_come_in_the_order_they_were_written(processes: ProcessManager) -> None:
    command = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    assert processes.run(command).output == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3))


def test_each_command_has_an_id_of_its_own(processes: ProcessManager) -> None:
    assert [processes.run(":").process_id for _ in range(3)] == ["p1", "p2", "p3"]


def test_a_command_runs_where_it_is_told_to(processes: ProcessManager, tmp_path: Path) -> None:
    assert processes.run("pwd -P", cwd=tmp_path).output == f"{tmp_path.resolve()}\n"


def test_there_is_no_input_and_no_terminal_to_wait_for(processes: ProcessManager) -> None:
    done = processes.run("read x; echo got $?; cat; (: </dev/tty) 2>&1 | wc -l", timeout=60)
    assert done.output.split()[:2] == ["got", "1"]
    assert not done.timed_out


def test_what_is_no_utf8_is_replaced_and_a_letter_cut_in_two_is_not(
    processes: ProcessManager,
) -> None:
    done = processes.run(r"printf '\303'; sleep 0.1; printf '\251\n\377\376\n'")
    assert done.output == "é\n��\n"


@pytest.mark.parametrize("limit", [2, 10, 1000])
def test_of_long_output_beginning_and_end_are_kept_and_the_rest_counted(
    processes: ProcessManager, limit: int
) -> None:
    whole = "".join(f"{n}\n" for n in range(1, 20_001))
    output = processes.run("seq 1 20000", limit_chars=limit).output
    head, note, tail = output.partition(f"\n[… {len(whole) - limit:,} characters left out …]\n")
    assert note
    assert (whole[: limit // 2], whole[-(limit - limit // 2) :]) == (head, tail)


def test_output_that_fits_exactly_is_whole(processes: ProcessManager) -> None:
    assert processes.run("printf abcdef", limit_chars=6).output == "abcdef"


def test_output_without_end_takes_no_memory(processes: ProcessManager) -> None:
    before = psutil.Process().memory_info().rss
    done = processes.run("yes", timeout=0.5, limit_chars=1000)
    assert psutil.Process().memory_info().rss - before < 30e6
    assert done.timed_out
    assert len(done.output) < 1100


@pytest.mark.e2e
def test_a_command_ends_when_its_time_is_up_with_all_that_it_began(
    processes: ProcessManager, mark: str
) -> None:
    started = time.monotonic()
    done = processes.run(FAMILY.format(mark=mark) + f"sleep {mark}", timeout=3)
    assert time.monotonic() - started < 60
    assert (done.timed_out, done.output, done.still_running) == (True, "ready\n", False)
    assert sleeping(mark) == []
    assert processes.list_running() == []


@pytest.mark.e2e
def test_a_command_that_asks_to_be_spared_is_ended_too(processes: ProcessManager) -> None:
    done = processes.run("trap 'echo no' TERM; while :; do sleep 0.05; done", timeout=2)
    assert (done.timed_out, done.exit_code) == (True, -signal.SIGKILL)
    assert "no\n" in done.output


@pytest.mark.e2e
def test_a_command_that_tidies_up_when_asked_to_end_may_do_so(
    processes: ProcessManager, tmp_path: Path
) -> None:
    command = "trap 'rm lock; exit 7' TERM; touch lock; while :; do sleep 0.02; done"
    done = processes.run(command, cwd=tmp_path, timeout=2)
    assert (done.timed_out, done.exit_code) == (True, 7)
    assert not (tmp_path / "lock").exists()


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("way", ["sleep {} &", "setsid sleep {} &", "yes {} &"])
def test_what_is_left_in_the_background_holds_nobody_up_and_goes_on_under_its_id(
    processes: ProcessManager, mark: str, way: str
) -> None:
    started = time.monotonic()
    done = processes.run(f"echo started; sleep {mark} & {way.format(mark)}", timeout=90)
    assert time.monotonic() - started < 60  # what is left sleeps much longer, and 90 is the limit
    assert (done.exit_code, done.timed_out, done.still_running) == (0, False, True)
    assert "started\n" in done.output
    (left,) = processes.list_running()
    assert left.process_id == done.process_id
    assert sleeping(mark)
    processes.kill_all()
    assert sleeping(mark) == []


def test_what_ends_in_the_background_is_no_longer_listed(processes: ProcessManager) -> None:
    assert processes.run("sleep 0.3 &").still_running
    assert soon(lambda: not processes.list_running())


@pytest.mark.e2e
def test_leaving_the_block_ends_everything(mark: str) -> None:
    with ProcessManager() as processes:
        processes.run(FAMILY.format(mark=mark))
        assert soon(lambda: asleep(mark) == MEMBERS)
    assert sleeping(mark) == []


@pytest.mark.e2e
def test_forgetting_the_manager_ends_everything(mark: str) -> None:
    processes = ProcessManager()
    processes.run(FAMILY.format(mark=mark))
    del processes
    gc.collect()
    assert sleeping(mark) == []


def test_another_thread_may_end_a_command_that_somebody_waits_for(
    processes: ProcessManager, mark: str
) -> None:
    done: list[Any] = []
    command = f"sleep {mark}; echo never"
    thread = threading.Thread(target=lambda: done.append(processes.run(command, timeout=600)))
    thread.start()
    assert soon(lambda: sleeping(mark))
    processes.kill_all()
    thread.join(60)
    assert not thread.is_alive()
    assert (done[0].exit_code, done[0].timed_out, done[0].output) == (-signal.SIGTERM, False, "")


def test_commands_run_side_by_side_in_several_threads(
    processes: ProcessManager, tmp_path: Path
) -> None:
    done: dict[int, str] = {}

    def run(number: int) -> None:
        # None ends before all of them have begun.
        waiting = f"touch {number}; until [ $(ls | wc -l) = 8 ]; do sleep 0.02; done; echo {number}"
        done[number] = processes.run(waiting, cwd=tmp_path, timeout=60).output

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {number: f"{number}\n" for number in range(8)}


def test_no_zombies_open_files_or_threads_are_left(processes: ProcessManager, mark: str) -> None:
    processes.run(":")
    processes.kill_all()  # and is waited for
    files, threads = len(os.listdir("/dev/fd")), threading.active_count()
    for command in ("echo a", f"sleep {mark} &", "kill -9 $$", "exec >&- 2>&-; sleep 0.05"):
        processes.run(command)
    processes.run(f"sleep {mark}", timeout=0.1)
    with pytest.raises(OSError, match="No such file"):
        processes.run(":", cwd="/no/such/folder")
    processes.kill_all()
    assert soon(lambda: threading.active_count() == threads)
    assert len(os.listdir("/dev/fd")) == files
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.parametrize(
    ("command", "cwd", "error"),
    [
        ("echo", "/no/such/folder", FileNotFoundError),
        ("echo", "/dev/null", NotADirectoryError),
        ("echo " + "x" * 300_000, None, OSError),
        ("echo \0", None, ValueError),
    ],
    ids=["no folder", "a file", "too long", "null byte"],
)
def test_what_cannot_be_started_is_an_error_and_leaves_nothing(
    processes: ProcessManager, command: str, cwd: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        processes.run(command, cwd=cwd)
    assert processes.list_running() == []


def test_a_command_that_kills_its_supervisor_dies_with_it(
    processes: ProcessManager, mark: str
) -> None:
    done = processes.run(f"(sleep {mark} &) ; kill -9 $PPID; sleep {mark}", timeout=60)
    assert (done.exit_code, done.timed_out) == (None, False)
    assert soon(lambda: not sleeping(mark))


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["KILL", "STOP"])
def test_what_left_its_session_does_not_outlive_a_supervisor_that_was_put_out_of_action(
    processes: ProcessManager, mark: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxlab.agent.tools.processes._SUPERVISOR_TIMEOUT", 1.0)
    done = processes.run(
        f"setsid sleep {mark} & sleep 0.2; kill -{how} $PPID; sleep {mark}", timeout=1.0
    )
    processes.kill_all()
    assert done.exit_code is None
    assert soon(lambda: not sleeping(mark))


@pytest.mark.e2e
def test_a_command_that_stops_its_supervisor_does_not_stop_us(
    processes: ProcessManager, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxlab.agent.tools.processes._SUPERVISOR_TIMEOUT", 0.5)
    done = processes.run(f"kill -STOP $PPID; sleep {mark}", timeout=0.3)
    assert done.timed_out
    assert soon(lambda: not sleeping(mark))


def test_a_copy_of_the_manager_in_a_fork_ends_nothing(processes: ProcessManager, mark: str) -> None:
    processes.run(f"sleep {mark} &")
    pid = os.fork()
    if pid == 0:
        try:
            processes.kill_all()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert asleep(mark) == 1


# --- programs that are interrupted, end, or are killed ---------------------------------------------

PROGRAM = """
import sys
from ctxlab.agent.tools.processes import ProcessManager
processes = ProcessManager()
processes.run(sys.argv[1])
print("begun", flush=True)
try:
    {then}
except KeyboardInterrupt:
    print("Cancelled", len(processes.list_running()), flush=True)
"""

WAIT = "processes.run(sys.argv[1] + sys.argv[2], timeout=600)"
WAIT_IN_A_THREAD = """
    import threading
    thread = threading.Thread(target=processes.run, args=(sys.argv[1] + sys.argv[2],), daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        processes.kill_all()
        raise
"""


def program(then: str, mark: str) -> subprocess.Popen[str]:
    command = FAMILY.format(mark=mark)
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(then=then), command, f"sleep {mark}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "begun\n"
    return started


def both_families_have_come(mark: str) -> bool:
    return soon(lambda: asleep(mark) == 2 * MEMBERS + 1)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("group", [False, True], ids=["one process", "its whole group"])
@pytest.mark.parametrize("then", [WAIT, WAIT_IN_A_THREAD], ids=["main thread", "other thread"])
def test_an_interruption_ends_the_whole_tree_and_goes_on(mark: str, then: str, group: bool) -> None:
    """Seed 002, criterion 4: Ctrl+C during tool execution kills managed processes; "Cancelled"."""
    with program(then, mark) as started:
        assert both_families_have_come(mark)
        (os.killpg if group else os.kill)(started.pid, signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert (out.split()[0], err, started.returncode) == ("Cancelled", "", 0)
    assert sleeping(mark) == []


@pytest.mark.e2e
def test_an_interrupted_program_that_does_not_listen_again_leaves_nothing(mark: str) -> None:
    with program(WAIT, mark) as started:
        assert both_families_have_come(mark)
        started.send_signal(signal.SIGINT)
        time.sleep(0.1)
        started.send_signal(signal.SIGINT)  # while it waits for what hears no SIGTERM
        started.communicate(timeout=60)
    assert soon(lambda: not sleeping(mark))


@pytest.mark.e2e
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_program_that_is_killed_leaves_nothing(mark: str, way: signal.Signals) -> None:
    """Seed 002, section 10.4: no orphan subprocesses, not even of a program that is killed."""
    with program(WAIT, mark) as started:
        assert both_families_have_come(mark)
        started.send_signal(way)
        assert started.wait(60) == -way
    assert soon(lambda: not sleeping(mark))


def test_a_program_that_ends_leaves_nothing(mark: str) -> None:
    with program("pass", mark) as started:
        _, err = started.communicate(timeout=60)
        assert (started.returncode, err) == (0, "")
    assert sleeping(mark) == []


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="what a fork keeps open is Linux's to tell")
def test_a_fork_that_holds_the_leash_does_not_keep_a_dead_programs_commands(mark: str) -> None:
    then = """
    import os, time
    os.fork() or (time.sleep(30), os._exit(0))
    print("forked", flush=True)
    time.sleep(30)
"""
    with program(then, mark) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "forked\n"
        assert soon(lambda: asleep(mark) == MEMBERS)
        started.kill()
        started.wait(60)
        assert soon(lambda: not asleep(mark), 5)
        os.killpg(started.pid, signal.SIGKILL)  # the fork
