// The report of a run. Python writes the document (ctxlab/evaluation/report/document.py) into the page.

import { contextMap } from "./context_map.js";
import { choice, element, fromLog, option, visibleText } from "./dom.js";
import { forest } from "./forest.js";
import { frontier } from "./frontier.js";
import { heatmap } from "./heatmap.js";
import { markLegend, TIERS } from "./marks.js";
import { sortableTable } from "./table.js";

const data = JSON.parse(document.getElementById("document").textContent);
const rows = data.rows.map((row) => ({
  ...row,
  search: `${row.strategy} ${row.limitText} ${row.marks.join(" ")} ${row.control && "control"}`.toLowerCase(),
}));
let drawMap = () => {};

function section(id, title, ...content) {
  const made = document.getElementById(id);
  made.append(element("h2", {}, title), ...content.flat(Infinity).filter(Boolean));
  made.hidden = false;
  return made;
}

function selectRow(row, recording, scroll = true) {
  for (const each of document.querySelectorAll("[data-row]")) {
    each.classList.toggle("selected", each.dataset.row === String(row.id));
  }
  drawMap({ row: row.id, recording });
  if (scroll) document.getElementById("maps").scrollIntoView();
}

function drawBoard() {
  const said = element("p", { class: "note", role: "status" }, "Pick two rows of one limit to read their difference.");
  const board = sortableTable({
    columns: data.columns, rows, showLimit: data.limits.length > 1, onSelect: selectRow,
    onPick: (picked) => { said.textContent = describePair(picked); },
  });
  section("board", "Compared with what?", board, markLegend(), said, element("p", { class: "small" }, data.legend));
}

function describePair(picked) {
  if (picked.length < 2) return "Pick one more row to read their difference.";
  const [a, b] = picked;
  const found = data.pairs[`${a.id},${b.id}`] ?? data.pairs[`${b.id},${a.id}`];
  if (a.limit !== b.limit) return "These rows have different limits. Pick two rows of one limit.";
  return visibleText(found ?? "This pair was not compared. Run ctxlab compare with these strategies.");
}

function drawFrontier() {
  const yLabel = "held far needs";
  const made = frontier({
    rows, limits: data.limits, xLabel: data.frontier.xLabel, yLabel, onSelect: selectRow,
    xText: (value) => data.frontier.isUsd ? `$${Number(value.toPrecision(2))}` : value.toLocaleString("en-US"),
  });
  section("frontier", "Is there a trade-off?",
    element("p", {}, "Each point is a strategy with its 95 % interval. The line joins those that no cheaper strategy equals. ",
      "Hollow points do not fit the limit, or a provider would refuse some of their requests. Grey points are controls."), made);
}

function drawRecordings() {
  const { recordings, cells, columns, note } = data.heat;
  if (!recordings.length) return;
  const drawn = heatmap({
    columns: columns.map((id) => ({ id, label: rows[id].short })),
    rows: recordings.map((index, i) => ({
      name: data.recordings[index].name, detail: `${data.recordings[index].requests.toLocaleString("en-US")} requests`,
      cells: cells[i].map((cell, j) => ({
        ...cell, title: `${data.recordings[index].name}, ${rows[columns[j]].strategy}: ${cell.needs} arguments with far needs`,
      })),
    })),
    onSelect: (i, j) => selectRow(rows[columns[j]], recordings[i]),
  });
  section("recordings", "Where does it hurt?",
    element("p", {}, `Share of the far needs that each strategy holds within ${rows[columns[0]].limitText}. A click shows the recording below, if it is in the sample.`),
    drawn, element("p", { class: "small" }, note));
}

function drawMaps() {
  if (!data.maps.length) {
    if (data.mapsNote) section("maps", "What was lost, and when?", element("p", {}, data.mapsNote));
    return;
  }
  const shown = element("div");
  const source = element("div", { role: "status" });
  const inSample = [...new Set(data.maps.map((map) => map.recording))];
  const now = { recording: inSample[0], row: data.maps[0].row, request: -1 };
  const recordingField = choice("recording", inSample.map((i) => option(i, visibleText(data.recordings[i].name))), (value) => {
    now.recording = Number(value);
    draw();
  });
  const strategyField = choice("strategy", [], (value) => { now.row = Number(value); draw(); });

  function draw() {
    const there = data.maps.filter((map) => map.recording === now.recording);
    const map = there.find((each) => each.row === now.row) ?? there[0];
    const recording = data.recordings[map.recording];
    recordingField.select.value = map.recording;
    strategyField.select.replaceChildren(...there.map((each) => option(each.row, rows[each.row].label, each === map)));
    source.replaceChildren();
    const other = "The sample has no map of ";
    shown.replaceChildren(element("div", {},
      map.row !== now.row && element("p", {}, other, fromLog(rows[now.row].label), "; this is another strategy."),
      element("p", {}, map.summary),
      contextMap({ states: data.states, map, recording, request: now.request, showMessage: (position, need) => showSource(recording, position, need) }).node));
    now.request = -1;
  }

  function showSource(recording, position, need) {
    const message = recording.messages[position];
    const heading = `Message ${position}: ${message.label}, ${message.tokens.toLocaleString("en-US")} tokens`;
    const text = message.text === undefined
      ? element("p", { class: "small" }, "This report holds no text of the messages; write it with --with-text to read them.")
      : element("pre", { dir: "auto" }, marked(message.text, need && need.entity));
    source.replaceChildren(element("h3", {}, heading), need && element("p", {}, `${TIERS[need.tier][0]} `, fromLog(need.what)), text);
  }

  drawMap = ({ row, recording, request }) => {
    const wanted = recording !== undefined && inSample.includes(recording) ? recording : now.recording;
    Object.assign(now, { recording: wanted, row, request: request ?? -1 });
    draw();
  };
  draw();
  section("maps", "What was lost, and when?", element("div", { class: "controls" }, recordingField.field, strategyField.field),
    shown, source, element("p", { class: "small" }, data.mapsNote));
  drawLost();
}

function marked(text, entity) {
  if (!entity) return text;
  return text.split(entity).flatMap((part, i) => (i ? [element("mark", {}, entity), part] : [part]));
}

function drawLost() {
  if (!data.lost.length) return;
  const body = data.lost.map((need) => {
    const show = () => {
      drawMap({ row: need.row, recording: need.recording, request: need.request });
      document.getElementById("maps").scrollIntoView();
    };
    return element("tr", {},
      element("td", { class: "left" }, element("button", { type: "button", class: "link", onclick: show }, fromLog(need.what)),
        need.more > 0 && ` and ${need.more} more`),
      element("td", { class: "left" }, fromLog(data.recordings[need.recording].name)),
      element("td", { class: "figure" }, need.request), element("td", { class: "figure" }, need.last),
      element("td", { class: "figure" }, need.gap.toLocaleString("en-US")));
  });
  const heads = ["need", "recording"].map((text) => element("th", { class: "left", scope: "col" }, text));
  const more = ["request", "said in message", "tokens before"].map((text) => element("th", { scope: "col" }, text));
  section("lost", "Which needs were lost?",
    element("p", {}, data.lostNote),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads, more)), element("tbody", {}, body))));
}

function drawDifferences() {
  const { reference, groups } = data.differences;
  if (!groups.length) return;
  section("differences", "How sure is the difference?",
    element("p", {}, "Each line is a strategy minus ", fromLog(reference), ", on the same requests, with a 95 % interval over clusters."),
    groups.map((group) => [element("h3", {}, group.title),
      forest({ ...group, format: (value) => signed(value * 100) + group.unit })]));
}

function signed(value) {
  return `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${Math.abs(Number(value.toPrecision(2)))}`;
}

drawBoard();
drawFrontier();
drawRecordings();
drawMaps();
drawDifferences();
const best = rows.find((row) => row.marks.includes("best"));
if (best) selectRow(best, undefined, false);
