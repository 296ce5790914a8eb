// The explorer of a run: strategies, then one recording, one request, one need and the message that held it.
// Python answers what is asked (ctxlab/evaluation/explorer/answers.py).

import { compact, contextMap, count, swatch } from "./context_map.js";
import { choice, element, fromLog, option, visibleText } from "./dom.js";
import { frontier } from "./frontier.js";
import { heatmap } from "./heatmap.js";
import { markLegend, TIERS } from "./marks.js";
import { sortableTable } from "./table.js";
import { followTheme } from "./theme.js";
import { virtualList } from "./virtual_list.js";

const [PATIENCE, PAUSE] = [8000, 250]; // milliseconds

export function render({ model, el }) {
  const ask = asker(model);
  const data = model.get("document");
  const rows = data.rows.map((row) => ({
    ...row, search: `${row.strategy} ${row.limitText} ${row.marks.join(" ")} ${row.control && "control"}`.toLowerCase(),
  }));
  const now = { ...model.get("selection") };
  let drawn = null, opening = 0, asking = 0, remembering = 0;

  const status = element("p", { class: "small", role: "status" });
  const figures = element("div", { class: "scroll" });
  const mapPlace = element("div");
  const losses = element("div");
  const sentPlace = element("section", { class: "pane" });
  const differencePlace = element("section");
  const source = element("section", { class: "pane", "aria-live": "polite" });
  const visited = [];
  const one = element("div", { class: "one-recording" });
  const fields = recordingFields();
  one.append(fields.node, status, figures, losses, mapPlace, element("div", { class: "panes" }, sentPlace, source), differencePlace);
  const root = element("div", { class: "ctxlab-page ctxlab-explorer", onkeydown: keepKey },
    data.verdict && element("details", {}, element("summary", {}, "The verdict of the run"), element("p", {}, data.verdict)));
  root.append(runTabs(), one);
  el.replaceChildren(root);
  const stop = followTheme(root, () => drawn?.repaint());
  model.on("change:selection", followSelection);
  open();
  return () => {
    stop();
    ask.stop();
    model.off("change:selection", followSelection);
  };

  // A cell may set explorer.selection; what this view has set itself is known already.
  function followSelection() {
    const wanted = model.get("selection");
    if (Object.keys(wanted).every((key) => wanted[key] === now[key])) return;
    Object.assign(now, wanted);
    open();
  }

  // The run: table, frontier and recordings, one at a time.

  function runTabs() {
    const said = element("p", { class: "note small", role: "status" }, "Click a strategy to see it in the recording below. Pick two rows of one limit to read their difference.");
    const table = () => element("div", {}, sortableTable({
      columns: data.columns, rows, showLimit: data.limits.length > 1, onSelect: (row) => select({ row: row.id }),
      onPick: async (picked) => {
        if (picked.length < 2) said.textContent = "Pick one more row to read their difference.";
        else {
          const answer = await ask("pair", { a: picked[0].id, b: picked[1].id });
          said.textContent = visibleText(answer.error ?? answer.text);
        }
      },
    }), markLegend(), said, element("p", { class: "small" }, data.legend));
    const views = { Strategies: table };
    if (rows.some((row) => row.y !== null)) views.Frontier = drawFrontier;
    if (data.heat.recordings.length) views.Recordings = drawHeat;
    const id = `tab-${Math.random().toString(36).slice(2)}`;
    const panel = element("div", { role: "tabpanel", id });
    const tabs = Object.keys(views).map((name) => element("button", { type: "button", role: "tab", "aria-controls": id, onclick: () => showTab(name) }, name));
    const list = element("div", { role: "tablist", "aria-label": "the run", onkeydown: (event) => moveTab(event) }, tabs);

    function showTab(name) {
      tabs.forEach((tab) => {
        const chosen = tab.textContent === name;
        tab.setAttribute("aria-selected", String(chosen));
        tab.tabIndex = chosen ? 0 : -1;
      });
      panel.setAttribute("aria-label", name);
      panel.replaceChildren(views[name]());
      markRow();
    }

    function moveTab(event) {
      const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      showTab(next.textContent);
    }

    showTab(views.Frontier ? "Frontier" : "Strategies");
    return element("div", {}, list, panel);
  }

  function drawFrontier() {
    return element("div", {}, frontier({
      rows, limits: data.limits, xLabel: data.frontier.xLabel, yLabel: "held far needs", onSelect: (row) => select({ row: row.id }),
      width: data.limits.length > 1 ? 390 : 540,
      xText: (value) => (data.frontier.isUsd ? `$${Number(value.toPrecision(2))}` : value.toLocaleString("en-US")),
    }), element("p", { class: "small" }, "Each point is a strategy, and a thin line its 95 % interval, if there are enough clusters. The bold line joins those that no cheaper strategy equals. ",
      "Hollow strategies do not fit the limit, or a provider refuses them. Grey: controls. A click shows the strategy in the recording below."));
  }

  function drawHeat() {
    const { recordings, cells, columns, note } = data.heat;
    return element("div", {}, element("p", { class: "small" }, `Share of the far needs that each strategy holds within ${rows[columns[0]].limitText}. ${note}`),
      heatmap({
        columns: columns.map((id) => ({ id, label: rows[id].short })),
        rows: recordings.map((name, i) => ({
          name, detail: "",
          cells: cells[i].map((cell, j) => ({ ...cell, title: `${name}, ${rows[columns[j]].strategy}: ${cell.needs} arguments with far needs` })),
        })),
        onSelect: (i, j) => select({ row: columns[j], recording: recordings[i] }),
      }));
  }

  function markRow() {
    for (const each of root.querySelectorAll("[data-row]")) {
      each.classList.toggle("selected", each.dataset.row === String(now.row));
    }
  }

  // One recording.

  function recordingFields() {
    const recording = choice("recording", data.recordings.map((each) =>
      option(each.name, visibleText(`${each.name} (${count(each.requests)} requests)`))), (value) => select({ recording: value }));
    const limit = choice("limit", data.limits.map((each) => option(each.value, each.text)), (value) => {
      const other = (id) => rows.find((row) => row.limit === Number(value) && row.strategy === rows[id]?.strategy);
      const row = other(now.row) ?? rows.find((each) => each.limit === Number(value));
      select({ row: row.id, against: other(now.against)?.id ?? null });
    });
    const strategy = choice("strategy", [], (value) => select({ row: Number(value) }));
    const against = choice("against", [], (value) => select({ against: value === "" ? null : Number(value) }));
    const node = element("div", { class: "controls" }, strategy.field, against.field, data.limits.length > 1 && limit.field, recording.field,
      data.recordingCount > data.recordings.length && element("span", { class: "small" },
        `${count(data.recordings.length)} of ${count(data.recordingCount)} recordings, those with the most losses first; results.explore(recording=…) opens any.`));
    function update() {
      const here = rows.filter((row) => row.limit === rows[now.row].limit).sort((a, b) => a.rank - b.rank);
      recording.select.value = now.recording;
      if (recording.select.value !== now.recording) {
        recording.select.append(option(now.recording, visibleText(now.recording), true));
      }
      limit.select.value = rows[now.row].limit;
      strategy.select.replaceChildren(...here.map((row) => option(row.id, visibleText(row.strategy), row.id === now.row)));
      against.select.replaceChildren(option("", "–", now.against === null),
        ...here.filter((row) => row.id !== now.row).map((row) => option(row.id, visibleText(row.strategy), row.id === now.against)));
    }
    return { node, update };
  }

  function select(change) {
    Object.assign(now, change);
    if (now.against === now.row || (now.against !== null && rows[now.against].limit !== rows[now.row].limit)) now.against = null;
    if (change.recording !== undefined) now.request = -1;
    remember();
    open();
  }

  async function open() {
    const turn = ++opening;
    fields.update();
    markRow();
    status.textContent = "Replaying …";
    const slow = setTimeout(() => {
      if (turn === opening) status.textContent = "No answer from Python yet. If the kernel does not run, run this cell again.";
    }, PATIENCE);
    const answer = await ask("open", { recording: now.recording, row: now.row, against: now.against });
    clearTimeout(slow);
    if (turn !== opening) return; // another recording was chosen in the meantime
    for (const place of [figures, losses, mapPlace, sentPlace, source, differencePlace]) place.replaceChildren();
    visited.length = 0;
    drawn = null;
    if (answer.error) {
      status.textContent = answer.error;
      return;
    }
    const [map, other] = answer.maps;
    status.textContent = map.summary;
    figures.append(figureTable(answer.figures));
    losses.append(largestLosses(map));
    const recording = { messages: answer.messages };
    drawn = contextMap({
      states: data.states, map, other, otherLabel: other && rows[now.against].strategy, recording, request: now.request, listSent: false,
      showMessage: (position, need) => showMessage(recording, map, position, need),
      onRequest: (request, need) => { now.request = request; remember(); showSent(recording, map, request, need); },
    });
    mapPlace.append(drawn.node);
    source.append(element("h3", {}, "What it stands for"),
      element("p", { class: "small" }, "Click a cross, a need or a message to read the recorded message."));
  }

  // Python learns of what is shown, but not of each request that the slider passes.
  function remember() {
    clearTimeout(remembering);
    remembering = setTimeout(() => {
      model.set("selection", { recording: now.recording, row: now.row, against: now.against, request: now.request });
      model.save_changes();
    }, PAUSE);
  }

  // Figures of this recording beside those of the whole run.
  function figureTable(lines) {
    const heads = data.columns.map((column) => element("th", { scope: "col", title: column.title }, column.label));
    const body = lines.map((line, i) => [
      line.label !== lines[i - 1]?.label && element("tr", { class: "g" }, element("td", { colspan: heads.length + 1 }, fromLog(line.label))),
      element("tr", { class: line.what === "whole run" && "control" }, element("td", { class: "left" }, line.what),
        line.texts.map((text) => element("td", { class: "figure" }, text))),
    ]);
    return element("table", { class: "figures" }, element("thead", {}, element("tr", {}, element("th"), heads)), element("tbody", {}, body));
  }

  function largestLosses(map) {
    const ranked = map.needs.filter((need) => need.rank > 0).sort((a, b) => a.rank - b.rank);
    const isNeedless = !map.needs.length && !map.held.some((held) => held > 0);
    if (isNeedless) return element("p", {}, "No tool call uses a value of an earlier message, so nothing could be missing.");
    if (!ranked.length) return element("p", {}, "Everything that the agent used was in view.");
    return element("div", {}, element("h3", {}, "Largest losses"), element("ol", { class: "losses" }, ranked.map((need) => element("li", {},
      `${TIERS[need.tier][0]} `, element("button", { type: "button", class: "link", onclick: () => drawn.showNeed(need) }, fromLog(need.what)),
      element("span", { class: "small" }, ` ${need.tier === "lost" ? "lost" : "to be fetched again"} in request ${need.request} (${need.used}), said in message ${need.last}, ${compact(need.gap)} tokens before`)))));
  }

  // One request: what was sent.

  async function showSent(recording, map, request, need) {
    const turn = ++asking;
    const answer = await ask("sent", { recording: now.recording, row: now.row, request, against: now.against });
    if (turn !== asking) return; // the slider has moved on
    if (answer.error) { sentPlace.replaceChildren(element("p", {}, answer.error)); return; }
    const sent = answer.rows.flatMap((row) => unfold(row, recording.messages));
    const total = sent.filter((row) => row.index >= 0).length;
    const list = virtualList({
      rows: sent, label: `messages of request ${request}`, drawRow: sentRow,
      onSelect: (row) => showRow(recording, map, row, request),
    });
    sentPlace.replaceChildren(element("h3", {}, `What was sent: request ${request}, ${count(total)} messages`), list.node);
    list.redraw();
    if (answer.differences) showDifferences(recording, map, answer.differences);
    if (need) list.select(sent.findIndex((row) => row.first !== null && row.first <= need.last && need.last <= row.last));
    else if (sent.length) list.node.scrollTop = list.node.scrollHeight; // the newest messages
    root.dispatchEvent(new CustomEvent("ctxlab-shown", { detail: request }));
  }

  // Unchanged messages that follow each other come as one row.
  function unfold(row, messages) {
    if (row.form !== "verbatim") return [row];
    return Array.from({ length: row.last - row.first + 1 }, (_, i) => {
      const { role, tokens, text } = messages[row.first + i];
      return { form: row.form, role, tokens, text, first: row.first + i, last: row.first + i, index: row.index + i };
    });
  }

  function place({ first, last }) {
    if (first === null) return "added";
    return first === last ? String(first) : `${first}–${last}`;
  }

  function sentRow(row) {
    return [swatch(row.form), element("span", { class: "place" }, place(row)), element("span", { class: "role" }, row.role || "left out"),
      element("span", { class: "form" }, row.form), element("span", { class: "tokens" }, count(row.tokens)), element("span", { class: "text" }, fromLog(row.text))];
  }

  function showDifferences(recording, map, found) {
    const name = rows[now.against].strategy;
    const title = element("h3", {}, "What differs from ", fromLog(name), found.length ? `: ${count(found.length)} messages` : ": nothing");
    const list = virtualList({
      rows: found, label: `differences from ${name}`,
      drawRow: (row) => [element("span", { class: "place" }, place(row)), element("span", { class: "role" }, row.role),
        ...row.forms.map((form) => [swatch(form), element("span", { class: "form" }, form)]).flat(),
        element("span", { class: "tokens two" }, `${count(row.tokens[0])} / ${count(row.tokens[1])}`), element("span", { class: "text" }, fromLog(row.text))],
      onSelect: (row) => { if (row.first !== null) showMessage(recording, map, row.first, null); },
    });
    differencePlace.replaceChildren(title, found.length ? list.node : "");
    list.redraw();
  }

  // One message.

  // Show content in the pane, with a button that leads back to what was there before.
  function showSource(again, ...content) {
    if (visited.at(-1) !== again) visited.push(again);
    const back = () => { visited.pop(); visited.pop()?.(); };
    source.replaceChildren(...[
      element("h3", {}, "What it stands for"),
      visited.length > 1 && element("button", { type: "button", onclick: back }, "← back"), ...content.filter(Boolean)].filter(Boolean));
    const mark = source.querySelector("mark");
    if (mark) mark.closest("pre").scrollTop = mark.offsetTop - mark.closest("pre").offsetTop - 80;
  }

  async function showRow(recording, map, row, request) {
    if (row.index < 0 || row.form === "verbatim") {
      showMessage(recording, map, row.first, null);
      return;
    }
    const answer = await ask("entry", { recording: now.recording, row: now.row, request, index: row.index });
    showSource(() => showRow(recording, map, row, request),
      element("p", {}, `As sent: ${row.role}, ${row.form}, ${count(row.tokens)} tokens.`,
        row.first !== null && [" It stands for ", messageLink(recording, map, row.first, null, row.first === row.last ? undefined : `messages ${row.first}–${row.last}`), " of the recording."]),
      textOf(answer));
  }

  async function showMessage(recording, map, position, need) {
    const about = recording.messages[position];
    const answer = await ask("message", { recording: now.recording, position, ...(need && { entity: need.entity, kind: need.kind }) });
    const step = (to, text) => to >= 0 && to < recording.messages.length && element("button", { type: "button", onclick: () => showMessage(recording, map, to, need) }, text);
    showSource(() => showMessage(recording, map, position, need),
      element("span", { class: "controls" }, step(position - 1, "previous message"), step(position + 1, "next message")),
      element("p", {}, element("b", {}, `Message ${position}`), `: ${about.label}, ${count(about.tokens)} tokens`),
      need && element("p", {}, `${TIERS[need.tier][0]} `, fromLog(need.what), " was used by ", fromLog(need.used), " in ",
        messageLink(recording, map, need.reply, need), ", and said last in ", messageLink(recording, map, need.last, need), "."),
      textOf(answer));
  }

  function messageLink(recording, map, position, need, text = `message ${position}`) {
    return element("button", { type: "button", class: "link", onclick: () => showMessage(recording, map, position, need) }, text);
  }

  function textOf(answer) {
    if (answer.error) return element("p", {}, answer.error);
    const draw = { "": (text) => text, note: (text) => element("span", { class: "small" }, text), line: (text) => element("span", { class: "line" }, text), mention: (text) => element("mark", {}, text) };
    return element("pre", { dir: "auto", tabindex: 0 }, answer.parts.map((part) => draw[part.kind](part.text)));
  }
}

// Keep keys of the explorer from the notebook, which would collapse headings or select another cell.
function keepKey(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}

// Ask Python, and wait for the answer with the same number.
function asker(model) {
  const view = Math.random().toString(36).slice(2);
  const waiting = new Map();
  let last = 0;
  const receive = (message) => {
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  };
  model.on("msg:custom", receive);
  const ask = (what, details) => new Promise((resolve) => {
    const id = `${view}-${++last}`;
    waiting.set(id, resolve);
    model.send({ ask: what, id, ...details });
  });
  ask.stop = () => model.off("msg:custom", receive);
  return ask;
}
