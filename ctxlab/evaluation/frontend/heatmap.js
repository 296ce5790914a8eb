// Heat map: a share for each recording and strategy, as buttons.

import { element, fromLog } from "./dom.js";

// options: rows ({name, detail, cells: [{value, text, title}]}), columns ({id, label}), onSelect (row, column index).
export function heatmap({ rows, columns, onSelect }) {
  const buttons = [];
  const table = element("table", { class: "heat" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "left" }, "recording"),
      columns.map((column) => element("th", { scope: "col" }, fromLog(column.label))))),
    element("tbody", {}, rows.map((row, i) => element("tr", {},
      element("th", { scope: "row", class: "left" }, fromLog(row.name), element("span", { class: "small" }, ` ${row.detail}`)),
      row.cells.map((cell, j) => {
        const button = element("button", { type: "button", title: cell.title, disabled: cell.value === null, onclick: () => onSelect(i, j) }, cell.text);
        if (cell.value !== null) button.style.background = shade(cell.value);
        buttons.push(button);
        return element("td", { class: "cell", "data-cell": `${i},${j}` }, button);
      })))));
  return element("div", { class: "scroll" }, table);
}

// The ground of a cell: the less is held, the stronger its colour. The text of the cell says the same.
function shade(value) {
  return `color-mix(in oklab, var(--high) ${Math.round(value * 100)}%, color-mix(in oklab, var(--low) 55%, var(--ground)))`;
}
