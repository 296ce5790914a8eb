// Show one message: text, images of data URLs, and tool calls and results as folded parts.

import { element, fromLog } from "./dom.js";
import { markdown, markWords } from "./markdown.js";

const LONGEST = 20000;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
const SPEAKERS = { user: "User", assistant: "Assistant", tool: "Tool", system: "System" };

export function timeText(iso) {
  if (!iso) return null;
  const time = new Date(iso);
  const text = time.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  return element("time", { datetime: iso, title: time.toISOString() }, text);
}

export function counted(count, noun) {
  return `${count.toLocaleString("en-GB")} ${noun}${count === 1 ? "" : "s"}`;
}

// options: position in the session, label of the step, words to mark, toolNames (name of each call's tool, by the id of the call).
export function messageView(message, { position, label, words = [], toolNames = new Map() }) {
  const role = String(message.role);
  const marked = words.length > 0;
  const parts = [];
  if (role === "tool") {
    const name = message.name ?? toolNames.get(message.tool_call_id) ?? "tool";
    const { text, others } = contentOf(message.content);
    parts.push(folded(["Result of ", toolName(name), size(text)], () => [longText(text, words), ...others.map(otherPart)], marked));
  } else {
    const { text, others } = contentOf(message.content);
    if (text.trim()) parts.push(spokenText(text, words, role === "assistant"));
    parts.push(...others.map(otherPart));
  }
  for (const call of message.tool_calls ?? []) parts.push(toolCall(call, words, marked));
  if (!parts.length) parts.push(element("p", { class: "quiet" }, "This message has no text."));
  return element("div", { class: `message ${SPEAKERS[role] ? role : "other"}`, "data-position": position, "data-label": label, tabindex: -1 },
    role === "tool" ? null : element("p", { class: "speaker" }, SPEAKERS[role] ?? fromLog(role)), parts);
}

function contentOf(content) {
  if (typeof content === "string") return { text: content, others: [] };
  const list = Array.isArray(content) ? content : [];
  const isText = (part) => part?.type === "text" && typeof part.text === "string";
  return { text: list.filter(isText).map((part) => part.text).join("\n"), others: list.filter((part) => !isText(part)) };
}

function spokenText(text, words, isMarkdown) {
  const clean = text.replace(/\r\n/g, "\n");
  if (clean.length > LONGEST) return longText(clean, words);
  if (isMarkdown) return element("div", { class: "markdown" }, markdown(clean, words));
  return element("p", { class: "text", dir: "auto" }, markWords(clean, words));
}

function toolCall(call, words, marked) {
  const name = call?.function?.name ?? "tool";
  const written = String(call?.function?.arguments ?? "");
  let values = null;
  try { values = JSON.parse(written); } catch { /* the model wrote malformed JSON, which is shown as it is */ }
  const isObject = values !== null && typeof values === "object" && !Array.isArray(values);
  const first = isObject ? Object.values(values).find((value) => typeof value === "string") : undefined;
  const brief = (first ?? "").split("\n")[0].slice(0, 100);
  const summary = ["Call of ", toolName(name), brief && element("span", { class: "quiet" }, " ", fromLog(brief))];
  const shown = isObject ? () => Object.entries(values).map(([key, value]) => element("div", { class: "argument" },
    element("p", { class: "small" }, fromLog(key)),
    longText(typeof value === "string" ? value : JSON.stringify(value, null, 2), words))) : () => [longText(written, words)];
  return folded(summary, shown, marked);
}

function toolName(name) {
  return element("code", {}, fromLog(String(name).slice(0, 200)));
}

function size(text) {
  return element("span", { class: "quiet" }, `, ${counted(text.length, "character")}`);
}

// Elements that are made when they are first opened, because a result can have millions of characters.
function folded(summary, makeContent, isOpen) {
  let isMade = false;
  const made = element("details", { ontoggle: () => make() }, element("summary", {}, summary));
  function make() {
    if (!made.open || isMade) return;
    isMade = true;
    made.append(...makeContent());
  }
  if (isOpen) {
    made.open = true;
    make();
  }
  return made;
}

function longText(text, words) {
  const clean = text.replace(/\r\n/g, "\n");
  const node = element("pre", { dir: "auto", tabindex: 0 }, markWords(clean.slice(0, LONGEST), words));
  const left = clean.length - LONGEST;
  if (left <= 0) return node;
  const more = element("button", { type: "button", onclick: () => {
    node.replaceChildren(...markWords(clean, words));
    more.remove();
  } }, `Show ${counted(left, "more character")}`);
  return element("div", {}, node, more);
}

function otherPart(part) {
  const url = part?.image_url?.url ?? part?.image_url;
  if (typeof url === "string" && IMAGE.test(url.slice(0, 200)) && IMAGE.test(url)) {
    return element("img", { src: url, alt: "Image of the message", loading: "lazy" });
  }
  if (typeof url === "string") {
    return element("p", { class: "small" }, "Image that is not part of the message, so it is not loaded: ", fromLog(url.slice(0, 300)));
  }
  const kind = String(part?.type ?? "unknown").slice(0, 60);
  return folded(["Part of the type ", toolName(kind)], () => [longText(JSON.stringify(part, null, 2), [])], false);
}
