// The titles that a session had, newest first. A click on a title leads to the interaction in which it was set.

import { get, sessionPath } from "./api.js";
import { element, fromLog } from "./dom.js";
import { timeText } from "./message.js";

const DELAY = 250;
let closeOpen = () => false;

export function turnLink(id, label, position) {
  const place = position === undefined ? "" : `/message/${position}`;
  return `#/session/${encodeURIComponent(id)}/turn/${label}${place}`;
}

// Follow a link. If the address is the same, the place is shown again, because the reader may have scrolled away.
export function go(hash) {
  if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

export function titleList(id, titles) {
  if (!titles.length) return element("p", { class: "quiet" }, "This session has no title yet.");
  return element("ol", { class: "titles" }, titles.map(({ title, turn, changed_at: time }) => element("li", {},
    turn > 0 ? element("a", { href: turnLink(id, turn) }, fromLog(title)) : fromLog(title),
    element("span", { class: "small" }, turn > 0 ? `turn ${turn} · ` : "set by the user · ", timeText(time)))));
}

// A title with its history, which opens on hover and with the button behind the title.
export function withTitleHistory(id, name, title) {
  let isOpen = false, timer = 0;
  const card = element("div", { class: "card", hidden: true, role: "group", "aria-label": "Title history" });
  const button = element("button", {
    type: "button", class: "history-button", "aria-expanded": "false", "aria-label": `Title history of ${name}`,
    title: "Title history", onclick: () => (isOpen ? close() : open()),
  }, "▾");

  async function open() {
    clearTimeout(timer);
    if (isOpen) return;
    closeOpen();
    closeOpen = close;
    isOpen = true;
    button.setAttribute("aria-expanded", "true");
    card.replaceChildren(element("p", { class: "quiet" }, "Loading …"));
    card.hidden = false;
    try {
      const session = await get(sessionPath(id));
      card.replaceChildren(element("p", { class: "small" }, "Titles of this session, newest first"), titleList(id, session.title_history));
    } catch (error) {
      card.replaceChildren(element("p", {}, error.message));
    }
  }

  function close() {
    clearTimeout(timer);
    if (!isOpen) return false;
    isOpen = false;
    closeOpen = () => false;
    button.setAttribute("aria-expanded", "false");
    card.hidden = true;
    return true;
  }

  const later = (action) => () => { clearTimeout(timer); timer = setTimeout(action, DELAY); };
  return element("div", {
    class: "titled", onmouseenter: later(open), onmouseleave: later(close),
    onfocusout: (event) => { if (isOpen && event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) close(); },
    onclick: (event) => { if (event.target.closest("a")) close(); },
  }, title, button, card);
}

// Close the history that is open. Return true if there was one.
export function closeTitleHistory() {
  return closeOpen();
}
