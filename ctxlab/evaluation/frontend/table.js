// A table that can be sorted by each heading and filtered by name.

import { element, fromLog, svg } from "./dom.js";
import { markOf } from "./marks.js";

const FIRST_ROWS = 12;

// options: columns ({label, title, kind, better}), rows ({strategy, limit, control, marks, texts, values, bounds}),
// onSelect (called with a row), onPick (called with the picked rows).
export function sortableTable({ columns, rows, showLimit, onSelect, onPick }) {
  let sorted = null, descending = false, filter = "", all = rows.length <= FIRST_ROWS;
  const picked = [];
  const body = element("tbody");
  const count = element("span", { class: "quiet", role: "status" });
  const heads = [];

  function head(label, title, key, left) {
    const button = element("button", { type: "button", title, onclick: () => sort(key) }, label);
    const cell = element("th", { scope: "col", class: left && "left", "aria-sort": "none" }, button);
    heads.push({ key, cell });
    return cell;
  }

  function sort(key) {
    if (sorted === key) descending = !descending;
    else [sorted, descending] = [key, key >= 0 && columns[key].better === "high"];
    for (const each of heads) {
      const now = each.key !== sorted ? "none" : descending ? "descending" : "ascending";
      each.cell.setAttribute("aria-sort", now);
    }
    draw();
  }

  function valueOf(row) {
    return sorted === -1 ? row.strategy : sorted === -2 ? row.limit : row.values[sorted];
  }

  function compare(a, b) {
    if (Boolean(a.control) !== Boolean(b.control)) return a.control ? 1 : -1;
    if (sorted === null) return a.rank - b.rank;
    const [x, y] = [valueOf(a), valueOf(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return descending ? -order : order;
  }

  function draw() {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => words.every((word) => row.search.includes(word)));
    const ordered = [...found].sort(compare);
    const shown = all || words.length ? ordered : ordered.filter((row) => row.isFirst);
    body.replaceChildren(...shown.map((row, i) => drawRow(row, shown[i - 1])));
    count.textContent = shown.length < rows.length ? `${shown.length} of ${rows.length} rows` : `${rows.length} rows`;
    more.hidden = rows.length <= FIRST_ROWS || words.length > 0;
    more.textContent = all ? "Show the most important rows" : `Show all ${rows.length} rows`;
  }

  function drawRow(row, before) {
    const isFirstControl = row.control && before && !before.control;
    const name = element("button", { type: "button", class: "link", onclick: () => onSelect(row) }, fromLog(row.strategy));
    const box = element("input", {
      type: "checkbox", checked: picked.includes(row), "aria-label": `compare ${row.strategy}`,
      onchange: () => pick(row, box),
    });
    const cells = columns.map((column, i) =>
      element("td", { class: "figure" }, row.texts[i], row.bounds && i === row.bounds.column && bar(row.bounds)));
    return element("tr",
      { class: [row.control && "control", isFirstControl && "first-control"].filter(Boolean).join(" "), "data-row": row.id },
      element("td", { class: "narrow" }, box), element("td", { class: "narrow left" }, row.marks.map(markOf)),
      element("td", { class: "left" }, name), showLimit && element("td", { class: "figure" }, row.limitCell), cells);
  }

  function pick(row, box) {
    if (box.checked) picked.push(row);
    else picked.splice(picked.indexOf(row), 1);
    if (picked.length > 2) picked.shift();
    draw();
    onPick(picked);
    body.querySelector(`tr[data-row="${row.id}"] input`)?.focus();
  }

  const search = element("input", {
    type: "search", placeholder: "filter by name", "aria-label": "filter the rows by name",
    oninput: () => { filter = search.value; draw(); },
  });
  const more = element("button", { type: "button", onclick: () => { all = !all; draw(); } });
  const top = element("tr", {},
    element("th", { scope: "col", title: "pick two rows to compare them" }, "pick"), element("th", {}),
    head("strategy", "", -1, true), showLimit && head("limit", "maximum size of a request and its reply", -2),
    columns.map((column, i) => head(column.label, column.title, i)));
  draw();
  return element("div", {},
    element("div", { class: "controls" }, search, more, count),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, top), body)));
}

// The interval of a share, drawn on a line from 0 to 1.
function bar({ low, high, value }) {
  if (low === null || value === null) return null;
  const look = { class: "interval", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", look,
    svg("line", { x1: 0, x2: 100, y1: 4, y2: 4, class: "axis" }),
    svg("rect", { x: low * 100, width: Math.max((high - low) * 100, 1), y: 2.5, height: 3, fill: "currentColor", opacity: 0.5 }),
    svg("rect", { x: value * 100 - 1, width: 2, y: 0, height: 8, fill: "currentColor" }));
}
