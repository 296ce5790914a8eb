// Marks of configurations in tables and plots, and symbols of needs: the shape tells them apart, not the colour.

import { element } from "./dom.js";

const MARKS = {
  best: ["\u2605", "recommended"],
  pareto: ["\u25c6", "on the Pareto line: no cheaper strategy holds as much"],
  over: ["\u26a0", "some requests exceed the limit"],
  invalid: ["\u2298", "a provider would refuse some requests"],
};

export const TIERS = {
  held: ["\u25cf", "held"],
  named: ["\u25d0", "named"],
  pointer: ["\u25cb", "pointer"],
  lost: ["\u00d7", "lost"],
};

export function markOf(name) {
  const [symbol, meaning] = MARKS[name];
  return element("span", { class: `mark ${name}`, title: meaning, role: "img", "aria-label": meaning }, symbol);
}

export function markLegend() {
  return element("ul", { class: "legend" }, Object.keys(MARKS).map((name) =>
    element("li", {}, markOf(name), " ", MARKS[name][1])));
}
