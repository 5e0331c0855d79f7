// What leaves the page: files, pictures, and the command that runs the schedule.
import { B, F, LEGAL, U, W } from "./library.js";
import { FILLS, number, SvgPainter } from "./painter.js";
import { profileFlags } from "./profile.js";
import { DEFAULTS } from "./state.js";
import { sizesOf } from "./table.js";
import { Layout, drawTimeline, horizonOf } from "./timeline.js";

export function save(name, content, type = "text/plain") {
  const link = document.createElement("a");
  link.href = content.startsWith("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
}

const PAPER = { text: "#000000", quiet: "#555555", line: "#e3e7eb", idle: "#e4e4e4", accent: "#0072b2" };
const LEGEND = [["forward", F], ["backward or input gradient", B], ["weight gradient", W], ["update", U]]; // prettier-ignore

// Timelines [[title, Actions]] below each other on one axis of time, and a legend, as the text of an SVG file: as they look
// on paper.
export function svgOf(timelines) {
  const painter = new SvgPainter();
  const width = 960;
  const horizon = Math.max(...timelines.map(([, actions]) => horizonOf(actions.result)));
  let y = 0;
  for (const [title, actions] of timelines) {
    painter.text(8, y + 18, title, PAPER.text, { size: 13, weight: 600 });
    const layout = new Layout(actions.result, width - 16, horizon);
    painter.inside(8, y + 22, () => drawTimeline(painter, actions, layout, PAPER));
    y += layout.height + 30;
  }
  let x = 68;
  for (const [name, operation] of LEGEND) {
    if (!timelines.some(([, actions]) => actions.has(operation))) continue;
    painter.rect(x, y, 11, 11, FILLS[operation]);
    painter.text(x + 16, y + 10, name, PAPER.quiet);
    x += 34 + 6.5 * name.length;
  }
  if (timelines.some(([, { result }]) => result.stages > result.rankCount)) painter.text(x, y + 10, "lighter: every other chunk", PAPER.quiet);
  return painter.file(width, y + 22, "#ffffff");
}

// The picture of an SVG file, at twice its size, as the address of a PNG file.
export async function pngOf(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

const UNIT_TIMES = { forward: "a forward", input: "an input gradient", weight: "a weight gradient", update: "updates", latency: "messages", transfer: "messages" };

// Says which of the state's times the command does not have, and what it plans without them; "" if it plans the same.
export function commandNote(state, result, library) {
  if (result.status !== LEGAL) return "";
  if (state.schedule === "pipedream" && !state.table) return `The command plans an epoch of its training, not these ${state.microbatches} micro-batches alone.`;
  const kind = library.kinds.find(({ name }) => name === state.schedule);
  const plain = { ...state, stages: [], links: [], waits: !state.table && Boolean(kind?.sendsWait) };
  if (!state.model) Object.assign(plain, Object.fromEntries(Object.keys(UNIT_TIMES).map((name) => [name, DEFAULTS[name]])));
  const isOther = (name) => String(state[name]) !== String(plain[name]);
  const left = [
    ...Object.entries(UNIT_TIMES).filter(([name]) => isOther(name)).map(([, text]) => text),
    ...(isOther("stages") ? ["single stages"] : []), ...(isOther("links") ? ["single links"] : []),
  ]; // prettier-ignore
  const stagesPerRank = state.model ? 1 : result.stages / result.rankCount; // there a forward of each stage takes 1
  const because = [
    left.length > 0 && `the times that you chose for ${[...new Set(left)].join(", ")} are not in it`,
    isOther("waits") && (state.waits ? "its senders do not wait" : "its senders wait"),
    stagesPerRank > 1 && `a forward of each of a rank's ${stagesPerRank} stages takes 1 there`,
  ].filter(Boolean);
  if (because.length === 0) return "";
  const step = stagesPerRank * library.secondsOf(plain);
  library.secondsOf(state); // whose messages can be saved
  return `The command plans a step of ${number(step, 6)}${state.model ? " ms" : " units"}: ${because.join("; ")}.`;
}

// Returns shell commands for the program of chapter 5, or of chapter 4 for schedules that list updates.
export function commandOf(state, result) {
  const program = (name, microbatches, balance) => {
    const costs = state.model ? profileFlags(state, result.stages, microbatches) : `--smoke${balance}`;
    return `build/release/bin/${name} ${costs} --ranks ${result.rankCount} --microbatches ${microbatches}`;
  };
  if (state.schedule === "pipedream" && !state.table) return `${program("ch04_pipedream", state.batch, "")} --versions ${state.versions} --explain`;
  const receives = state.receives === "use" ? " --receives at-use" : "";
  const recompute = state.recompute ? " --recompute" : "";
  const interleaved = (microbatches, schedule) => `${program("ch05_interleaved", microbatches, " --balance layers")} --schedule ${schedule}${receives}${recompute} --explain`;
  if (!state.table) {
    const chunks = state.chunks > 1 ? ` --chunks ${state.chunks}` : "";
    const group = state.group > 0 ? ` --group ${state.group}` : "";
    return interleaved(state.microbatches, `${state.schedule}${chunks}${group}`);
  }
  const { microbatches } = sizesOf(result.table);
  return `cat > mine.csv <<'END'\n${result.table.trim()}\nEND\n${interleaved(microbatches, "mine.csv")}`;
}
