// Context map: the state of each message in each request, and the needs that a request did not hold.

import { element, fromLog, svg } from "./dom.js";
import { TIERS } from "./marks.js";

const MAX_BUTTONS = 400;
const MAX_RUNS = 60;

// options: states (names by code), map and other (see replay_map.py; other, if given, is drawn below on the same axes),
// otherLabel, recording ({messages}), request (the first one to show; -1: the one that lost most), listSent (whether
// to list what was sent), showMessage (called with a position and the need that it held), onRequest (called with the
// number of the request that is shown, and the need that was chosen). Returns {node, show, showNeed, repaint}.
export function contextMap({ states, map, other, otherLabel, recording, request, listSent = true, showMessage, onRequest }) {
  const { requests, messages } = map;
  const missed = map.needs.filter((need) => need.tier === "lost" || need.tier === "pointer");
  let now = request >= 0 ? Math.min(request, requests - 1) : worst(map, missed);

  const outline = element("div", { class: "row-outline" });
  const canvas = element("canvas", { width: messages, height: requests, role: "img", "aria-label": describe(map, missed) });
  const field = element("div", { class: "map-field", onclick: (event) => pickRow(event) }, canvas, outline);
  for (const { need, ranks } of drawable(missed)) field.append(needButton(need, ranks));
  const otherCanvas = other && element("canvas", { class: "thin", width: messages, height: requests, role: "img", "aria-label": `${otherLabel}: ${describe(other, other.needs)}` });
  const slider = element("input", {
    type: "range", min: 0, max: requests - 1, value: now, "aria-label": "request", oninput: () => show(Number(slider.value)),
    onkeydown: (event) => step(event),
  });
  slider.style.width = "100%";
  const panel = element("div", { "aria-live": "polite" });
  const sizes = sizeChart(map);

  function needButton(need, ranks) {
    const [symbol, meaning] = TIERS[need.tier];
    const place = ranks.length ? `, number ${ranks.join(" and ")} of the largest losses` : "";
    const label = `${meaning} in request ${need.request}: ${need.what}${place}`;
    const button = element("button", {
      type: "button", class: "need", title: label, "aria-label": label, tabindex: -1,
      onclick: (event) => { event.stopPropagation(); show(need.request, need); },
    }, symbol, ranks.length > 0 && element("span", { class: "rank" }, ranks.join(" ")));
    button.style.left = `${((need.last + 0.5) / messages) * 100}%`;
    button.style.top = `${((need.request + 0.5) / requests) * 100}%`;
    return button;
  }

  function pickRow(event) {
    const box = canvas.getBoundingClientRect();
    show(Math.min(requests - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * requests))));
  }

  function step(event) {
    const far = Math.max(1, Math.round(requests / 10));
    const to = { PageUp: now - far, PageDown: now + far }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(Math.min(requests - 1, Math.max(0, to)));
  }

  function nextLoss(by) {
    const places = [...new Set(missed.map((need) => need.request))].sort((a, b) => a - b);
    const to = by > 0 ? places.find((each) => each > now) : places.findLast((each) => each < now);
    if (to !== undefined) show(to, missed.find((need) => need.request === to));
  }

  function show(which, need) {
    now = which;
    slider.value = now;
    outline.style.top = `${(now / requests) * 100}%`;
    outline.style.height = `${100 / requests}%`;
    sizes.mark(now);
    panel.replaceChildren(...requestPanel(need).filter(Boolean));
    onRequest?.(now, need);
    if (need) showMessage(need.last, need);
  }

  // What the provider bills for the request: tokens read from the prompt cache, written to it, and neither.
  function ledger() {
    const [cached, short, long, plain] = map.ledger.map((column) => column[now]);
    const parts = [[cached, "read from the cache"], [short + long, "written to it"], [plain, "uncached"]];
    const dollars = map.usd && map.usd[now] !== null ? `$${map.usd[now].toPrecision(3)} for ` : "";
    const said = parts.filter(([tokens]) => tokens > 0).map(([tokens, what]) => `${compact(tokens)} ${what}`);
    return `Billed input: ${dollars}${compact(cached + short + long + plain)} tokens, ${said.join(", ")}.`;
  }

  function requestPanel(chosen) {
    const here = map.needs.filter((need) => need.request === now);
    const held = map.held[now];
    const counts = Object.entries(TIERS).map(([tier, [symbol, meaning]]) =>
      `${symbol} ${tier === "held" ? held : here.filter((need) => need.tier === tier).length} ${meaning}`);
    return [
      element("h3", {}, `Request ${now}`),
      element("p", {}, `${count(map.tokens[now])} of ${count(map.room)} tokens`,
        map.room < map.limit && element("span", { class: "small" }, ` (limit ${count(map.limit)}, less the reserve)`),
        map.compactions.includes(now) && ", after a compaction",
        element("progress", { class: map.tokens[now] > map.room && "over", max: map.room, value: map.tokens[now], "aria-label": "share of the limit" })),
      element("p", { class: "small" }, ledger()),
      element("p", {}, here.length + held ? `Needs of the reply: ${counts.join(", ")}.` : "The reply needs nothing from earlier messages."),
      element("ul", { class: "needs" }, here.map((need) => element("li", { class: need === chosen && "selected" },
        TIERS[need.tier][0], " ",
        element("button", { type: "button", class: "link", onclick: () => show(now, need) }, fromLog(need.what)),
        element("span", { class: "small" }, ` said in message ${need.last} (${recording.messages[need.last].label}), ${count(need.gap)} tokens before`,
          need.tier === "pointer" && `; fetching it again adds ${count(recording.messages[need.last].tokens)} tokens`)))),
      listSent && element("details", { open: true }, element("summary", {}, "What was sent"),
        element("ul", { class: "needs" }, runs().map((run) => element("li", {},
          swatch(run.state), element("button", { type: "button", class: "link", onclick: () => showMessage(run.first, null) },
            run.first === run.last ? `message ${run.first}` : `messages ${run.first}–${run.last}`),
          ` ${run.state}`, element("span", { class: "small" }, `, ${count(run.tokens)} tokens in the recording`))))),
    ];
  }

  // Neighbouring messages in the same state, from the newest to the oldest.
  function runs() {
    const found = [];
    for (let i = 0; i < messages; i++) {
      const state = states[stateAt(map.states[i], now)];
      const last = found[found.length - 1];
      if (state === "absent") break;
      if (last && last.state === state) [last.last, last.tokens] = [i, last.tokens + recording.messages[i].tokens];
      else found.push({ state, first: i, last: i, tokens: recording.messages[i].tokens });
    }
    return found.reverse().slice(0, MAX_RUNS);
  }

  const used = states.filter((state, code) => state !== "absent" && [map, other].some((one) => one && one.states.some((each) => each.some((part) => part[0] === code))));
  const legend = element("ul", { class: "legend" },
    used.map((state) => element("li", {}, swatch(state), state)),
    missed.length > 0 && ["pointer", "lost"].map((tier) => element("li", {}, `${TIERS[tier][0]} need that the request `, tier === "lost" ? "lost" : "can fetch again")));
  const table = element("details", {}, element("summary", {}, "Needs that were not in view, as a table"), element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ["need", "tier", "request", "said in message", "tokens before"].map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, missed.slice(0, MAX_BUTTONS).map((need) => element("tr", {},
      element("td", { class: "left" }, element("button", { type: "button", class: "link", onclick: () => show(need.request, need) }, fromLog(need.what))),
      [need.tier, need.request, need.last, count(need.gap)].map((cell) => element("td", { class: "figure" }, cell))))))));
  const made = element("div", { class: "map" },
    element("div", {}, element("p", { class: "small" }, "Each row is a request, each column a message of the recording. ← → and Page keys on the slider move."),
      field, slider,
      missed.length > 0 && element("p", { class: "controls" }, element("button", { type: "button", onclick: () => nextLoss(-1) }, "previous loss"),
        element("button", { type: "button", onclick: () => nextLoss(1) }, "next loss")),
      sizes.chart,
      other && element("figure", { class: "map-field" }, otherCanvas), other && element("p", { class: "small" }, "Below, on the same axes: ", fromLog(otherLabel), "."),
      legend, missed.length > 0 && table),
    panel);
  const repaint = () => {
    paint(canvas, map, states, legend);
    if (other) paint(otherCanvas, other, states, legend);
  };
  // Colours are known when the element is on the page.
  requestAnimationFrame(repaint);
  show(now);
  return { node: made, show, showNeed: (need) => show(need.request, need), repaint };
}

export function swatch(state) {
  const made = element("span", { class: "swatch", "data-state": state });
  made.style.background = `var(--${state})`;
  return made;
}

function stateAt(parts, request) {
  let end = 0;
  for (const [code, length] of parts) {
    end += length;
    if (request < end) return code;
  }
  return 0;
}

function paint(canvas, map, states, legend) {
  if (!canvas.isConnected) return; // another map has taken its place
  const probe = element("span");
  legend.append(probe);
  const colors = states.map((state) => {
    probe.style.color = `var(--${state})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  });
  probe.remove();
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(map.messages, map.requests);
  map.states.forEach((parts, column) => {
    let row = 0;
    for (const [code, length] of parts) {
      for (const end = row + length; row < end; row++) {
        image.data.set([...colors[code].slice(0, 3), 255], (row * map.messages + column) * 4);
      }
    }
  });
  pen.putImageData(image, 0, 0);
}

export function compact(tokens) {
  return tokens < 1000 ? String(tokens) : `${Number((tokens / 1000).toPrecision(3))}k`;
}

function sizeChart(map) {
  const highest = Math.max(map.room, ...map.tokens);
  const last = Math.max(1, map.requests - 1);
  const x = (request) => (request / last) * 100;
  const y = (tokens) => 60 - (tokens / highest) * 56;
  const now = svg("line", { class: "now", y1: 0, y2: 60 });
  const chart = svg("svg", { class: "sizes", viewBox: "0 0 100 60", preserveAspectRatio: "none", role: "img", "aria-label": `Size of the requests, at most ${count(Math.max(...map.tokens))} tokens; room ${count(map.room)} tokens` },
    map.compactions.length <= map.requests / 5 && map.compactions.map((request) => svg("line", { class: "compaction", x1: x(request), x2: x(request), y1: 54, y2: 60 })),
    svg("line", { x1: 0, x2: 100, y1: y(map.room), y2: y(map.room) }),
    svg("path", { d: map.tokens.map((tokens, i) => `${i ? "L" : "M"}${x(i)},${y(tokens)}`).join("") }), now);
  const mark = (request) => { now.setAttribute("x1", x(request)); now.setAttribute("x2", x(request)); };
  const caption = element("figcaption", {}, "Size of the requests; dashed: the limit, less the reserve.");
  return { chart: element("figure", {}, chart, caption), mark };
}

function worst(map, missed) {
  const lost = new Map();
  for (const need of missed) if (need.tier === "lost") lost.set(need.request, (lost.get(need.request) ?? 0) + 1);
  return [...lost].reduce((best, each) => (each[1] > best[1] ? each : best), [map.requests - 1, 0])[0];
}

// Needs with the same request and message share a mark; of very many, those that were lost are drawn first.
function drawable(missed) {
  const places = new Map();
  for (const need of missed) {
    const place = `${need.request},${need.last}`;
    const known = places.get(place);
    const ranks = [...(known?.ranks ?? []), ...(need.rank > 0 ? [need.rank] : [])];
    const isShown = !known || need.tier === "lost";
    places.set(place, { need: isShown ? need : known.need, ranks: ranks.sort() });
  }
  return [...places.values()].sort((a, b) => (a.need.tier > b.need.tier) - (a.need.tier < b.need.tier)).slice(0, MAX_BUTTONS);
}

function describe(map, missed) {
  const lost = missed.filter((need) => need.tier === "lost").length;
  return `Map of ${map.requests} requests and ${map.messages} messages; ${lost} needs were lost`;
}

export function count(number) {
  return Math.round(number).toLocaleString("en-US");
}
