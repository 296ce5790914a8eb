// Create elements. All text is set as text, never as markup, so texts from logs cannot become elements.

const SVG = "http://www.w3.org/2000/svg";
const REPLACED = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Return a text in which control and bidirectional characters are visible symbols.
export function visibleText(text) {
  return String(text).replace(REPLACED, (c) => {
    const code = c.codePointAt(0);
    return code < 32 ? String.fromCodePoint(0x2400 + code) : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    made.append(child instanceof Node ? child : visibleText(child));
  }
  return made;
}

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A name or text from a log, isolated from the direction of the text around it.
export function fromLog(text) {
  return element("bdi", {}, text);
}

export function option(value, label, selected) {
  return element("option", { value, selected }, label);
}

export function choice(label, options, onChange) {
  const select = element("select", { onchange: () => onChange(select.value) }, options);
  return { field: element("label", {}, label, " ", select), select };
}
