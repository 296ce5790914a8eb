// One session: its title with the title history, its contents with the search at the side, and the conversation.

import { ApiError, get, sessionPath } from "./api.js";
import { conversation } from "./conversation.js";
import { element, fromLog, visibleText } from "./dom.js";
import { counted, timeText } from "./message.js";
import { hitList, searchField, wordsOfSearch } from "./search.js";
import { keys } from "./sessions.js";
import { go, titleList, turnLink, withTitleHistory } from "./title_history.js";
import { virtualList } from "./virtual_list.js";

const PAGE = 100;
const FEW_TURNS = 60;
const REFRESH = 5000;
const SUMMARY_REFRESHES = 24; // after a turn; its summary is written in the background

// place is {label, position}; both may be undefined. onError shows an error instead of the session.
export async function sessionView(id, place, onError) {
  let session = await get(sessionPath(id));
  const stopped = new AbortController();
  const contents = contentsList(id, session.total_turns, stopped.signal, (label) => { go(turnLink(id, label)); closeSide(); });
  const talk = conversation({
    id, totalTurns: session.total_turns, onError,
    onPlace: (label, isScrolled) => {
      contents.select(label);
      if (isScrolled) history.replaceState(null, "", turnLink(id, label));
    },
  });
  const found = element("div", { class: "results", hidden: true });
  const search = searchField({
    label: "Search this session", onSearch: showHits, onEnter: (words) => { showHits(words); focusFirstHit(); },
  });
  const titles = element("details", { class: "all-titles" });
  const heading = element("div", { class: "heading" });
  const toggle = element("button", { type: "button", class: "side-toggle", "aria-expanded": "false", "aria-controls": "side", onclick: () => (side.classList.contains("open") ? closeSide() : openSide()) }, "Contents");
  const side = element("aside", { id: "side", class: "side", "aria-label": "Contents and search" },
    search.node, found,
    element("nav", { class: "contents", "aria-label": "Contents" }, contents.node), titles);
  const node = element("div", { class: "session-view" },
    element("header", {}, element("a", { class: "back", href: "#/" }, "← Sessions"), heading, toggle),
    side, talk.node,
    element("footer", { class: "small" }, keys([["j k", "next, previous turn"], ["/", "search"], ["Enter", "open"], ["Esc", "back"]])));
  let refreshesLeft = SUMMARY_REFRESHES;
  let searching = null;
  let query = "";

  function describe() {
    const name = session.session_name || "Untitled session";
    document.title = `${visibleText(name)} – ctxlab`;
    heading.replaceChildren(
      withTitleHistory(id, name, element("h1", {}, fromLog(name))),
      element("p", { class: "small" }, timeText(session.updated), ` · ${counted(session.total_turns, "turn")}, ${counted(session.total_messages, "message")} · `,
        session.model ? fromLog(session.model) : "no model", ` · ${session.status} · `, fromLog(session.workspace)));
    titles.replaceChildren(element("summary", {}, `Title history (${session.title_history.length})`), titleList(id, session.title_history));
  }

  function showHits(words) {
    if (words === query) return;
    query = words;
    searching?.abort();
    searching = new AbortController();
    found.hidden = !words;
    side.classList.toggle("searching", Boolean(words));
    found.replaceChildren(words ? hitList({ path: `${sessionPath(id)}/search`, query: words, sessionId: id, signal: searching.signal }) : "");
    if (!words) contents.reveal();
  }

  function focusFirstHit() {
    const first = found.querySelector("a");
    if (first) first.focus();
    else if (query) setTimeout(() => found.querySelector("a")?.focus(), 300);
  }

  function openSide() {
    side.classList.add("open");
    toggle.setAttribute("aria-expanded", "true");
    contents.reveal();
  }

  function closeSide() {
    const wasOpen = side.classList.contains("open");
    side.classList.remove("open");
    toggle.setAttribute("aria-expanded", "false");
    return wasOpen;
  }

  async function refresh() {
    if (document.visibilityState !== "visible") return;
    try {
      const now = await get(sessionPath(id), {}, stopped.signal);
      const hasMore = now.total_messages !== session.total_messages;
      const isSame = !hasMore && now.updated === session.updated && now.session_name === session.session_name;
      session = now;
      if (!isSame) describe();
      if (hasMore) refreshesLeft = SUMMARY_REFRESHES;
      else if (refreshesLeft-- > 0) contents.renew();
      if (!hasMore) return;
      contents.grow(now.total_turns);
      await talk.grow(now.total_turns);
    } catch (error) {
      if (error instanceof ApiError && error.status) onError(error);
    }
  }

  const timer = setInterval(refresh, REFRESH);
  const resized = new ResizeObserver(() => { contents.redraw(); talk.redraw(); });
  resized.observe(side);
  resized.observe(talk.node);
  describe();

  async function show({ label, position }) {
    if (!session.total_turns) {
      talk.showEmpty();
      return;
    }
    closeSide();
    await talk.show(label ?? session.total_turns, position, position === undefined ? [] : wordsOfSearch());
  }

  requestAnimationFrame(() => { contents.redraw(); show(place); });
  return {
    id, node, search: search.input, show, main: talk.node,
    stop: () => { clearInterval(timer); resized.disconnect(); searching?.abort(); stopped.abort(); talk.stop(); },
    openSearch: openSide,
    step: (by) => {
      // The address changes at once, the conversation only when the turn is loaded.
      const now = Number(location.hash.match(/\/turn\/(\d+)/)?.[1] ?? talk.current());
      const turn = Math.min(session.total_turns, Math.max(1, now + by));
      if (turn !== now) go(turnLink(id, turn));
    },
    escape: () => {
      if (search.input.value) {
        search.input.value = "";
        showHits("");
        return true;
      }
      return closeSide();
    },
  };
}

// The contents as a list of turns. Steps are listed below each turn of a short session, else below the chosen turn.
// Entries and steps are loaded in pages when their rows are drawn.
function contentsList(id, totalTurns, signal, onChoose) {
  const entries = new Map(), steps = new Map(), asked = new Set();
  let chosen = "", rows = [];
  const list = virtualList({ rows, label: "Contents", drawRow, onSelect: (row) => onChoose(row.label) });
  list.node.classList.add("contents-list");

  const turnOf = (label) => Number(label.split(".")[0]);
  const newestPage = () => Math.floor((totalTurns - 1) / PAGE);

  function makeRows() {
    rows = [];
    for (let turn = 1; turn <= totalTurns; turn++) {
      const total = entries.get(turn)?.total_steps ?? 1;
      rows.push({ turn, label: String(turn) });
      if (total < 2 || !(turn === turnOf(chosen) || totalTurns <= FEW_TURNS)) continue;
      for (let step = 1; step <= total; step++) rows.push({ turn, step, label: `${turn}.${step}` });
    }
    list.setRows(rows);
  }

  function drawRow(row) {
    if (row.step) {
      const line = steps.get(row.label);
      if (line === undefined) loadSteps(row.turn, Math.floor((row.step - 1) / PAGE));
      return [element("span", { class: "place step-place" }, row.label), element("span", { class: "text" }, line === undefined ? "…" : fromLog(line))];
    }
    const entry = entries.get(row.turn);
    if (!entry) loadTurns(Math.floor((row.turn - 1) / PAGE));
    return [element("span", { class: "place" }, row.label), element("span", { class: "text turn-text" }, entry ? fromLog(entry.summary) : "…"),
      entry?.total_steps > 1 && totalTurns > FEW_TURNS && row.turn !== turnOf(chosen) ? element("span", { class: "small" }, counted(entry.total_steps, "step")) : null];
  }

  const loadTurns = (page) => load(String(page), { start: page * PAGE + 1, limit: PAGE, max_steps: PAGE });
  const loadSteps = (turn, page) => load(`${turn}.${page}`, { start: turn, limit: 1, first_step: page * PAGE + 1, max_steps: PAGE });

  async function load(name, query) {
    if (asked.has(name)) return;
    asked.add(name);
    try {
      const answer = await get(`${sessionPath(id)}/toc`, query, signal);
      for (const entry of answer.entries) {
        entries.set(entry.turn, entry);
        for (const step of entry.steps) steps.set(step.label, step.headline);
      }
      const isSeen = list.seesSelected(); // otherwise the reader has scrolled away from it
      makeRows();
      mark(isSeen);
    } catch (error) {
      asked.delete(name);
      if (!(error instanceof ApiError) && error.name !== "AbortError") throw error;
    }
  }

  function mark(reveals = true) {
    const place = rows.findIndex((row) => row.label === chosen);
    list.select(place < 0 ? rows.findIndex((row) => row.turn === turnOf(chosen)) : place, reveals);
  }

  makeRows();
  return {
    node: list.node, redraw: list.redraw, reveal: mark,
    select: (label) => { chosen = label; makeRows(); mark(); },
    // Load the newest turns again.
    renew: () => {
      asked.delete(String(newestPage()));
      if (totalTurns) loadTurns(newestPage());
    },
    grow: (turns) => {
      for (const name of [...asked]) if (name.startsWith(`${totalTurns}.`) || name === String(newestPage())) asked.delete(name);
      entries.delete(totalTurns);
      totalTurns = turns;
      makeRows();
      mark();
    },
  };
}
