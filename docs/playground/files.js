// What leaves the page: files, pictures, and the command that runs the schedule.
import { SvgPainter } from "./painter.js";
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
  const sizes = `--ranks ${result.rankCount} --microbatches ${state.microbatches}`;
  if (state.schedule === "pipedream" && !state.table) {
    return `build/release/bin/ch04_pipedream --smoke --ranks ${state.ranks} --microbatches ${state.batch} --versions ${state.versions} --explain`;
  }
  const receives = state.receives === "use" ? " --receives at-use" : "";
  const recompute = state.recompute ? " --recompute" : "";
  if (!state.table) {
    const chunks = state.chunks > 1 ? ` --chunks ${state.chunks}` : "";
    const group = state.group > 0 ? ` --group ${state.group}` : "";
    return `build/release/bin/ch05_interleaved --smoke ${sizes} --balance layers --schedule ${state.schedule}${chunks}${group}${receives}${recompute} --explain`;
  }
  const microbatches = 1 + Math.max(...[...result.table.matchAll(/\D(\d+)(?=[,\n]|$)/g)].map(([, one]) => Number(one)));
  return `cat > mine.csv <<'END'\n${result.table.trim()}\nEND\nbuild/release/bin/ch05_interleaved --smoke --ranks ${result.rankCount} --microbatches ${microbatches} --balance layers --schedule mine.csv${receives}${recompute} --explain`;
}
