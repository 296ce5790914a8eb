// The list of all sessions, newest first, and the search in all sessions.

import { get } from "./api.js";
import { element, fromLog } from "./dom.js";
import { counted, timeText } from "./message.js";
import { hitList, searchField } from "./search.js";
import { withTitleHistory } from "./title_history.js";

const PAGE = 50;
const MAX_RELOADS = 3; // of the list, if sessions change while it is read

export function sessionsView(query) {
  const stopped = new AbortController();
  const content = element("div", {});
  const search = searchField({
    label: "Search all sessions", value: query,
    onSearch: (words) => { history.replaceState(null, "", words ? `#/search/${encodeURIComponent(words)}` : "#/"); show(words); },
    onEnter: () => content.querySelector("a")?.focus(),
  });
  const node = element("div", { class: "sessions-view" },
    element("header", {}, element("h1", {}, "Sessions"), search.node),
    element("main", { tabindex: -1 }, content),
    element("footer", { class: "small" }, keys([["j k", "next, previous"], ["Enter", "open"], ["/", "search"], ["Esc", "clear"]])));
  let searching = null;

  async function show(words) {
    searching?.abort();
    searching = new AbortController();
    const { signal } = searching;
    stopped.signal.addEventListener("abort", () => searching.abort());
    if (!words) {
      content.replaceChildren(sessionList({ signal }));
      return;
    }
    content.replaceChildren(
      element("section", { "aria-label": "Sessions by title" }, sessionList({ q: words, signal })),
      element("section", { "aria-label": "Messages" }, element("h2", {}, "Messages"), hitList({ path: "/api/v1/search", query: words, signal })));
  }

  show(query);
  return {
    node, search: search.input, title: "Sessions",
    stop: () => stopped.abort(),
    step: (by) => moveFocus(content, by),
    escape: () => {
      if (!search.input.value) return false;
      search.input.value = "";
      history.replaceState(null, "", "#/");
      show("");
      return true;
    },
  };
}

export function keys(pairs) {
  return pairs.map(([key, what]) => [element("kbd", {}, key), ` ${what}  `]);
}

function moveFocus(content, by) {
  const links = [...content.querySelectorAll("a.title, .hits a")];
  const now = links.indexOf(document.activeElement);
  links[now < 0 ? 0 : Math.min(links.length - 1, Math.max(0, now + by))]?.focus();
}

function sessionList({ q = "", signal }) {
  const list = element("ol", { class: "session-list" });
  const said = element("p", { class: "small", role: "status" }, "Loading …");
  const more = element("button", { type: "button", hidden: true, onclick: () => load(shown.size + PAGE) }, "More sessions");
  const shown = new Set();
  let total = 0;

  async function load(wanted) {
    more.disabled = true;
    try {
      for (let reloads = 0; ;) {
        const page = await get("/api/v1/sessions", { q, limit: PAGE, offset: shown.size }, signal);
        const moved = page.total_sessions !== total || page.sessions.some((each) => shown.has(each.session_id));
        total = page.total_sessions;
        if (moved && shown.size && reloads++ < MAX_RELOADS) {
          shown.clear();
          list.replaceChildren();
          continue;
        }
        const added = page.sessions.filter((each) => !shown.has(each.session_id));
        list.append(...added.map(sessionRow));
        added.forEach((each) => shown.add(each.session_id));
        if (!added.length || shown.size >= Math.min(wanted, total)) break;
      }
      more.hidden = shown.size >= total;
      said.textContent = describe(total, q);
    } catch (error) {
      if (error.name !== "AbortError") said.textContent = error.message;
    }
    more.disabled = false;
  }

  load(PAGE);
  return element("div", {}, said, list, more);
}

function describe(total, q) {
  if (q) return total ? `${counted(total, "session")} with these words in the title` : "No title contains all of these words.";
  return total ? `${counted(total, "session")}, the last changed first` : "There is no session yet. ctxlab chat starts one.";
}

function sessionRow(session) {
  const name = session.session_name || "Untitled session";
  const link = element("a", { class: "title", href: `#/session/${encodeURIComponent(session.session_id)}` }, fromLog(name));
  return element("li", {}, withTitleHistory(session.session_id, name, link),
    element("p", { class: "small" }, timeText(session.updated), ` · ${counted(session.total_turns, "turn")} · `,
      session.model ? fromLog(session.model) : "no model", session.status === "closed" ? null : ` · ${session.status}`,
      " · ", fromLog(session.workspace)));
}
