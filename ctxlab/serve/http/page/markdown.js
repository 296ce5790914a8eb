// Show Markdown as elements: code blocks, headings, bold text and inline code. Everything else stays text.
// Links and images stay text, too, so that nothing in a transcript can be followed or fetched.

import { element, visibleText } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^#{1,6} +(.*)$/;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;

export function markdown(text, words = []) {
  const made = [];
  let lines = [];
  const flush = () => {
    const said = lines.join("\n").replace(/^\n+|\s+$/g, "");
    if (said) made.push(element("p", { class: "text", dir: "auto" }, inline(said, words)));
    lines = [];
  };
  let fence = null;
  for (const line of text.split("\n")) {
    const mark = line.match(FENCE)?.[1];
    const heading = fence === null && line.match(HEADING)?.[1];
    if (fence !== null) {
      if (mark && mark.startsWith(fence) && line.trim() === mark) {
        made.push(codeBlock(lines, words));
        [fence, lines] = [null, []];
      } else lines.push(line);
    } else if (mark) {
      flush();
      fence = mark;
    } else if (heading) {
      flush();
      made.push(element("p", { class: "text heading", dir: "auto" }, inline(heading, words)));
    } else lines.push(line);
  }
  if (fence !== null) made.push(codeBlock(lines, words));
  else flush();
  return made;
}

function codeBlock(lines, words) {
  return element("pre", { tabindex: 0 }, element("code", {}, markWords(lines.join("\n"), words)));
}

function inline(text, words) {
  const made = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    made.push(markWords(text.slice(from, found.index), words));
    const [, code, strong] = found;
    made.push(element(code === undefined ? "strong" : "code", {}, markWords(code ?? strong, words)));
    from = found.index + found[0].length;
  }
  made.push(markWords(text.slice(from), words));
  return made;
}

// Return the text with the words of a search marked.
export function markWords(text, words) {
  const shown = visibleText(text);
  if (!words.length) return [shown];
  const any = new RegExp(`(${words.map((word) => word.replace(/[^\p{L}\p{M}\p{N}]/gu, "\\$&")).join("|")})`, "giu");
  return shown.split(any).map((part, i) => (i % 2 ? element("mark", {}, part) : part));
}

export function queryWords(query) {
  return [...new Set(query.split(/[^\p{L}\p{M}\p{N}]+/u).filter(Boolean))].sort((a, b) => b.length - a.length).slice(0, 64);
}
