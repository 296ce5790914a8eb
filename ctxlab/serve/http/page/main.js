// The page on which sessions are read: it shows what the fragment of the URL names, and handles the keys.

import { takeToken, whenRefused } from "./api.js";
import { element } from "./dom.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";
import { closeTitleHistory } from "./title_history.js";

const HOW = "Open the address that “ctxlab serve http” printed when it started. It ends with #token= and the token of the server.";
const OWN = "If you chose the token yourself, write #token= and your token at the end of the address.";
const root = document.getElementById("view");
let view = null;
let shown = 0;

function showSentences(...sentences) {
  view?.stop?.();
  view = null;
  document.title = "Sessions – ctxlab";
  root.replaceChildren(element("main", { class: "notice" }, element("h1", {}, "Sessions"), sentences.map((each) => element("p", {}, each))));
}

function showError(error) {
  if (error.status === 401) return; // whenRefused has shown it
  if (error.status === 404) showSentences("There is no such session or turn. It may have been deleted.", link());
  else showSentences(error.message, link());
}

function link() {
  return element("a", { href: "#/" }, "All sessions");
}

// #/, #/search/WORDS, #/session/ID, #/session/ID/turn/3.2 and #/session/ID/turn/3.2/message/57
function readRoute() {
  const [, kind, value = "", , label, , position] = location.hash.split("/");
  const decoded = decode(value);
  if (kind !== "session") return { kind: "sessions", query: kind === "search" ? decoded : "" };
  return { kind, id: decoded, place: { label: /^\d+(\.\d+)?$/.test(label) ? label : undefined, position: /^\d+$/.test(position) ? Number(position) : undefined } };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function showRoute() {
  if (!takeToken()) {
    showSentences("Sessions are shown only with the token of the server.", HOW, OWN);
    return;
  }
  const number = ++shown;
  const route = readRoute();
  closeTitleHistory();
  if (route.kind === "session" && view?.id === route.id) {
    await view.show(route.place);
    return;
  }
  let next;
  try {
    next = route.kind === "session" ? await sessionView(route.id, route.place, showError) : sessionsView(route.query);
  } catch (error) {
    if (number === shown) showError(error);
    return;
  }
  if (number !== shown) {
    next.stop();
    return;
  }
  view?.stop?.();
  view = next;
  if (view.title) document.title = `${view.title} – ctxlab`;
  root.replaceChildren(view.node);
  document.getElementById("said").textContent = document.title;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const isTyping = event.target.matches?.("input, textarea, select");
  if (event.key === "Escape") {
    event.preventDefault();
    if (closeTitleHistory() || view?.escape()) return;
    if (isTyping) event.target.blur();
    else if (view?.id !== undefined) location.hash = "#/";
  } else if (isTyping || !view) return;
  else if (event.key === "/") {
    event.preventDefault();
    view.openSearch?.();
    view.search.focus();
    view.search.select();
  } else if (event.key === "j" || event.key === "k") {
    event.preventDefault();
    view.step(event.key === "j" ? 1 : -1);
  }
}

whenRefused(() => {
  shown++;
  showSentences("The server refused the token. It may be from an earlier start of the server.", HOW, OWN);
});
addEventListener("hashchange", showRoute);
addEventListener("keydown", onKey);
addEventListener("click", (event) => {
  if (event.target.closest?.("a")?.getAttribute("href") === location.hash) showRoute();
});
showRoute();
