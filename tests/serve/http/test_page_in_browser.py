"""Tests of the session page in a real browser: read, search and jump, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from http_serving import serving

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.sqlite.store import SqliteStore

pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
TOKEN = "a-token/with=signs"
LINK = "#token=a-token%2Fwith%3Dsigns"
HOSTILE = (
    "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>]]>"
    "<svg onload='window.ran=1'>"
    "<iframe src='javascript:parent.ran=1'></iframe><a href='javascript:window.ran=1'>a</a>"
    "[b](javascript:window.ran=1) ![c](http://127.0.0.1:9/c.png) \u202e\u2066"
)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""


def parser_session(store: SqliteStore) -> None:
    """Store a session of 12 turns with two steps each and three titles."""
    store.create(id="parser", model="gpt-5-mini")
    for n in range(1, 13):
        call = ToolCall(f"c{n}", "read_file", json.dumps({"path": f"src/file{n}.py"}))
        store.append(
            "parser",
            Message("user", f"Question {n} on the parser\n" + "More lines.\n" * 12),
            Message("assistant", "I read.", tool_calls=(call,)),
            Message("tool", f"content{n} of the file\n" * 30, tool_call_id=call.id),
            Message("assistant", f"The **answer** {n} is `token{n}`.\n\n```\ncode{n}()\n```"),
        )
    store.retitle("parser", "Parser errors", 5)
    store.retitle("parser", "Parser docs", 9)


def hostile_session(store: SqliteStore) -> None:
    store.create(id="hostile", model=HOSTILE)
    written = f"# {HOSTILE}\n**{HOSTILE}** `{HOSTILE}`\n```{HOSTILE}\n{HOSTILE}\n```"
    call = ToolCall(HOSTILE, f"read{HOSTILE}", json.dumps({HOSTILE: HOSTILE}))
    urls = ("javascript:window.ran=1", "http://127.0.0.1:9/x.png", "data:text/html,<script>",
            "data:image/svg+xml;base64,PHN2Zy8+", PIXEL)  # fmt: skip
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    others = ({"type": HOSTILE, HOSTILE: HOSTILE}, {"type": "text", "text": HOSTILE})
    store.append(
        "hostile",
        Message("user", (*others, *images)),
        Message("assistant", written, tool_calls=(call,)),
        Message("tool", HOSTILE, tool_call_id=HOSTILE, name=HOSTILE),
        Message("assistant", HOSTILE, tool_calls=(ToolCall("c", "f", HOSTILE),)),
    )  # fmt: skip
    store.retitle("hostile", HOSTILE, 1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    store = SqliteStore(folder, fsync="never")
    hostile_session(store)
    for number in range(60):
        id = store.create(id=f"small-{number}", model="gpt-5").id
        store.append(id, Message("user", f"Topic {number}: walrus"), Message("assistant", "Yes."))
    parser_session(store)
    store.close()
    return folder


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with serving(workspace, token=TOKEN) as client:
        yield str(client.base_url)


@dataclass
class Tab:
    """Page of the browser, with everything that it asked for."""

    page: Any
    address: str
    urls: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, fragment: str = LINK) -> Any:
        self.page.goto(f"{self.address}/{fragment}")
        return self.page

    def open_session(self, id: str, place: str = "") -> Any:
        self.open()
        self.page.wait_for_selector(".session-list a")
        self.page.goto(f"{self.address}/#/session/{id}{place}")
        self.page.wait_for_selector(".page .message")
        return self.page

    def api_urls(self) -> list[str]:
        return [url for url in self.urls if "/api/" in url]


def open_tab(browser: Any, address: str, **options: Any) -> Tab:
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 800}, **options})
    tab = Tab(page, address)
    page.add_init_script(WATCH)
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    page.on("request", lambda asked: tab.urls.append(asked.url))
    return tab


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Tab]:
    made = open_tab(browser, address)
    yield made
    violations = made.page.evaluate("window.violations")
    ran = made.page.evaluate("window.ran")
    made.page.close()
    assert made.errors == violations == []
    assert ran is None
    other = [url for url in made.urls if not url.startswith((f"{address}/", "data:"))]
    assert other == []


def until_seen(page: Any, turn: int) -> None:
    """Wait until the heading of a turn is at the top of the conversation."""
    page.wait_for_function(
        """(turn) => {
          const page = document.querySelector(`.page[data-turn="${turn}"]`);
          const main = document.querySelector(".conversation");
          const top = (node) => node.getBoundingClientRect().top;
          return page && Math.abs(top(page) - top(main)) < 40;
        }""",
        arg=turn,
    )


# --- token ----------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_shown_but_how_to_get_it(tab: Tab) -> None:
    for fragment in ("", "#/", "#/session/parser", "#/search/walrus", "#token="):
        page = tab.open(fragment)
        page.wait_for_selector(".notice")
        assert "#token=" in page.locator(".notice").inner_text()
        for hidden in ("parser", "Topic", "walrus"):
            assert hidden not in page.locator("body").inner_text()
        page.reload()
    assert tab.api_urls() == []


@pytest.mark.parametrize("token", ["wrong", "%C3%A4", "a%0Ab", "%", "%22><script>ran=1</script>"])
def test_with_a_wrong_token_a_sentence_is_shown(tab: Tab, token: str) -> None:
    page = tab.open(f"#token={token}")
    page.wait_for_selector(".notice")
    assert "token" in page.locator(".notice").inner_text()
    assert "Topic" not in page.locator("body").inner_text()
    assert page.evaluate("sessionStorage.length") == 0


def test_the_token_leaves_the_address_bar_and_is_sent_only_as_a_header(tab: Tab) -> None:
    sent: list[Any] = []
    tab.page.on("request", lambda asked: sent.append(asked) if "/api/" in asked.url else None)
    page = tab.open()
    page.wait_for_selector(".session-list a")
    assert page.url == f"{tab.address}/#/"
    assert {each.headers["authorization"] for each in sent} == {f"Bearer {TOKEN}"}
    assert not any("a-token" in url for url in tab.urls)
    assert not any(each.headers.get("referer") for each in sent)
    page.reload()
    page.wait_for_selector(".session-list a")
    assert page.context.cookies() == []
    assert page.evaluate("localStorage.length") == 0


# --- sessions and contents ------------------------------------------------------------------------


def test_sessions_are_listed_newest_first_and_opened_by_keyboard(tab: Tab) -> None:
    """Seed 003, page: sessions with title, time, turns and model."""
    page = tab.open()
    page.wait_for_selector(".session-list a.title")
    assert page.locator(".session-list a.title").first.inner_text() == "Parser docs"
    about = page.locator(".session-list li").first.inner_text()
    assert "12 turns" in about
    assert "gpt-5-mini" in about
    assert page.locator(".session-list time").first.get_attribute("datetime").endswith("Z")
    assert page.locator(".session-list > li").count() == 50
    page.get_by_role("button", name="More sessions").click()
    page.wait_for_function("() => document.querySelectorAll('.session-list > li').length === 62")
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_selector(".session-view")
    assert "/session/parser" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector(".session-list")


def test_sessions_that_change_while_they_are_listed_are_shown_once_each(
    browser: Any, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path)
    for number in range(120):
        store.create(id=f"s{number}", title=f"Title {number}")
    with serving(tmp_path, token=TOKEN) as client:
        tab = open_tab(browser, str(client.base_url))
        page = tab.open()
        page.wait_for_function(
            "() => document.querySelectorAll('.session-list > li').length === 50"
        )
        for number in range(110, 120):
            store.delete(f"s{number}")
        store.append("s0", Message("user", "Go on"))
        for count in (100, 110):
            page.get_by_role("button", name="More sessions").click()
            page.wait_for_function(
                f"() => document.querySelectorAll('.session-list > li').length === {count}"
            )
        shown = page.locator(".session-list a.title").all_inner_texts()
        assert shown == [f"Title {number}" for number in (0, *range(109, 0, -1))]
        assert not page.get_by_role("button", name="More sessions").is_visible()
        page.close()
        assert tab.errors == []
    store.close()


def test_a_click_on_a_number_of_the_contents_jumps_to_the_interaction(tab: Tab) -> None:
    """Seed 003, chat session view: click on a turn number jumps to that interaction."""
    page = tab.open_session("parser")
    contents = page.get_by_role("listbox", name="Contents")
    contents.locator(".row .place", has_text=re.compile(r"^8$")).click()
    until_seen(page, 8)
    assert page.url.endswith("#/session/parser/turn/8")
    assert contents.locator(".row.selected .place").inner_text() == "8"
    assert contents.locator(".row", has_text=re.compile(r"^8\.1\s*read_file")).count() == 1
    page.evaluate("() => { document.querySelector('.conversation').scrollTop = 0; }")
    contents.locator(".row .place", has_text=re.compile(r"^8$")).click()
    until_seen(page, 8)
    contents.locator(".row .place", has_text=re.compile(r"^8\.2$")).click()
    page.wait_for_selector(".message.target")
    assert "answer 8" in page.locator(".message.target").inner_text()


def test_a_deep_link_shows_its_interaction_and_j_and_k_move(tab: Tab) -> None:
    page = tab.open_session("parser", "/turn/3")
    until_seen(page, 3)
    page.keyboard.press("j")
    until_seen(page, 4)
    page.keyboard.press("k")
    page.keyboard.press("k")
    until_seen(page, 2)
    assert page.url.endswith("/turn/2")
    page.go_back()
    page.wait_for_url("**/turn/3")
    until_seen(page, 3)
    page.reload()
    page.wait_for_selector(".page .message")
    until_seen(page, 3)


def test_keys_that_are_pressed_quickly_lead_to_the_last_place(tab: Tab) -> None:
    page = tab.open_session("parser", "/turn/1")
    until_seen(page, 1)
    for key in "jjjjjjkkjjjjk":
        page.keyboard.press(key)
    page.wait_for_url("**/turn/8")
    until_seen(page, 8)
    page.wait_for_timeout(300)
    until_seen(page, 8)


def test_tool_calls_and_results_are_folded(tab: Tab) -> None:
    page = tab.open_session("parser", "/turn/3")
    until_seen(page, 3)
    turn = page.locator(".page[data-turn='3']")
    call = turn.locator("details", has_text="Call of read_file")
    result = turn.locator("details", has_text="Result of read_file")
    assert not call.evaluate("(e) => e.open")
    assert "content3" not in turn.inner_text()
    result.locator("summary").click()
    result.locator("pre", has_text="content3 of the file").wait_for()
    call.locator("summary").click()
    call.locator("pre", has_text="src/file3.py").wait_for()
    assert turn.locator("strong").inner_text() == "answer"
    assert turn.locator(".markdown pre").inner_text() == "code3()"


# --- title history --------------------------------------------------------------------------------


def test_the_title_history_is_shown_on_hover_and_a_title_jumps_to_its_part(tab: Tab) -> None:
    """Seed 003, tab view: title history on hover, newest first; a click jumps to that interaction."""
    page = tab.open()
    page.hover(".session-list a.title >> text=Parser docs")
    page.wait_for_selector(".card .titles a")
    titles = page.locator(".card .titles li").all_inner_texts()
    shown = [each.split("\n")[0] for each in titles]
    assert shown == [
        "Parser docs",
        "Parser errors",
        "Question 1 on the parser More lines. More lines. M...",
    ]
    page.click(".card .titles a >> text=Parser errors")
    page.wait_for_selector(".page .message")
    until_seen(page, 5)


def test_the_title_history_opens_by_keyboard_and_closes_with_escape(tab: Tab) -> None:
    page = tab.open_session("parser", "/turn/2")
    button = page.get_by_role("button", name="Title history of Parser docs")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".card .titles a")
    assert button.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.locator(".session-view").count() == 1
    page.locator(".all-titles summary").click()
    page.locator(".all-titles a", has_text="Parser errors").click()
    until_seen(page, 5)


# --- search ---------------------------------------------------------------------------------------


def test_a_hit_in_the_session_jumps_to_the_message_and_marks_the_words(tab: Tab) -> None:
    """Seed 003, page: search in a session."""
    page = tab.open_session("parser", "/turn/12")
    page.keyboard.press("/")
    page.keyboard.type("content4")
    page.wait_for_selector(".results .hits a")
    assert page.locator(".results .hits a").count() == 1
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message mark")
    assert "/turn/4.1/message/14" in page.url
    message = page.locator(".message.target")
    assert message.get_attribute("data-position") == "14"
    assert message.locator("details").evaluate("(e) => e.open")
    assert message.locator("mark").first.inner_text() == "content4"
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.wait_for_selector(".contents-list", state="visible")


def test_a_hit_in_all_sessions_opens_its_session_and_back_leads_to_the_hits(tab: Tab) -> None:
    """Seed 003, page: search in all sessions."""
    page = tab.open()
    page.keyboard.press("/")
    page.keyboard.type("walrus 17")
    page.wait_for_selector(".hits a")
    page.wait_for_function("() => document.querySelectorAll('.session-list > li').length === 1")
    hit = page.locator(".hits a")
    assert hit.count() == 1
    assert "Topic 17" in hit.inner_text()
    assert page.url.endswith("#/search/walrus%2017")
    hit.click()
    page.wait_for_selector(".page .message")
    assert "/session/small-17/turn/1.1/message/0" in page.url
    page.go_back()
    page.wait_for_selector(".hits a")
    assert page.get_by_role("searchbox").input_value() == "walrus 17"


def test_further_hits_are_loaded_on_request(tab: Tab) -> None:
    page = tab.open("#token=" + LINK.partition("=")[2])
    page.wait_for_selector(".session-list a")
    page.get_by_role("searchbox").fill("walrus")
    page.wait_for_function("() => document.querySelectorAll('.hits li').length === 20")
    page.get_by_role("button", name="More results").click()
    page.wait_for_function("() => document.querySelectorAll('.hits li').length === 40")
    page.get_by_role("button", name="More results").click()
    page.wait_for_function("() => document.querySelectorAll('.hits li').length === 60")
    assert not page.get_by_role("button", name="More results").is_visible()


def test_a_search_without_a_hit_says_so(tab: Tab) -> None:
    page = tab.open_session("parser")
    page.get_by_role("searchbox").fill("unicorn")
    page.wait_for_selector("text=No message contains all of these words.")


# --- hostile and long sessions --------------------------------------------------------------------


def test_a_hostile_title_and_transcript_run_nothing_and_fetch_nothing(tab: Tab) -> None:
    page = tab.open()
    page.wait_for_selector(".session-list a.title")
    page.get_by_role("searchbox").fill("script")
    page.wait_for_selector(".hits a")
    page.hover(".session-list a.title")
    page.wait_for_selector(".card .titles a")
    page.locator(".hits a").last.click()
    page.wait_for_selector(".page .message")
    page.evaluate("() => document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    page.wait_for_function(
        "() => document.querySelectorAll('details > div, details > pre').length > 3"
    )
    assert page.locator(".message pre").count() >= 4
    shown = page.locator(".conversation").inner_text()
    assert "<script>window.ran=1</script>" in shown
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.locator("body").inner_text())
    assert "⟨U+202E⟩" in shown
    assert page.title().startswith("</script><script>")
    assert page.locator("iframe, script:not([src='/page/main.js']), svg").count() == 0
    assert [each.get_attribute("src") for each in page.locator("img").all()] == [PIXEL]
    page.wait_for_function("() => document.querySelector('img').naturalWidth === 1")
    links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    assert links
    assert all(link.startswith("#/") for link in links)


def test_the_policy_stops_a_script_and_a_request_that_got_into_the_page(
    browser: Any, address: str
) -> None:
    tab = open_tab(browser, address)
    page = tab.open()
    page.wait_for_selector(".session-list a")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = 1";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "http://127.0.0.1:9/x.png";
          document.body.append(image);
        }"""
    )
    page.wait_for_function("() => window.violations.length === 2")
    assert page.evaluate("window.ran") is None
    page.close()


@pytest.fixture(scope="module")
def long_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a session of 3,000 turns and a session with one turn of 6,001 messages."""
    folder = tmp_path_factory.mktemp("long")
    store = SqliteStore(folder, fsync="never")
    messages = [
        message
        for n in range(1, 3001)
        for message in (
            Message("user", f"Question {n} " + "long " * 30),
            Message("assistant", f"Answer {n}\n" * 9),
        )
    ]
    store.append(store.create(id="turns").id, *messages)
    steps = [
        message
        for n in range(1, 3001)
        for message in (
            Message("assistant", f"Step {n}", tool_calls=(ToolCall(f"c{n}", "run", "{}"),)),
            Message("tool", f"result{n} of the step", tool_call_id=f"c{n}"),
        )
    ]
    store.append(store.create(id="steps").id, Message("user", "Go"), *steps)
    store.close()
    with serving(folder, token=TOKEN) as client:
        yield str(client.base_url)


@pytest.fixture
def long_tab(browser: Any, long_address: str) -> Iterator[Tab]:
    made = open_tab(browser, long_address)
    yield made
    made.page.close()
    assert made.errors == []


def test_a_long_session_is_loaded_in_pages_around_the_interaction(long_tab: Tab) -> None:
    page = long_tab.open_session("turns", "/turn/1500")
    until_seen(page, 1500)
    assert page.locator(".page").count() < 45
    assert page.locator(".contents-list .row").count() < 100
    contents = page.get_by_role("listbox", name="Contents")
    selected = contents.locator(".row.selected")
    selected.locator("text=Question 1500").wait_for()
    assert selected.get_attribute("aria-posinset") == "1500"
    rows = page.locator(".contents-list .row").evaluate_all(
        "(rows) => rows.filter((row) => row.scrollHeight > row.clientHeight).length"
    )
    assert rows == 0
    main = page.locator(".conversation")
    box = main.bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 300)
    for _ in range(60):
        page.mouse.wheel(0, 700)
        page.wait_for_timeout(15)
    page.wait_for_function("() => Number(location.hash.match(/turn.(\\d+)/)[1]) > 1550")
    assert page.locator(".page").count() < 45
    turns = page.evaluate(
        "[...document.querySelectorAll('.page')].map((p) => Number(p.dataset.turn))"
    )
    assert turns == list(range(turns[0], turns[0] + len(turns)))
    contents.focus()
    for turn in (700, 7):  # loading the entries does not scroll back to the chosen turn
        contents.evaluate("(list, turn) => { list.scrollTop = 26 * (turn - 1); }", turn)
        contents.locator(".row", has_text=f"Question {turn} ").first.wait_for()
        page.wait_for_timeout(300)
        assert contents.locator(".row", has_text=f"Question {turn} ").count()
    contents.locator(".row", has_text="Question 7 ").first.click()
    until_seen(page, 7)


def test_scrolling_up_keeps_the_place_while_earlier_turns_are_added(long_tab: Tab) -> None:
    page = long_tab.open_session("turns", "/turn/2000")
    until_seen(page, 2000)
    box = page.locator(".conversation").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 300)
    for _ in range(60):
        page.mouse.wheel(0, -700)
        page.wait_for_timeout(15)
    page.wait_for_function("() => Number(location.hash.match(/turn.(\\d+)/)[1]) < 1950")
    turns = page.evaluate(
        "[...document.querySelectorAll('.page')].map((p) => Number(p.dataset.turn))"
    )
    assert turns == list(range(turns[0], turns[0] + len(turns)))
    assert len(turns) < 45


def test_a_hit_in_a_long_turn_jumps_to_the_message(long_tab: Tab) -> None:
    page = long_tab.open_session("steps", "/turn/1")
    page.keyboard.press("/")
    page.keyboard.type("result2500")
    page.wait_for_selector(".results .hits a")
    page.locator(".results .hits a").click()
    page.wait_for_selector(".message.target mark")
    assert "/turn/1.2500/message/5000" in page.url
    assert page.locator(".message.target").get_attribute("data-position") == "5000"
    assert page.locator(".message").count() < 45 * 50
    page.keyboard.press("Escape")
    selected = page.locator(".contents-list .row.selected")
    selected.locator(".text", has_text="run").wait_for()
    assert selected.locator(".place").inner_text() == "1.2500"
    page.goto(f"{long_tab.address}/#/session/steps/turn/1.2000")
    page.wait_for_selector(".message.target >> text=Step 2000")


def test_a_session_that_grows_is_shown_with_its_new_turn_and_title(
    browser: Any, tmp_path: Path
) -> None:
    """Seed 003, chat session view: the title updates as the conversation evolves."""
    store = SqliteStore(tmp_path)
    store.create(id="a")
    with serving(tmp_path, token=TOKEN) as client:
        tab = open_tab(browser, str(client.base_url))
        page = tab.open()
        page.wait_for_selector(".session-list a")
        page.goto(f"{tab.address}/#/session/a")
        page.wait_for_selector("text=This session has no messages yet.")
        store.append("a", Message("user", "Begin"), Message("assistant", "Yes."))
        page.wait_for_selector(".page[data-turn='1'] >> text=Yes.")
        page.wait_for_selector(".contents-list .row >> text=Begin")
        store.append("a", Message("user", "Continue"), Message("assistant", "Done."))
        store.retitle("a", "Another topic", 2)
        page.wait_for_selector(".page[data-turn='2'] >> text=Done.")
        page.wait_for_selector("h1 >> text=Another topic")
        page.wait_for_selector(".contents-list .row >> text=Continue")
        store.save_turn_summary("a", 2, "A summary that was written later")
        page.wait_for_selector(".contents-list .row >> text=A summary that was written later")
        assert not page.locator("text=This session has no messages yet.").count()
        page.close()
        assert tab.errors == []
    store.close()


def test_a_session_that_does_not_exist_is_a_sentence(tab: Tab) -> None:
    page = tab.open()
    page.wait_for_selector(".session-list a")
    page.goto(f"{tab.address}/#/session/unknown")
    page.wait_for_selector("text=There is no such session or turn.")


# --- appearance -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_text_is_readable_in_each_theme_and_width(
    browser: Any, address: str, scheme: str, width: int
) -> None:
    tab = open_tab(browser, address, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = tab.open_session("parser", "/turn/5")
    until_seen(page, 5)
    if width < 600:
        assert not page.locator(".side").is_visible()
        page.get_by_role("button", name="Contents").click()
        page.locator(".contents-list .row .place", has_text=re.compile(r"^3$")).click()
        until_seen(page, 3)
        assert not page.locator(".side").is_visible()
    for fragment in ("#/session/parser/turn/5", "#/", "#/search/walrus"):
        page.goto(f"{address}/{fragment}")
        page.wait_for_selector(".hits a" if "search" in fragment else "a.title, .page .message")
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1]
        assert low_contrast(page) == []
    page.close()


def low_contrast(page: Any) -> list[Any]:
    """Return the texts whose contrast with their background is below 4.5 to 1."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => {
          const number = (text) => text.match(/[\\d.]+/g).map(Number);
          const light = (c) => {
            const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const ground = (node) => {
            for (; node; node = node.parentElement) {
              const found = number(getComputedStyle(node).backgroundColor);
              if (found[3] !== 0) return light(found);
            }
            return 1;
          };
          const low = [];
          const tags = "p, a, li, h1, h2, span, summary, button, kbd, mark";
          for (const each of document.querySelectorAll(tags)) {
            if (!each.textContent.trim() || !each.checkVisibility()) continue;
            const [text, behind] = [light(number(getComputedStyle(each).color)), ground(each)];
            const ratio = (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
            if (ratio < 4.5) low.push([each.tagName, each.className, ratio]);
          }
          return low;
        }"""
    )


def test_everything_has_a_name_and_a_landmark(tab: Tab) -> None:
    page = tab.open_session("parser", "/turn/2")
    for role, name in (
        ("main", "Conversation"),
        ("complementary", "Contents and search"),
        ("navigation", "Contents"),
        ("listbox", "Contents"),
        ("feed", "Conversation"),
    ):
        assert page.get_by_role(role, name=name).count() == 1, role
    assert page.get_by_role("search").count() == 1
    assert page.get_by_role("banner").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    page.goto(f"{tab.address}/#/")
    page.wait_for_selector(".session-list a")
    for role in ("main", "search", "banner", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    for each in page.locator("button, input, a").all():
        assert each.get_attribute("aria-label") or each.inner_text().strip()
