// Frontier: what each configuration costs and holds, one panel for each limit.

import { element, svg } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [40, 100, 26, 44];
const MAX_LABELS = 10;

// options: rows ({id, strategy, short, limit, control, flawed, onFront, marks, x, y, low, high, hover}),
// limits ({value, text}), xLabel, yLabel, xText (formats a value of x), onSelect (called with a row), width (of a panel).
export function frontier(options) {
  const note = element("p", { class: "note small", role: "status" }, "Point at a mark, or move to it with the Tab key, to read its row.");
  const panels = options.limits.map((limit) => panel(limit, options, note));
  return element("div", {}, element("div", { class: "panels" }, panels.filter(Boolean)), note);
}

function panel(limit, { rows, xLabel, yLabel, xText, onSelect, width = 540 }, note) {
  const height = width * 0.63;
  const here = rows.filter((row) => row.limit === limit.value && row.x !== null && row.y !== null);
  const points = here.filter((row) => row.control !== "nothing");
  if (!points.length) return null;
  const logarithmic = points.every((row) => row.x > 0);
  const position = (value) => (logarithmic ? Math.log10(value) : value);
  const xs = points.map((row) => position(row.x));
  const pad = (Math.max(...xs) - Math.min(...xs)) * 0.06 || 0.1;
  const [x0, x1] = [Math.min(...xs) - pad, Math.max(...xs) + pad];
  const lowest = Math.min(...points.map((row) => (row.control ? row.y : row.low ?? row.y)));
  const y0 = Math.max(0, Math.floor(lowest * 20 - 0.5) / 20);
  const px = (value) => LEFT + ((position(value) - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
  const py = (value) => TOP + ((1 - Math.max(value, y0)) / (1 - y0)) * (height - TOP - BOTTOM);

  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: width, style: undefined, role: "group", "aria-label": `${yLabel} against ${xLabel}, limit ${limit.text}` });
  const text = (x, y, content, attributes = {}) => svg("text", { x, y, ...attributes }, content);
  for (const value of ticks(y0, 1)) {
    drawn.append(
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(value), y2: py(value) }),
      text(LEFT - 6, py(value) + 4, value.toFixed(2).replace(/^0/, ""), { "text-anchor": "end" }));
  }
  for (const value of logarithmic ? logTicks(10 ** x0, 10 ** x1) : ticks(x0, x1)) {
    drawn.append(
      svg("line", { class: "axis", x1: px(value), x2: px(value), y1: height - BOTTOM, y2: height - BOTTOM + 4 }),
      text(px(value), height - BOTTOM + 18, xText(value), { "text-anchor": "middle" }));
  }
  drawn.append(
    text(LEFT, 14, `Limit: ${limit.text}`, { class: "best" }),
    text((LEFT + width - RIGHT) / 2, height - 6, xLabel, { "text-anchor": "middle", class: "quiet" }));
  const nothing = here.find((row) => row.control === "nothing");
  if (nothing && nothing.y < y0) {
    drawn.append(text(width - RIGHT, height - BOTTOM - 6, `nothing kept: ${nothing.y.toFixed(2).replace(/^0/, "")}`, { "text-anchor": "end", class: "quiet" }));
  } else if (nothing) {
    drawn.append(
      svg("line", { class: "level", x1: LEFT, x2: width - RIGHT, y1: py(nothing.y), y2: py(nothing.y) }),
      text(width - RIGHT + 4, py(nothing.y) + 4, "nothing kept", { class: "quiet" }));
  }
  const front = points.filter((row) => row.onFront).sort((a, b) => a.x - b.x);
  if (front.length) {
    const steps = front.map((row, i) => (i ? `H${px(row.x)}V${py(row.y)}` : `M${px(row.x)},${py(row.y)}`));
    drawn.append(svg("path", { class: "front", d: steps.join("") }));
  }
  for (const row of [...points].sort((a, b) => Boolean(b.control) - Boolean(a.control))) {
    if (row.low !== null) {
      drawn.append(svg("line", { class: "range", x1: px(row.x), x2: px(row.x), y1: py(row.low), y2: py(row.high) }));
    }
    const say = () => { note.textContent = row.hover; };
    drawn.append(svg("circle", {
      class: `point${row.control ? " control" : ""}${row.flawed ? " flawed" : ""}`,
      cx: px(row.x), cy: py(row.y), r: row.onFront ? 6 : 4.5, tabindex: 0, role: "button", "data-row": row.id,
      "aria-label": row.hover, onmouseenter: say, onfocus: say, onclick: () => onSelect(row),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onSelect(row); } },
    }));
  }
  drawn.append(labels(points, px, py, width));
  return element("figure", {}, drawn);
}

// Names of the most important points. A name that would cover another one is left out; the hover has it.
function labels(points, px, py, width) {
  const group = svg("g", { "aria-hidden": "true" });
  const order = [...points].sort((a, b) => (b.marks.includes("best") - a.marks.includes("best")) || (b.onFront - a.onFront) || a.rank - b.rank);
  const taken = points.map((row) => [px(row.x) - 5, py(row.y) - 5, px(row.x) + 5, py(row.y) + 5]);
  for (const row of order.slice(0, MAX_LABELS)) {
    const [length, x, y] = [row.short.length * 6.3, px(row.x), py(row.y)];
    const places = [[x + 9, y + 4, "start"], [x + 6, y - 9, "start"], [x + 6, y + 17, "start"], [x - 9, y + 4, "end"], [x - 6, y - 9, "end"]];
    for (const [tx, ty, anchor] of places) {
      const left = anchor === "start" ? tx : tx - length;
      const box = [left, ty - 11, left + length, ty + 3];
      if (left < LEFT || left + length > width || taken.some((t) => overlaps(t, box))) continue;
      taken.push(box);
      const look = row.control ? "quiet" : row.marks.includes("best") ? "best" : "";
      group.append(svg("text", { x: tx, y: ty, "text-anchor": anchor, class: look }, row.short));
      break;
    }
  }
  return group;
}

function overlaps(a, b) {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
}

export function ticks(low, high) {
  const rough = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9; value += step) found.push(value);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const m of [1, 2, 5]) if (m * 10 ** power >= low && m * 10 ** power <= high) found.push(m * 10 ** power);
  }
  return found.length >= 2 ? found : ticks(low, high);
}
