// A list of which only the visible rows are elements, so that a request of thousands of messages is quick to show.

import { element } from "./dom.js";

const ROW_HEIGHT = 26;
const MARGIN = 8;

// options: rows, label, drawRow (returns the content of a row), onSelect (called with a row).
// Returns {node, select, seesSelected, redraw, setRows}. Arrow keys move, Enter selects.
export function virtualList({ rows, label, drawRow, onSelect }) {
  let chosen = -1;
  const name = `list-${Math.random().toString(36).slice(2)}`;
  const space = element("div", { class: "list-space", role: "presentation" });
  const node = element("div", {
    class: "list", role: "listbox", tabindex: 0, "aria-label": label, onscroll: () => draw(), onkeydown: (event) => move(event),
  }, space);

  function setRows(next) {
    rows = next;
    space.style.height = `${rows.length * ROW_HEIGHT}px`;
    node.style.height = `min(22rem, ${rows.length * ROW_HEIGHT + 2}px)`;
    draw();
  }

  function draw() {
    const first = Math.max(0, Math.floor(node.scrollTop / ROW_HEIGHT) - MARGIN);
    const height = node.clientHeight || 400;
    const last = Math.min(rows.length, Math.ceil((node.scrollTop + height) / ROW_HEIGHT) + MARGIN);
    const made = [];
    for (let i = first; i < last; i++) {
      const row = element("div", {
        id: `${name}-${i}`, class: `row${i === chosen ? " selected" : ""}`, role: "option", "aria-selected": String(i === chosen),
        "aria-setsize": rows.length, "aria-posinset": i + 1, onclick: () => { select(i); onSelect(rows[i]); },
      }, drawRow(rows[i]));
      row.style.top = `${i * ROW_HEIGHT}px`;
      made.push(row);
    }
    space.replaceChildren(...made);
  }

  function seesSelected() {
    const top = chosen * ROW_HEIGHT;
    return top >= node.scrollTop && top + ROW_HEIGHT <= node.scrollTop + node.clientHeight;
  }

  function select(i, reveals = true) {
    if (i < 0) return;
    chosen = i;
    if (reveals && !seesSelected()) node.scrollTop = i * ROW_HEIGHT - node.clientHeight / 2;
    draw();
    node.setAttribute("aria-activedescendant", `${name}-${i}`);
  }

  function move(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Enter: 0 }[event.key];
    if (by === undefined || !rows.length) return;
    event.preventDefault();
    select(Math.min(rows.length - 1, Math.max(0, chosen + by)));
    if (event.key === "Enter") onSelect(rows[chosen]);
  }

  setRows(rows);
  return { node, select, seesSelected, redraw: draw, setRows };
}
