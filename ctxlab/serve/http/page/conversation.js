// The messages of a session, loaded in pages around the turn that is shown. Pages that are far away are removed.

import { ApiError, get, sessionPath } from "./api.js";
import { element } from "./dom.js";
import { counted, messageView, timeText } from "./message.js";
import { turnLink } from "./title_history.js";

const PAGE = 50;
const MOST_PAGES = 40;
const AHEAD = 800;
const SCROLL_KEYS = new Set(["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End", " "]);

// onPlace is called with the label of the turn or step that the reader sees, and whether the reader scrolled there.
export function conversation({ id, totalTurns, onPlace, onError }) {
  let pages = [], current = "", aborter = new AbortController(), isLoading = false, follows = false, isEmpty = false;
  const list = element("div", { class: "feed", role: "feed", "aria-label": "Conversation" });
  const node = element("main", { class: "conversation", tabindex: 0, "aria-label": "Conversation", onscroll: () => onScroll() }, list);
  // Only the user's own scrolling changes the current turn; a jump to the last turn cannot scroll it to the top.
  for (const kind of ["wheel", "touchmove", "pointerdown"]) node.addEventListener(kind, () => { follows = true; }, { passive: true });
  node.addEventListener("keydown", (event) => { if (SCROLL_KEYS.has(event.key)) follows = true; });

  const ask = (label, query) => get(`${sessionPath(id)}/turns/${label}`, query, aborter.signal);

  async function loadPage(turn, start) {
    const { interaction } = await ask(turn, { start, limit: PAGE });
    return makePage(interaction);
  }

  function makePage(interaction, mark = {}) {
    const { turn, start, messages, labels, first_message: first, total_messages: total, total_steps: steps } = interaction;
    const names = new Map(messages.flatMap((m) => m.tool_calls ?? []).map((call) => [call.id, call.function?.name]));
    const name = `turn-${turn}-${start}`;
    const made = messages.map((message, i) => {
      const position = first + start + i;
      const isNewStep = steps > 1 && labels[i] !== (i ? labels[i - 1] : null);
      return [isNewStep ? stepHeading(labels[i]) : null,
        messageView(message, { position, label: labels[i], words: position === mark.position ? mark.words : [], toolNames: names })];
    });
    const heading = start ? `Turn ${turn}, from message ${(start + 1).toLocaleString("en-GB")}` : `Turn ${turn}`;
    return {
      turn, start, end: start + messages.length, total, first,
      node: element("article", { class: "page", "aria-labelledby": name, "aria-posinset": turn, "aria-setsize": totalTurns, "data-turn": turn },
        element("h2", { id: name }, element("a", { href: turnLink(id, turn) }, heading), " ",
          element("span", { class: "small" }, counted(total, "message"), interaction.created ? " · " : null, timeText(interaction.created))),
        made),
    };
  }

  function stepHeading(label) {
    return element("p", { class: "step small", id: `step-${label}` }, element("a", { href: turnLink(id, label) }, label));
  }

  // Show a turn or a step, or the message at a position of the session, and mark the words in this message.
  async function show(label, position, words = []) {
    const [turn, step] = String(label).split(".").map(Number);
    follows = false;
    aborter.abort();
    const mine = aborter = new AbortController();
    isLoading = false;
    const known = pages.find((page) => page.turn === turn && page.start === 0);
    if (known && position === undefined && !step) {
      known.node.scrollIntoView();
      setCurrent(label);
      list.removeAttribute("aria-busy");
      await fill();
      return;
    }
    list.setAttribute("aria-busy", "true");
    try {
      const at = position ?? (step > 1 ? (await ask(label, { limit: 1 })).interaction.first_message : undefined);
      let { interaction } = await ask(turn, { start: 0, limit: PAGE });
      const offset = at === undefined ? 0 : at - interaction.first_message;
      if (offset >= PAGE && offset < interaction.total_messages) {
        ({ interaction } = await ask(turn, { start: Math.floor(offset / PAGE) * PAGE, limit: PAGE }));
      }
      pages = [makePage(interaction, { position, words })];
      list.replaceChildren(pages[0].node);
      isLoading = false;
      setCurrent(label);
      const target = at === undefined ? null : list.querySelector(`[data-position="${at}"]`);
      if (target && offset) target.classList.add("target");
      await fill();
      if (mine !== aborter) return; // another place was chosen in the meantime
      reveal(target && offset ? target : pages.find((page) => page.turn === turn).node);
      await fill();
    } catch (error) {
      report(error);
    } finally {
      if (mine === aborter) list.removeAttribute("aria-busy");
    }
  }

  // The session has no turns. The first one is shown when it arrives.
  function showEmpty() {
    isEmpty = true;
    list.replaceChildren(element("p", { class: "quiet" }, "This session has no messages yet."));
  }

  function reveal(target) {
    const mark = target.querySelector("mark");
    target.scrollIntoView({ block: "start" });
    if (mark) mark.scrollIntoView({ block: "center" });
  }

  // Load pages until the view and a margin around it are full.
  async function fill() {
    if (isLoading || !pages.length) return;
    isLoading = true;
    const { signal } = aborter;
    try {
      for (;;) {
        const below = node.scrollHeight - node.scrollTop - node.clientHeight;
        if (below < AHEAD && hasNext()) await append();
        else if (node.scrollTop < AHEAD && hasPrevious()) await prepend();
        else break;
        if (signal.aborted) return;
      }
    } catch (error) {
      report(error);
    }
    if (!signal.aborted) isLoading = false;
  }

  function hasNext() {
    const last = pages.at(-1);
    return last.end < last.total || last.turn < totalTurns;
  }

  function hasPrevious() {
    return pages[0].start > 0 || pages[0].turn > 1;
  }

  async function append() {
    const last = pages.at(-1);
    const page = last.end < last.total ? await loadPage(last.turn, last.end) : await loadPage(last.turn + 1, 0);
    if (last !== pages.at(-1)) return;
    pages.push(page);
    list.append(page.node);
    while (pages.length > MOST_PAGES && pages[0].node.getBoundingClientRect().bottom < -AHEAD) remove(pages.shift());
  }

  async function prepend() {
    const first = pages[0];
    let page;
    if (first.start > 0) page = await loadPage(first.turn, Math.max(0, first.start - PAGE));
    else {
      page = await loadPage(first.turn - 1, 0);
      // Of a long turn, its end is read first, if the reader comes from below.
      if (page.end < page.total) page = await loadPage(page.turn, Math.floor((page.total - 1) / PAGE) * PAGE);
    }
    if (first !== pages[0]) return;
    pages.unshift(page);
    keepPlace(() => list.prepend(page.node));
    while (pages.length > MOST_PAGES && pages.at(-1).node.offsetTop > node.scrollTop + node.clientHeight + AHEAD) pages.pop().node.remove();
  }

  function remove(page) {
    keepPlace(() => page.node.remove());
  }

  function keepPlace(change) {
    const before = node.scrollHeight;
    const top = node.scrollTop;
    change();
    node.scrollTop = top + node.scrollHeight - before;
  }

  function onScroll() {
    if (follows) {
      const top = node.getBoundingClientRect().top + 60;
      const isSeen = (each) => each.getBoundingClientRect().bottom > top;
      const page = pages.find((each) => isSeen(each.node));
      const message = page && [...page.node.querySelectorAll(".message")].find(isSeen);
      if (page) {
        const isFirst = page.start === 0 && (!message || message.dataset.label === `${page.turn}.1`);
        setCurrent(isFirst ? page.turn : message?.dataset.label ?? page.turn, true);
      }
    }
    fill();
  }

  function setCurrent(label, isScrolled = false) {
    if (String(label) === current) return;
    current = String(label);
    onPlace(current, isScrolled);
  }

  function report(error) {
    if (error instanceof ApiError) onError(error);
    else if (error.name !== "AbortError") throw error;
  }

  // The session has grown: load the end of the last page again, and what follows it.
  async function grow(turns) {
    const last = pages.at(-1);
    const wasAtEnd = last && !hasNext();
    totalTurns = turns;
    if (isEmpty && turns) {
      isEmpty = false;
      await show(turns);
      return;
    }
    if (!wasAtEnd || isLoading) return;
    try {
      const page = await loadPage(last.turn, last.start);
      if (last !== pages.at(-1)) return;
      if (page.total !== last.total) {
        last.node.replaceWith(page.node);
        pages[pages.length - 1] = page;
      }
    } catch (error) {
      report(error);
    }
    await fill();
  }

  return { node, show, showEmpty, grow, current: () => Number(current.split(".")[0]), stop: () => aborter.abort(), redraw: () => fill() };
}
