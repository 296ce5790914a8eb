// A field to search with, and the list of the messages that were found.

import { ApiError, get } from "./api.js";
import { element, fromLog } from "./dom.js";
import { markWords, queryWords } from "./markdown.js";
import { counted, timeText } from "./message.js";
import { turnLink } from "./title_history.js";

const DELAY = 200;
const PAGE = 20;
let markedWords = [];

// Words of the last search, which are marked in the message that a hit leads to.
export function wordsOfSearch() {
  return markedWords;
}

export function searchField({ label, value = "", onSearch, onEnter = () => {} }) {
  let timer = 0;
  const input = element("input", {
    type: "search", value, "aria-label": label, placeholder: label, autocomplete: "off", spellcheck: "false", maxlength: 1000,
    oninput: () => { clearTimeout(timer); timer = setTimeout(() => onSearch(input.value.trim()), DELAY); },
    onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      clearTimeout(timer);
      onEnter(input.value.trim());
    },
  });
  return { node: element("div", { class: "search", role: "search" }, input), input };
}

// Show the hits of a search page by page. sessionId is null if all sessions are searched.
export function hitList({ path, query, sessionId = null, signal, onFound = () => {} }) {
  const words = queryWords(query);
  const list = element("ol", { class: "hits" });
  const said = element("p", { class: "small", role: "status" }, "Searching …");
  const more = element("button", { type: "button", hidden: true, onclick: () => load() }, "More results");
  let offset = 0;

  async function load() {
    more.disabled = true;
    try {
      const answer = await get(path, { q: query, limit: PAGE + (sessionId ? 1 : 0), offset }, signal);
      const hits = answer.results.slice(0, PAGE);
      list.append(...hits.map((hit) => element("li", {}, hitLink(hit, sessionId ?? hit.session_id, words, sessionId === null))));
      offset += hits.length;
      more.hidden = sessionId ? answer.results.length <= PAGE : answer.next_offset === null;
      said.textContent = offset ? `${counted(offset, "message")}${more.hidden ? "" : " so far"}` : "No message contains all of these words.";
      onFound(offset);
    } catch (error) {
      if (error instanceof ApiError) said.textContent = error.message;
      else if (error.name !== "AbortError") throw error;
    }
    more.disabled = false;
  }

  load();
  return element("div", { class: "found" }, said, list, more);
}

function hitLink(hit, id, words, withSession) {
  return element("a", { href: turnLink(id, hit.label, hit.position), onclick: () => { markedWords = words; } },
    element("span", { class: "small" }, withSession ? [fromLog(hit.session_name || "Untitled session"), " · "] : null,
      `${hit.label} · ${hit.role}`, hit.created ? " · " : null, timeText(hit.created)),
    element("span", { class: "snippet", dir: "auto" }, markWords(hit.snippet, words)));
}
