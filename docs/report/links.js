// Bytes between ranks as a matrix, and the memory of each rank by what takes it.
import { SvgPainter } from "./painter.js";
import { THEME, bytesText, escaped, picture } from "./text.js";

const MOST_RANKS = 12; // of a matrix; with more, the busiest links are listed

export function linksTable(run) {
  const predicted = new Map(run.trace.predicted_links.map(([from, to, bytes]) => [`${from} ${to}`, bytes]));
  const measured = new Map(run.links.map(([from, to, bytes]) => [`${from} ${to}`, bytes]));
  if (measured.size === 0) return `<p class="quiet">Nothing was sent.</p>`;
  const ranks = 1 + Math.max(...run.links.flatMap(([from, to]) => [from, to]));
  const most = Math.max(...measured.values());
  const cell = (key) => {
    if (!measured.has(key)) return "<td></td>";
    const share = Math.round((65 * measured.get(key)) / most) + 10;
    const more = predicted.has(key) ? `<small>${bytesText(predicted.get(key))}</small>` : "";
    return `<td style="background:color-mix(in srgb, #cc79a7 ${share}%, var(--card))">${bytesText(measured.get(key))}${more}</td>`;
  };
  if (ranks <= MOST_RANKS) {
    const all = [...Array(ranks).keys()];
    const rows = all.map((from) => `<tr><th scope="row">from ${from}</th>${all.map((to) => cell(`${from} ${to}`)).join("")}</tr>`);
    return `<div class="wide"><table class="matrix"><tr><td></td>${all.map((to) => `<th scope="col">to ${to}</th>`).join("")}</tr>${rows.join("")}</table></div>`;
  }
  const busiest = run.links.toSorted((a, b) => b[2] - a[2]).slice(0, 20);
  return `<p class="quiet">The busiest of ${measured.size} links.</p><table class="matrix">${busiest.map(([from, to]) => `<tr><th scope="row">${from} → ${to}</th>${cell(`${from} ${to}`)}</tr>`).join("")}</table>`;
}

export const MEMORY_PARTS = [
  ["weights", "#0072b2"], ["gradients", "#e69f00"], ["optimizer", "#009e73"], ["activations", "#56b4e9"], ["received", "#cc79a7"],
  ["workspace", "#8b95a0"],
]; // prettier-ignore

// The most bytes of any rank, measured or predicted.
export const mostBytes = (runs) => Math.max(1, ...runs.flatMap((run) => [...run.peak_bytes, ...run.predicted_memory.map((parts) => MEMORY_PARTS.reduce((sum, [name]) => sum + (parts[name] ?? 0), 0))]));

// A bar per rank: what it was predicted to hold at its peak, part after part, and a line at what was measured.
// The bars of several runs have one scale: `most` bytes are as wide as the picture.
export function peaksPicture(run, width, most) {
  const painter = new SvgPainter();
  const ranks = Math.max(run.peak_bytes.length, run.predicted_memory.length);
  const [left, right, pitch] = [60, width - 150, ranks > 16 ? 14 : 24];
  const x = (bytes) => left + (bytes / most) * (right - left);
  for (let rank = 0; rank < ranks; ++rank) {
    const y = rank * pitch + 3;
    const parts = run.predicted_memory[rank];
    let before = 0;
    painter.rect(left, y, right - left, pitch - 6, THEME.idle);
    for (const [name, colour] of MEMORY_PARTS) {
      const bytes = parts?.[name] ?? 0;
      if (bytes > 0) painter.rect(x(before), y, x(bytes) - left, pitch - 6, colour);
      before += bytes;
    }
    const peak = run.peak_bytes[rank];
    if (peak !== undefined && !parts) painter.rect(left, y, x(peak) - left, pitch - 6, "#8b95a0");
    if (peak !== undefined) painter.rect(x(peak) - 1, y - 2, 3, pitch - 2, THEME.text);
    painter.text(0, y + pitch - 11, `rank ${rank}`, THEME.text, { size: 11 });
    painter.text(width, y + pitch - 11, `${peak === undefined ? "" : bytesText(peak)}${parts ? ` (${bytesText(before)})` : ""}`, THEME.quiet, { size: 11, anchor: "end" });
  }
  return `<div><h3>${escaped(run.name)}: measured${run.predicted_memory.length > 0 ? " (predicted)" : ""}</h3>${picture(painter, width, ranks * pitch + 4, "Memory of each rank")}</div>`;
}
