// The timeline: a row per rank, with messages as arrows, the lit actions, and a deadlock as a red circle.
import { circleOf } from "./cause.js";
import { F, OPERATIONS, RECV_B, RECV_F, STUCK, U } from "./library.js";
import { FILLS, LIGHT_FILLS, RED, number, ticks } from "./painter.js";

const MOST_ARROWS = 300;
const SMALLEST_LABEL = 11; // pixels

// How large a timeline is and where its parts are, in pixels, for times up to `horizon`.
export class Layout {
  constructor(result, width, horizon) {
    this.left = 60;
    this.top = 8;
    this.width = Math.max(width - this.left - 12, 50);
    const isStuck = result.status === STUCK; // then there is room between the rows for the circle
    this.pitch = Math.max(9, Math.min(isStuck ? 62 : 36, Math.floor(560 / result.rankCount)));
    this.gap = isStuck ? this.pitch / 2 : this.pitch > 20 ? 6 : this.pitch > 12 ? 3 : 1;
    this.bar = this.pitch - this.gap;
    this.horizon = horizon;
    this.height = this.top + this.pitch * result.rankCount + 22;
  }
  x(time) { return this.left + (time / this.horizon) * this.width; } // prettier-ignore
  y(rank) { return this.top + rank * this.pitch; } // prettier-ignore
  timeAt(x) { return ((x - this.left) / this.width) * this.horizon; } // prettier-ignore
  rankAt(y) { return Math.floor((y - this.top) / this.pitch); } // prettier-ignore
}

// Returns the time that the timeline shows, in a deadlock with what cannot run.
export function horizonOf(result) {
  return result.status === STUCK ? result.times.reduce((most, time, i) => (i % 3 === 1 && time > most ? time : most), 1) : result.seconds;
}

export function drawTimeline(painter, actions, layout, theme, view = {}) {
  const { result } = actions;
  const chunks = chunksOf(result);
  drawAxis(painter, result, layout, theme);
  for (let rank = 0; rank < result.rankCount; ++rank) {
    painter.text(0, layout.y(rank) + layout.bar / 2 + 4, layout.pitch > 14 || rank % 4 === 0 ? `rank ${rank}` : "", theme.text);
    painter.rect(layout.x(0), layout.y(rank), (result.seconds / layout.horizon) * layout.width, layout.bar, theme.idle);
  }
  for (let operation = F; operation <= U; ++operation) drawBars(painter, actions, layout, operation, chunks, view);
  drawMessages(painter, actions, layout, theme, view);
  for (const i of view.lit ?? []) {
    painter.frame(layout.x(actions.start(i)), layout.y(actions.rankOf[i]), layout.x(actions.end(i)) - layout.x(actions.start(i)), layout.bar, theme.text);
  }
  drawChain(painter, actions, layout, view.chain ?? []);
  drawLabels(painter, actions, layout, theme, chunks, view); // above the lines
  if (result.status === STUCK) drawCircle(painter, actions, layout);
}

// The chunk of each stage: 0 for the first stage of a rank, and so on.
function chunksOf(result) {
  const seen = new Map();
  return Array.from(result.stageToRank, (rank) => {
    seen.set(rank, (seen.get(rank) ?? -1) + 1);
    return seen.get(rank);
  });
}

function drawAxis(painter, result, layout, theme) {
  const bottom = layout.y(result.rankCount);
  for (const time of ticks(layout.horizon, layout.width / 90)) {
    painter.line([[layout.x(time), layout.top], [layout.x(time), bottom]], theme.line); // prettier-ignore
    const isLast = layout.x(time) > layout.left + layout.width - 12; // it would be cut off
    painter.text(layout.x(time) + (isLast ? 12 : 0), bottom + 14, number(time) + result.unit, theme.quiet, { size: 11, anchor: isLast ? "end" : "middle" });
  }
}

function drawBars(painter, actions, layout, operation, chunks, view) {
  const isDimmed = view.lit?.size > 0;
  let [lastRight, lastRank] = [-1, -1];
  for (let i = 0; i < actions.count; ++i) {
    if (actions.operation(i) !== operation) continue;
    const right = Math.ceil(layout.x(actions.end(i))); // bars of less than a pixel share one
    if (right === lastRight && actions.rankOf[i] === lastRank) continue;
    [lastRight, lastRank] = [right, actions.rankOf[i]];
    const shade = actions.version(i) >= 0 ? actions.version(i) : chunks[actions.stage(i)];
    const x = layout.x(actions.start(i));
    const width = layout.x(actions.end(i)) - x;
    const fill = (shade % 2 ? LIGHT_FILLS : FILLS)[operation];
    painter.rect(x, layout.y(actions.rankOf[i]), width > 3 ? width - 1 : width, layout.bar, !actions.hasRun(i) ? `${fill}40` : isDimmed && !view.lit.has(i) ? `${fill}66` : fill);
  }
}

function drawLabels(painter, actions, layout, theme, chunks, view) {
  if (layout.bar < SMALLEST_LABEL) return;
  const hasChunks = actions.result.stages > actions.result.rankCount;
  const size = Math.min(12, layout.bar - 1);
  for (let i = 0; i < actions.count; ++i) {
    const width = layout.x(actions.end(i)) - layout.x(actions.start(i));
    if (!actions.isWork(i) || !(width > 12)) continue;
    const chunk = hasChunks ? String.fromCharCode(97 + chunks[actions.stage(i)]) : "";
    const label = `${OPERATIONS[actions.operation(i)]}${actions.microbatch(i)}${chunk}`;
    const middle = layout.x(actions.start(i)) + width / 2;
    const fits = width > 0.62 * size * label.length + 3;
    const text = fits ? label : width > 0.62 * size * String(actions.microbatch(i)).length + 2 ? actions.microbatch(i) : "";
    const isDimmed = view.lit?.size > 0 && !view.lit.has(i);
    const colour = !actions.hasRun(i) || isDimmed ? theme.text : "#000";
    painter.text(middle, layout.y(actions.rankOf[i]) + layout.bar / 2 + size / 3, text, colour, { size, anchor: "middle" });
  }
}

// Arrows from the work that makes a message to where it arrives; only those of lit actions where there are too many.
function drawMessages(painter, actions, layout, theme, view) {
  const receives = [];
  for (let i = 0; i < actions.count; ++i) {
    const isReceive = actions.operation(i) === RECV_F || actions.operation(i) === RECV_B;
    if (isReceive && !Number.isNaN(actions.arrival(i))) receives.push(i);
  }
  if (receives.length > MOST_ARROWS && !(view.lit?.size > 0)) return;
  for (const i of receives) {
    const forward = actions.operation(i) === RECV_F;
    const [stage, microbatch] = [actions.stage(i), actions.microbatch(i)];
    const sender = forward ? actions.find(F, stage - 1, microbatch) : actions.backward(stage + 1, microbatch);
    const user = forward ? actions.find(F, stage, microbatch) : actions.backward(stage, microbatch);
    const isLit = view.lit?.has(sender) && view.lit?.has(user);
    if (sender < 0 || (!isLit && view.lit?.size > 0)) continue;
    const down = actions.rankOf[i] > actions.rankOf[sender];
    const from = [layout.x(actions.end(sender)) - 2, layout.y(actions.rankOf[sender]) + (down ? layout.bar : 0)];
    const to = [layout.x(actions.arrival(i)) + 1, layout.y(actions.rankOf[i]) + (down ? 0 : layout.bar)];
    painter.line([from, to], isLit ? theme.accent : theme.quiet, { arrow: layout.gap > 2, width: isLit ? 2 : 1 });
  }
}

// The chain of waits: a line through the actions that decide when the first of them starts.
function drawChain(painter, actions, layout, chain) {
  const middle = (i) => [layout.x((actions.start(i) + actions.end(i)) / 2), layout.y(actions.rankOf[i]) + layout.bar / 2];
  const points = chain.map(({ action }) => middle(action)).reverse();
  if (points.length > 1) painter.line(points, RED, { width: 2, arrow: true });
}

// The circle of a deadlock: from the work that waits to the one that it needs, and from there to what its rank runs first,
// which waits too.
function drawCircle(painter, actions, layout) {
  const box = (i) => {
    const [x, width] = [layout.x(actions.start(i)), layout.x(actions.end(i)) - layout.x(actions.start(i))];
    return { x, width, middle: x + width / 2, y: layout.y(actions.rankOf[i]), rank: actions.rankOf[i] };
  };
  const edge = (from, to) => (to.rank > from.rank ? from.y + layout.bar : from.y);
  const circle = circleOf(actions);
  for (const { action, missing } of circle) {
    const waiting = box(action);
    painter.frame(waiting.x + 1, waiting.y + 1, waiting.width - 2, layout.bar - 2, RED);
    if (missing < 0) continue;
    const needed = box(missing);
    painter.line([[waiting.middle, edge(waiting, needed)], [needed.middle, edge(needed, waiting)]], RED, { width: 2.5, arrow: true }); // prettier-ignore
    const first = circle.find((one) => one.rank === needed.rank);
    if (!first || first.action === missing) continue;
    const y = needed.y + layout.bar - 4;
    painter.line([[needed.middle, y], [box(first.action).middle + 4, y]], RED, { width: 2.5, arrow: true }); // prettier-ignore
  }
}

// Returns what is at a point: { rank, time, action } with an action of work or -1, and { before }: the work that follows
// a gap, or -1 at the end of the rank's list.
export function hit(actions, layout, x, y) {
  const { result } = actions;
  const [rank, time] = [layout.rankAt(y), layout.timeAt(x)];
  if (rank < 0 || rank >= result.rankCount || time < 0) return null;
  for (let i = result.rankBegin[rank]; i < result.rankBegin[rank + 1]; ++i) {
    if (!actions.isWork(i)) continue;
    if (time < actions.start(i)) return { rank, time, action: -1, before: i };
    if (time < actions.end(i)) return { rank, time, action: i, before: -1 };
  }
  return { rank, time, action: -1, before: -1 };
}
