// What leaves the page: files, pictures, and the command that runs the schedule.
import { SvgPainter } from "./painter.js";
import { profileFlags } from "./profile.js";
import { Layout, drawTimeline, horizonOf } from "./timeline.js";

export function save(name, content, type = "text/plain") {
  const link = document.createElement("a");
  link.href = content.startsWith("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
}

// The timeline as the text of an SVG file, as it looks on paper.
export function svgOf(actions, title) {
  const theme = { text: "#000000", quiet: "#555555", line: "#e3e7eb", idle: "#e4e4e4", accent: "#0072b2" };
  const painter = new SvgPainter();
  const layout = new Layout(actions.result, 960, horizonOf(actions.result));
  drawTimeline(painter, actions, layout, theme);
  painter.text(layout.left, layout.height + 14, title, theme.text, { size: 13, weight: 600 });
  return painter.file(960, layout.height + 24, "#ffffff");
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
  const microbatches = 1 + Math.max(...[...result.table.matchAll(/\D(\d+)(?=[,\n]|$)/g)].map(([, one]) => Number(one)));
  return `cat > mine.csv <<'END'\n${result.table.trim()}\nEND\n${interleaved(microbatches, "mine.csv")}`;
}
