// Forest plot: differences with intervals, one line each.

import { element, fromLog, svg } from "./dom.js";
import { ticks } from "./frontier.js";

const [WIDTH, ROW] = [340, 26];

// options: lines ({label, difference, low, high, text}), heading, format (formats a value of the axis).
export function forest({ lines, heading, format }) {
  const known = lines.flatMap((line) => [line.difference, line.low, line.high]).filter((value) => value !== null);
  if (!known.length) return element("p", { class: "quiet" }, "No difference is known.");
  const [low, high] = [Math.min(0, ...known), Math.max(0, ...known)];
  const pad = (high - low) * 0.08 || 0.01;
  const px = (value) => ((value - low + pad) / (high - low + 2 * pad)) * WIDTH;
  const rows = lines.map((line) => {
    const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${ROW - 6}`, width: WIDTH, height: ROW - 6, "aria-hidden": "true" },
      svg("line", { class: "axis", x1: px(0), x2: px(0), y1: 0, y2: ROW }),
      line.low !== null && svg("line", { class: "range", x1: px(line.low), x2: px(line.high), y1: 10, y2: 10 }),
      line.difference !== null && svg("circle", { class: "point", cx: px(line.difference), cy: 10, r: 4 }));
    return element("tr", {}, element("td", { class: "left" }, fromLog(line.label)),
      element("td", {}, drawn), element("td", { class: "figure" }, line.text));
  });
  const axis = svg("svg", { class: "open", viewBox: `0 0 ${WIDTH} 20`, width: WIDTH, height: 20, "aria-hidden": "true" },
    ticks(low, high).map((value) => svg("text", { x: px(value), y: 14, "text-anchor": "middle", class: "quiet" }, format(value))));
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, element("th", { class: "left", scope: "col" }, "strategy"),
      element("th", { class: "left", scope: "col" }, heading), element("th", { scope: "col" }, "difference (95 %)"))),
    element("tbody", {}, rows, element("tr", {}, element("td"), element("td", {}, axis), element("td")))));
}
