// Follow the theme of the notebook: light or dark is what the ground behind the widget is.

export function followTheme(root, onChange) {
  let isDark = null;
  const check = () => {
    const now = hasDarkGround(root.parentElement);
    if (now === isDark) return;
    isDark = now;
    root.style.colorScheme = now ? "dark" : "light";
    onChange();
  };
  const observer = new MutationObserver(() => requestAnimationFrame(check));
  for (const each of [document.documentElement, document.body]) observer.observe(each, { attributes: true });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", check);
  requestAnimationFrame(check);
  return () => { observer.disconnect(); media.removeEventListener("change", check); };
}

function hasDarkGround(start) {
  for (let node = start; node; node = node.parentElement ?? node.getRootNode().host) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(node).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (alpha > 0) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
