// How a report writes times, bytes and names, and puts pictures into the page.
import { number } from "./painter.js";

// Pictures are SVG, whose colours are those of the page: on paper and in the dark they follow it.
export const THEME = Object.fromEntries(["text", "quiet", "line", "idle", "accent"].map((name) => [name, `var(--${name})`]));
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"];
export const colourOf = (run) => COLOURS[run % COLOURS.length];

export const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
export const byId = (id) => document.getElementById(id);
export const widthOf = (element) => Math.max(element.clientWidth, 300); // a page that is not shown has no width
export const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

// The unit in which a time of about this many seconds is written: [name, seconds].
export const unitOf = (seconds) => (seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6]);
export function timeText(seconds) {
  const [name, unit] = unitOf(Math.abs(seconds));
  return `${number(seconds / unit)} ${name}`;
}
export function bytesText(bytes) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return `${number(bytes / 1024 ** power, 3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// A painter's picture as an element's text; `label` is for those who cannot see it.
export const picture = (painter, width, height, label) =>
  `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(label)}">${painter.parts.join("")}</svg>`;
export const legend = (entries) => entries.map(([colour, name]) => `<i style="background:${colour}"></i>${escaped(name)}`).join(" ");
// Cuts a name that would be wider than so many pixels.
export const cut = (name, width) => (name.length * 6.6 > width ? `${name.slice(0, Math.max(Math.floor(width / 6.6) - 1, 1))}…` : name);
