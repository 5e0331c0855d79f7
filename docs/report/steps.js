// A traced step: its measured and its predicted timeline on one axis, and its memory, drawn as the playground draws.
import { Actions } from "./cause.js";
import { B, F, LEGAL, OPERATIONS, RECV_B, RECV_F } from "./library.js";
import { SvgPainter, number } from "./painter.js";
import { Layout, drawTimeline, hit } from "./timeline.js";
import { MEMORY_PARTS } from "./links.js";
import { THEME, bytesText, picture, timeText, unitOf } from "./text.js";

const EIGHTHS = 8e6; // per second, the unit of a trace
const MEMORY_COLOURS = Object.fromEntries(MEMORY_PARTS);
const HELD = ["weights", "gradients", "optimizer"]; // during all of a step

// Returns [operation, stage, micro-batch] of "1F3"; a rank without stages has those of a stage of its own.
const MOST_STAGES = 1e5; // a damaged trace may name any

function actionFrom(name, rank) {
  const [, stage, operation, microbatch] = /^(\d+)([A-Z_]+)(\d+)$/.exec(name) ?? [null, rank, name, 0];
  return [Number(stage) < MOST_STAGES ? OPERATIONS.indexOf(operation) : -1, Number(stage), Number(microbatch)];
}

function timesOf(list, scale) {
  const times = [];
  for (let i = 0; i + 2 < list.length; i += 3) times.push([list[i], list[i + 1] * scale, (list[i + 1] + list[i + 2]) * scale]);
  return times;
}

// Returns a result as those of the schedule library, with times in units of so many seconds.
function resultFrom(lists, arrivals, unit, seconds) {
  const scale = 1 / EIGHTHS / unit;
  const stageToRank = [];
  const rows = lists.map((list, rank) => timesOf(list, scale).map(([name, start, end]) => {
    const [operation, stage, microbatch] = actionFrom(name, rank);
    if (operation === F || operation === B) stageToRank[stage] = rank;
    return { action: [operation, stage, microbatch, -1], times: [start, end, NaN] };
  }).filter(({ action }) => action[0] >= 0)); // prettier-ignore
  for (let stage = 0; stage < Math.max(stageToRank.length, lists.length); ++stage) stageToRank[stage] ??= Math.min(stage, lists.length - 1);
  for (let i = 0; i + 1 < arrivals.length; i += 2) {
    const [, stage, way, microbatch] = /^(\d+)SEND_([FB])(\d+)$/.exec(arrivals[i]) ?? [];
    const to = Number(stage) + (way === "F" ? 1 : -1);
    if (rows[stageToRank[to]]) rows[stageToRank[to]].push({ action: [way === "F" ? RECV_F : RECV_B, to, Number(microbatch), -1], times: [NaN, NaN, arrivals[i + 1] * scale] });
  }
  const rankBegin = rows.reduce((begins, row) => [...begins, begins.at(-1) + row.length], [0]);
  const ends = rows.flat().map(({ times }) => times[1]).filter((end) => !Number.isNaN(end)); // prettier-ignore
  return {
    status: LEGAL, rankCount: lists.length, rankBegin, stageToRank, stages: stageToRank.length,
    actions: rows.flat().flatMap(({ action }) => action), times: rows.flat().flatMap(({ times }) => times),
    ranks: lists.flatMap(() => [0, 0, 0, -1, -1, -1, -1]),
    seconds: seconds ?? Math.max(0, ...ends), unit: "",
  }; // prettier-ignore
}

export class StepView {
  constructor(step, run) {
    this.step = step;
    this.heldBytes = run.predicted_memory; // of each rank by its parts, or empty
    const seconds = step.eighths / EIGHTHS;
    [this.unitName, this.unit] = unitOf(seconds);
    this.measured = new Actions(resultFrom(step.measured, step.arrivals, this.unit, seconds / this.unit));
    this.hasPrediction = step.predicted.some((list) => list.length > 0);
    this.predicted = new Actions(resultFrom(step.predicted, step.predicted_arrivals, this.unit));
    this.horizon = Math.max(this.measured.result.seconds, this.predicted.result.seconds);
  }
  layout(width) {
    return new Layout(this.measured.result, width, this.horizon);
  }
  timeline(which, width) {
    const painter = new SvgPainter();
    const layout = this.layout(width);
    drawTimeline(painter, this[which], layout, THEME);
    painter.text(0, layout.height - 8, this.unitName, THEME.quiet, { size: 11 });
    return picture(painter, width, layout.height, `Timeline of the step, ${which}`);
  }
  // What is at a point of a timeline: { rank, name, text, boxes } with the place of the same action in both.
  at(which, width, x, y) {
    const layout = this.layout(width);
    const actions = this[which];
    const found = hit(actions, layout, x, y);
    if (!found) return null;
    const name = found.action >= 0 ? actions.name(found.action) : "";
    if (!name) {
      const next = found.before >= 0 ? ` before ${actions.name(found.before)}` : " until the end of the step";
      return { text: `rank ${found.rank} is idle${next}`, boxes: {} };
    }
    const boxes = {};
    const times = ["measured", "predicted"].map((kind) => {
      const i = this.find(kind, found.rank, name);
      if (i < 0) return "";
      const [start, end] = [this[kind].start(i), this[kind].end(i)];
      boxes[kind] = [layout.x(start), layout.y(found.rank), Math.max(layout.x(end) - layout.x(start), 2), layout.bar];
      return `${kind} ${number(start)} to ${number(end)} ${this.unitName} (${number(end - start, 3)})`;
    });
    return { text: `${name} on rank ${found.rank}: ${times.filter(Boolean).join("; ")}`, boxes };
  }
  find(kind, rank, name) {
    const { rankBegin } = this[kind].result;
    for (let i = rankBegin[rank]; i < rankBegin[rank + 1]; ++i) if (this[kind].isWork(i) && this[kind].name(i) === name) return i;
    return -1;
  }
  // The rank that works longest, in a sentence; "" if none does.
  bottleneck() {
    const { result } = this.measured;
    const busy = Array(result.rankCount).fill(0);
    const byStage = new Map();
    for (let i = 0; i < this.measured.count; ++i) {
      if (!this.measured.isWork(i)) continue;
      const [rank, seconds] = [this.measured.rankOf[i], this.measured.end(i) - this.measured.start(i)];
      busy[rank] += seconds;
      const key = `${rank} ${this.measured.stage(i)}`;
      byStage.set(key, (byStage.get(key) ?? 0) + seconds);
    }
    const most = Math.max(...busy);
    const mean = busy.reduce((sum, one) => sum + one, 0) / busy.length;
    if (busy.length < 2 || !(most > 1.02 * mean)) return busy.length < 2 ? "" : "All ranks work about equally long in this step.";
    const rank = busy.indexOf(most);
    const stages = [...byStage].filter(([key]) => key.startsWith(`${rank} `)).sort(([, a], [, b]) => b - a);
    const stage = result.stages > 1 && stages.length > 0 ? `, mostly on stage ${stages[0][0].split(" ")[1]}` : "";
    return `Rank ${rank} is the bottleneck: it works ${number(most)} of ${number(result.seconds)} ${this.unitName}${stage}, ${number(most / mean, 3)} times the mean of the ranks.`;
  }
  // The bytes of each rank over the step, on the axis of the timelines.
  memory(width) {
    const layout = this.layout(width);
    const lists = this.step.memory;
    const most = Math.max(1, ...lists.flatMap((list) => list.filter((_, i) => i % 2 === 1)));
    if (most === 1) return "";
    const painter = new SvgPainter();
    const [pitch, bar] = [Math.max(layout.pitch, 26), Math.max(layout.pitch, 26) - 6];
    lists.forEach((list, rank) => {
      const bottom = 6 + rank * pitch + bar;
      const peak = Math.max(0, ...list.filter((_, i) => i % 2 === 1));
      painter.rect(layout.x(0), bottom - bar, layout.width, bar, THEME.idle);
      const points = [];
      for (let i = 0; i < list.length; i += 2) {
        const x = layout.x(list[i] / EIGHTHS / this.unit);
        if (points.length > 0) points.push([x, points.at(-1)[1]]);
        points.push([x, bottom - (list[i + 1] / most) * bar]);
      }
      if (points.length > 0) {
        points.push([layout.x(this.measured.result.seconds), points.at(-1)[1]]);
        const fill = (bytes, colour) => {
          const top = bottom - (bytes / most) * bar;
          painter.area([[points[0][0], bottom], ...points.map(([x, y]) => [x, Math.max(y, top)]), [points.at(-1)[0], bottom]], colour);
        };
        fill(most, MEMORY_COLOURS.activations);
        const parts = this.heldBytes[rank] ?? {};
        for (let i = HELD.length; i > 0; --i) {
          fill(HELD.slice(0, i).reduce((sum, name) => sum + (parts[name] ?? 0), 0), MEMORY_COLOURS[HELD[i - 1]]);
        }
      }
      painter.text(0, bottom - bar / 2 + 4, `rank ${rank}`, THEME.text);
      painter.text(layout.x(layout.horizon) - 4, bottom - bar + 12, bytesText(peak), THEME.text, { size: 11, anchor: "end" });
    });
    return picture(painter, width, 6 + pitch * lists.length, "Memory of each rank over the step");
  }
}

export const stepName = (step) => `${step.step} of epoch ${step.epoch}, ${timeText(step.eighths / EIGHTHS)}`;
