"""Tests of the count cache: it never changes a count, whatever happens to its files."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxlab
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.count_cache import CountCache, find_count_cache, without_count_cache
from ctxlab.tokens.counter import TokenCounter

ANY_TEXT = st.text(st.characters(), max_size=30) | st.text(st.characters(categories=["Cs", "L"]))
TEXTS = [f"{number} words of a text" for number in range(3000)]
forks = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


def never(text: str) -> int:
    raise AssertionError(f"counted again: {text!r}")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CountCache]:
    """Return a cache in a new folder."""
    cache = CountCache(tmp_path / "counts")
    yield cache
    cache.close()


def fill(cache: CountCache, texts: list[str] = TEXTS) -> CountCache:
    for text in texts:
        cache.count("chars", text, len)
    cache.close()
    return cache


def wrong_counts(cache: CountCache) -> list[str]:
    return [text for text in TEXTS if cache.count("chars", text, len) != len(text)]


def database(cache: CountCache) -> Path:
    (path,) = cache.folder.glob("counts-*.sqlite")
    return path


@given(st.lists(ANY_TEXT, min_size=1), st.integers(1, 300))
def test_stored_counts_of_any_message_equal_new_ones(parts: list[str], times: int) -> None:
    message = Message(
        "assistant", "\n".join(parts) * times, tool_calls=(ToolCall("1", "f", parts[0] * times),)
    )
    expected = TokenCounter("gpt-4o").count_message(message)
    with tempfile.TemporaryDirectory() as folder:
        for _ in ("empty", "filled"):
            cache = CountCache(Path(folder))
            assert TokenCounter("gpt-4o", None, cache).count_message(message) == expected
            cache.close()


def test_a_stored_text_is_not_counted_again(cache: CountCache) -> None:
    again = CountCache(fill(cache).folder)
    assert [again.count("chars", text, never) for text in TEXTS] == [len(text) for text in TEXTS]
    again.close()


def test_each_vocabulary_has_its_own_counts(cache: CountCache) -> None:
    assert [cache.count(name, "a text", lambda _, n=n: n) for n, name in enumerate("ab")] == [0, 1]


def test_the_files_contain_no_text_and_only_their_owner_can_read_them(cache: CountCache) -> None:
    fill(cache)
    for path in cache.folder.iterdir():
        assert b"words of" not in path.read_bytes()
        assert os.name == "nt" or path.stat().st_mode & 0o77 == 0


def _count_all(folder: Path, texts: list[str]) -> None:
    fill(CountCache(folder), texts)


@pytest.mark.e2e
def test_processes_that_write_at_once_lose_nothing(cache: CountCache) -> None:
    context = multiprocessing.get_context("spawn")
    work = [(cache.folder, TEXTS[start:]) for start in (0, 500, 1000, 1500)]
    processes = [context.Process(target=_count_all, args=each) for each in work]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert cache.info().entries == len(TEXTS)
    assert [cache.count("chars", text, never) for text in TEXTS] == [len(text) for text in TEXTS]


@forks
def test_a_fork_opens_the_database_itself(cache: CountCache) -> None:
    cache.count("chars", "before", len)
    cache.save()
    cache.count("chars", "not saved", len)

    def count_in_child() -> None:
        assert cache._connection is not None
        assert cache.count("chars", "before", never) == 6
        assert cache.count("chars", "in the child", len) == 12
        cache.close()

    process = multiprocessing.get_context("fork").Process(target=count_in_child)
    process.start()
    process.join()
    assert process.exitcode == 0
    for text in ("before", "not saved", "in the child"):
        assert cache.count("chars", text, never) == len(text)
    assert cache.info().entries == 3


@pytest.mark.parametrize("where", ["header", "pages"])
def test_a_damaged_database_is_renamed_with_one_warning(where: str, cache: CountCache) -> None:
    path = database(fill(cache))
    with path.open("r+b") as file:
        if where == "pages":
            file.seek(4096)
        file.write(b"\xff" * 20_000)
    with pytest.warns(UserWarning, match="was damaged; it was renamed") as warned:
        assert wrong_counts(cache) == []
    cache.close()
    assert len(warned) == 1
    assert path.with_suffix(".damaged").is_file()
    assert [cache.count("chars", text, never) for text in TEXTS[-9:]] == [*map(len, TEXTS[-9:])]


def test_a_damaged_database_is_replaced_only_once(cache: CountCache) -> None:
    path = database(fill(cache))
    other = CountCache(cache.folder)
    assert other.count("chars", TEXTS[0], never) == len(TEXTS[0])  # has the database open
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.warns(UserWarning, match="was damaged") as warned:
        wrong = [text for each in (cache, other, cache) for text in wrong_counts(each)]
    assert wrong == []
    assert len(warned) == 1
    other.close()
    cache.close()
    assert cache.info().entries == len(TEXTS)


def test_a_database_without_the_tables_is_replaced(cache: CountCache) -> None:
    changed = sqlite3.connect(database(fill(cache)))
    changed.execute("DROP TABLE earlier")
    changed.close()
    with pytest.warns(UserWarning, match="was damaged"):
        assert wrong_counts(cache) == []
    cache.close()
    assert cache.info().entries == len(TEXTS)


@given(st.data())
@pytest.mark.filterwarnings("ignore:the cache of token counts was damaged")
def test_no_damage_changes_a_count(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = fill(CountCache(Path(folder)), TEXTS[:300])
        path = database(cache)
        content = bytearray(path.read_bytes())
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=20)):
            content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        assert wrong_counts(cache) == []
        cache.close()


@pytest.mark.parametrize("value", ["value + 1", "-value", "'text'", "1.5", "zeroblob(4)"])
def test_a_changed_value_is_counted_again(value: str, cache: CountCache) -> None:
    changed = sqlite3.connect(database(fill(cache)))
    with changed:
        changed.execute(f"UPDATE recent SET value = {value}")
    changed.close()
    assert wrong_counts(cache) == []


def test_a_folder_that_cannot_be_written_only_means_counting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = CountCache(tmp_path / "file" / "counts")
    assert wrong_counts(cache) == []
    assert cache.info().entries == 0


_FULL_DISK = """
import resource, sys
from pathlib import Path
from ctxlab.tokens.count_cache import CountCache
cache = CountCache(Path(sys.argv[1]))
cache.count("chars", "first", len)
cache.save()
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
texts = [str(number) * 9 for number in range(5000)]
print(all(cache.count("chars", text, len) == len(text) for text in texts))
cache.close()
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_full_disk_only_means_counting(cache: CountCache) -> None:
    command = [sys.executable, "-W", "error", "-c", _FULL_DISK, str(cache.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert cache.count("chars", "first", never) == 5


def test_the_database_stays_below_its_maximum_size_and_keeps_what_is_used(tmp_path: Path) -> None:
    cache = CountCache(tmp_path, max_bytes=300_000)
    for number in range(20_000):
        cache.count("chars", f"text {number}", len)
        if number % 1000 == 0:
            cache.count("chars", "used often", len if number == 0 else never)
    cache.close()
    assert database(cache).stat().st_size <= 300_000
    assert 1200 < cache.info().entries < 20_000
    assert cache.count("chars", "text 19999", never) == 10
    cache.close()


def test_a_process_notices_that_another_one_made_room(tmp_path: Path) -> None:
    one, other = (CountCache(tmp_path, max_bytes=300_000) for _ in range(2))
    for number in range(0, 16_000, 2):
        for cache, text in ((one, f"text {number}"), (other, f"text {number + 1}")):
            assert cache.count("chars", text, len) == len(text)
    one.close()
    other.close()
    assert database(one).stat().st_size <= 300_000
    newest = [f"text {number}" for number in range(15_000, 16_000)]
    assert [one.count("chars", text, never) for text in newest] == [*map(len, newest)]
    one.close()


def test_a_damaged_size_does_not_remove_the_bound(tmp_path: Path) -> None:
    cache = fill(CountCache(tmp_path, max_bytes=300_000))
    changed = sqlite3.connect(database(cache))
    changed.execute("PRAGMA user_version = 999999")
    changed.close()
    fill(cache, [f"text {number}" for number in range(20_000)])
    assert database(cache).stat().st_size <= 300_000


def test_clearing_deletes_all_files_of_the_cache_and_no_other(cache: CountCache) -> None:
    fill(cache)
    own = cache.folder / "counts-2026.csv"
    own.touch()
    removed = cache.clear()
    assert removed.entries == len(TEXTS)
    assert removed.bytes > 0
    assert list(cache.folder.glob("*")) == [own]
    assert cache.info()[1:3] == (0, 0)


def test_clearing_does_no_harm_to_a_process_with_an_open_database(cache: CountCache) -> None:
    reader = CountCache(fill(cache).folder)
    reader.count("chars", "opened", len)
    reader.save()
    cache.clear()
    cache.count("chars", "new", len)
    cache.save()  # the new database has a write-ahead log, which the other process must not delete
    reader.count("chars", "late", len)
    reader.close()
    late = CountCache(cache.folder)
    assert late.count("chars", "new", never) == 3
    late.close()


def test_copies_in_a_process_share_one_cache(cache: CountCache) -> None:
    one, other = (pickle.loads(pickle.dumps(cache)) for _ in range(2))
    assert one is other


def test_an_empty_variable_or_a_block_turns_the_cache_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_CACHE", str(tmp_path))
    assert find_count_cache() is find_count_cache() is not None
    with without_count_cache():
        assert find_count_cache() is None
    assert find_count_cache() is not None
    monkeypatch.setenv("CTXLAB_CACHE", "")
    assert find_count_cache() is None


def test_importing_ctxlab_or_counting_a_string_creates_no_cache(tmp_path: Path) -> None:
    code = "import ctxlab, ctxlab.tokens.count_cache; ctxlab.count_tokens('word ' * 1000)"
    env = {**os.environ, "CTXLAB_CACHE": str(tmp_path / "counts")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
    assert not (tmp_path / "counts").exists()


@pytest.mark.properties
def test_a_warm_replay_equals_a_cold_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = list(ctxlab.load("bundled:coding-agent"))[:4]
    strategies = ["full", "sliding_window() | panic()", "rolling_summary() | panic()"]
    found = []
    # The counter in memory knows no text in the new processes of the third replay.
    for folder, workers in (("", 1), (tmp_path, 1), (tmp_path, 2)):
        monkeypatch.setenv("CTXLAB_CACHE", str(folder))
        results = ctxlab.evaluate(recordings, strategies, workers=workers, progress=False)
        found.append((results.requests.to_csv(), results.manifest))
    assert found[0] == found[1] == found[2]
    cache = find_count_cache()
    assert cache is not None
    assert cache.info().entries > 0
    cache.close()
