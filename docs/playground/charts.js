// What stands below the timeline: activations and links on its axis of time, idle over micro-batches, parts of the step.
import { RECV_B, RECV_F, U } from "./library.js";
import { amountText, eachChange, peakOf } from "./memory.js";
import { FILLS, RED, number, percent } from "./painter.js";

// The versions of the weights that a rank keeps, [[time, versions]] from each change on; empty where nothing is updated.
// One that is not the newest is kept until its last use (parallel/schedule/ledger.h).
export function versionsOf(actions, rank) {
  const { rankBegin } = actions.result;
  const [begin, end] = [rankBegin[rank], rankBegin[rank + 1]];
  const lastUse = new Map();
  for (let i = begin; i < end; ++i) if (actions.version(i) >= 0) lastUse.set(actions.version(i), i);
  if (lastUse.size === 0) return [];
  const points = [[0, 1]];
  const kept = new Set([0]);
  let newest = 0;
  for (let i = begin; i < end; ++i) {
    const isUpdate = actions.operation(i) === U;
    if (isUpdate) kept.add((newest = actions.version(i)));
    for (const version of kept) if (version < newest && (lastUse.get(version) ?? -1) <= i) kept.delete(version);
    if (kept.size !== points.at(-1)[1]) points.push([isUpdate ? actions.start(i) : actions.end(i), kept.size]);
  }
  return points;
}

// The corners of the curve of what a rank keeps, from its left to its right end.
function curveOf(result, rank, layout, height) {
  const points = [[layout.x(0), height(0)]];
  let alive = 0;
  eachChange(result, rank, (time, by) => {
    if (layout.x(time) === points.at(-1)[0] && points.length > 2) points.length -= 1; // both at once
    else points.push([layout.x(time), height(alive)]);
    alive += by;
    points.push([layout.x(time), height(alive)]);
  });
  return [...points, [layout.x(result.seconds), height(alive)], [layout.x(result.seconds), height(0)]];
}

// The activations that each rank keeps over time, and dashed those of the pinned schedule, if it has as many ranks; without
// a model also the versions of its weights.
export function drawActivations(painter, actions, layout, theme, limit, pinned) {
  const { result } = actions;
  const other = pinned?.rankCount === result.rankCount && pinned.unit === result.unit ? pinned : null;
  const [peaks, others] = [result, other].map((one) => Array.from({ length: one?.rankCount ?? 0 }, (_, rank) => peakOf(one, rank)));
  const most = Math.max(limit, ...peaks, ...others, ...(result.bytes ? [] : peaks.map((_, rank) => result.ranks[7 * rank + 1])));
  const isWide = peaks.some((peak) => amountText(result, peak).replace(" GiB", "").length > 1);
  for (let rank = 0; rank < result.rankCount; ++rank) {
    const bottom = layout.y(rank) + layout.bar;
    const height = (alive) => bottom - (alive / most) * layout.bar;
    const points = curveOf(result, rank, layout, height);
    const colour = limit > 0 && peaks[rank] > limit ? RED : theme.accent;
    painter.area(points, `${colour}55`);
    painter.line(points.slice(1, -1), colour, { width: 1.5 });
    if (other) painter.line(curveOf(other, rank, layout, height), theme.quiet, { dash: [2, 2] });
    painter.line([[layout.x(0), bottom], [layout.x(layout.horizon), bottom]], theme.line); // prettier-ignore
    if (limit > 0) painter.line([[layout.x(0), height(limit)], [layout.x(layout.horizon), height(limit)]], RED, { dash: [4, 3] }); // prettier-ignore
    const versions = (result.bytes ? [] : versionsOf(actions, rank)).map(([time, count]) => [layout.x(time), height(count)]);
    const steps = versions.flatMap(([x, y], i) => (i === 0 ? [[x, y]] : [[x, versions[i - 1][1]], [x, y]]));
    if (steps.length > 0) painter.line([...steps, [layout.x(result.seconds), steps.at(-1)[1]]], FILLS[U], { width: 1.5 }); // prettier-ignore
    const [name, peak] = [`rank ${rank}`, amountText(result, peaks[rank]).replace(" GiB", "")];
    const lines = isWide && layout.bar > 24 ? [name, peak] : [isWide ? `${rank}: ${peak}` : `${name}: ${peak}`]; // left of the curves
    if (layout.pitch > 14) lines.reverse().forEach((text, line) => painter.text(0, bottom - 2 - 13 * line, text, colour === RED ? RED : theme.text, { size: 11 }));
  }
}

// The messages of each link, [{ begin, busy, arrival }] per "from → to", in the order of the ranks.
export function linksOf(actions) {
  const { costs, stageToRank } = actions.result;
  const links = new Map();
  for (let i = 0; i < actions.count; ++i) {
    const operation = actions.operation(i);
    if ((operation !== RECV_F && operation !== RECV_B) || Number.isNaN(actions.arrival(i))) continue;
    const border = actions.stage(i) - (operation === RECV_F ? 1 : 0);
    const from = stageToRank[operation === RECV_F ? border : border + 1];
    const key = `${from} → ${actions.rankOf[i]}`;
    const begin = actions.arrival(i) - costs.message[border];
    if (!links.has(key)) links.set(key, []);
    links.get(key).push({ begin, busy: begin + costs.transfer[border], arrival: actions.arrival(i) });
  }
  return [...links].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

export const LINK_PITCH = 14;

// When each link carries a message: dark while it is busy, light while the message still travels.
export function drawLinks(painter, links, layout, theme) {
  links.forEach(([name, messages], row) => {
    const y = 4 + row * LINK_PITCH;
    painter.text(0, y + 10, name, theme.text, { size: 11 });
    painter.rect(layout.x(0), y, layout.width, LINK_PITCH - 3, theme.idle);
    for (const { begin, busy, arrival } of messages) {
      painter.rect(layout.x(begin), y, Math.max(layout.x(arrival) - layout.x(begin), 1), LINK_PITCH - 3, "#cc79a788");
      painter.rect(layout.x(begin), y, layout.x(busy) - layout.x(begin), LINK_PITCH - 3, "#cc79a7");
    }
  });
}

// Idle share over micro-batches: points [[m, share]], and the current m.
export function drawCurve(painter, points, now, width, height, theme) {
  const [left, bottom, top] = [40, height - 30, 10];
  const most = Math.max(...points.map(([m]) => m));
  const x = (m) => left + (Math.log(m) / Math.log(Math.max(most, 2))) * (width - left - 16);
  const y = (share) => bottom - share * (bottom - top);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    painter.line([[left, y(share)], [width - 16, y(share)]], theme.line); // prettier-ignore
    painter.text(left - 6, y(share) + 4, `${100 * share}%`, theme.quiet, { size: 11, anchor: "end" });
  }
  for (const m of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].filter((one) => one <= most)) {
    painter.text(x(m), bottom + 14, m, theme.quiet, { size: 11, anchor: "middle" });
  }
  painter.text((left + width) / 2, height - 3, "micro-batches", theme.quiet, { size: 11, anchor: "middle" });
  const known = points.filter(([, share]) => !Number.isNaN(share));
  if (known.length > 1) painter.line(known.map(([m, share]) => [x(m), y(share)]), theme.accent, { width: 2 }); // prettier-ignore
  const [m, share] = known.find(([one]) => one === now) ?? [];
  if (m === undefined) return;
  painter.rect(x(m) - 4, y(share) - 4, 8, 8, RED);
  const right = x(m) > width - 110;
  painter.text(x(m) + (right ? -8 : 8), y(share) - 8, `${percent(share)} at ${m}`, theme.text, { weight: 600, anchor: right ? "end" : "start" });
}

// The parts of a step, [[name, seconds, why]], which add up to it.
export function partsOf(result) {
  const [ideal, bubble, imbalance, messages, update] = result.explanation;
  return [
    ["ideal", ideal, "a rank's computations, as the mean over the ranks"],
    ["bubble", bubble, "ranks wait for each other, although all have equally much to do"],
    ["imbalance", imbalance, "some stages take longer than others"],
    ["messages", messages, "activations and gradients are on their way"],
    ["update", update, "the optimizer's step"],
  ];
}

// With the parts of the pinned schedule in a column of their own.
export function waterfall(result, pinned) {
  const text = (time) => number(time) + result.unit;
  const others = pinned?.explanation && pinned.unit === result.unit ? [...partsOf(pinned).map(([, time]) => time), pinned.seconds].map(text) : [];
  return partTable(partsOf(result), result.seconds, text, others);
}

// A table of parts [[name, seconds, why]], with bars one after the other; `text` says how a time is written, and `others`
// are those of the pinned schedule, as texts.
export function partTable(parts, total, text, others = []) {
  let before = 0;
  const other = (i) => (others.length > 0 ? `<td class="quiet">${others[i]}</td>` : "");
  const head = others.length > 0 ? `<tr><th></th><td></td><td></td><td></td><td class="quiet">pinned</td></tr>` : "";
  const rows = parts.map(([name, seconds, why], i) => {
    const begin = Math.min(before, before + seconds);
    before += seconds;
    const [left, width] = [begin, Math.abs(seconds)].map((value) => (100 * value) / Math.max(total, 1e-12));
    return `<tr title="${why}"><th scope="row">${name}</th><td class="bar"><i class="${name}" style="margin-left:${left}%;width:${width}%"></i></td><td>${text(seconds)}</td><td>${percent(seconds / Math.max(total, 1e-12))}</td>${other(i)}</tr>`;
  });
  return `${head}${rows.join("")}<tr class="sum"><th scope="row">step</th><td></td><td>${text(total)}</td><td>100%</td>${other(parts.length)}</tr>`;
}

export function microbatchesOfCurve(now) {
  const usual = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256].filter((m) => m <= 64 || m < now);
  return [...new Set([...usual, now])].sort((a, b) => a - b);
}
