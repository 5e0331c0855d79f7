// The verdict in a sentence, and the five numbers of a schedule beside those of the pinned one.
import { Actions } from "./cause.js";
import { TITLES } from "./controls.js";
import { LEGAL, RECV_B, RECV_F } from "./library.js";
import { amountText, peakOf, ranksOverLimit } from "./memory.js";
import { number, percent } from "./painter.js";

const ranksOf = (result) => [...Array(result.rankCount).keys()];

export function verdictOf(result, state, pinned) {
  if (result.status !== LEGAL) return `${result.rankBegin ? "This table cannot run to its end" : "This cannot run"}: ${result.problems[0]}.`;
  const name = state.table ? "Your table" : TITLES[state.schedule];
  const isOneStep = state.table || state.schedule !== "pipedream";
  const work = isOneStep ? "a step takes" : `${state.microbatches} micro-batches take`;
  const over = ranksOverLimit(result, state);
  const versions = Math.max(...ranksOf(result).map((rank) => result.ranks[7 * rank + 1]));
  const remarks = [
    pinned?.status === LEGAL && pinned.unit === result.unit && comparison(result.seconds / pinned.seconds),
    placeText(result, state, over),
    over.length > 0 && `over the memory limit on rank ${over.join(", ")}`,
    versions > 1 && `a rank keeps up to ${versions} versions of the weights`,
  ].filter(Boolean);
  return [`${name} on ${result.rankCount} ${result.rankCount === 1 ? "rank" : "ranks"}: ${work} ${number(result.seconds)}${result.unit}, of which the ranks are idle ${percent(result.idle)}`, ...remarks].join("; ") + ".";
}

// The rank that has most to do, in a sentence; by less than a hundredth nobody would notice.
export function bottleneckOf(result) {
  const [rank, stage, excess, speedup] = result.explanation.slice(7);
  if (rank < 0) return "All ranks have equally much to do.";
  if (excess < 1.01) return "All ranks have nearly equally much to do.";
  const gain = speedup >= 1.005 ? `With equal ranks a step would be ${number(speedup, 3)} times as fast.` : "Equal ranks would gain nothing, as they would wait for messages instead.";
  return `Rank ${rank} is the bottleneck, above all by stage ${stage}: it has ${number(excess, 3)} times the mean work. ${gain}`;
}

// Says how long a step takes beside the pinned one, of which it is `ratio`.
function comparison(ratio) {
  if (Math.abs(ratio - 1) < 5e-4) return "as long as the pinned one";
  return ratio < 1 ? `${number(1 / ratio, 3)} times as fast as the pinned one` : `${number(100 * (ratio - 1), 2)}% longer than the pinned one`;
}

// The place in the league whose idle shares the address has; equal ones share a place.
function placeText(result, state, over) {
  if (state.league.length === 0) return "";
  if (over.length > 0) return "not in the league";
  const place = 1 + state.league.filter((idle) => idle < result.idle - 5e-7).length;
  return `place ${place} in the league of ${state.league.length} hand-ins`;
}

// Returns the most messages that one rank sends to another.
function busiestLink(actions) {
  const { rankCount, stageToRank } = actions.result;
  const messages = new Int32Array(rankCount * rankCount);
  for (let i = 0; i < actions.count; ++i) {
    const operation = actions.operation(i);
    if (operation !== RECV_F && operation !== RECV_B) continue;
    ++messages[stageToRank[actions.stage(i) + (operation === RECV_F ? -1 : 1)] * rankCount + actions.rankOf[i]];
  }
  return messages.reduce((most, one) => Math.max(most, one), 0);
}

// The rows of the table of all schedules, [{ name, title, result }].
export function rowsOfAll(rows, state) {
  const head = "<tr><th>order of work</th><th>step</th><th>idle</th><th>peak activations</th></tr>";
  return head + rows.map(({ name, title, result }) => {
    const button = `<button type="button" value="${name}"${name === state.schedule && !state.table ? " disabled" : ""}>${title}</button>`;
    if (result.status !== LEGAL) return `<tr><th scope="row">${button}</th><td colspan="3" class="quiet">cannot run with these settings</td></tr>`;
    const peak = Math.max(...ranksOf(result).map((rank) => peakOf(result, rank)));
    const isOver = ranksOverLimit(result, state).length > 0;
    return `<tr><th scope="row">${button}</th><td>${number(result.seconds)}${result.unit}</td><td>${percent(result.idle)}</td><td class="${isOver ? "over" : ""}">${amountText(result, peak)}${isOver ? ", over the limit" : ""}</td></tr>`;
  }).join(""); // prettier-ignore
}

const NAMES = ["step time", "idle share", "peak activations", "messages per link", "staleness"];

function valuesOf(actions) {
  const { result } = actions;
  const most = (value) => Math.max(...ranksOf(result).map(value));
  return [
    number(result.seconds) + result.unit, percent(result.idle), amountText(result, most((rank) => peakOf(result, rank))), String(busiestLink(actions)),
    String(most((rank) => result.ranks[7 * rank + 2])),
  ]; // prettier-ignore
}

export function numbersOf(actions, state, pinned) {
  const values = valuesOf(actions);
  const others = pinned?.status === LEGAL ? valuesOf(new Actions(pinned)) : null;
  const isOver = ranksOverLimit(actions.result, state).length > 0;
  const tile = (name, i) => `<div class="${i === 2 && isOver ? "over" : ""}"><span>${name}</span><b>${values[i]}</b>${others ? `<span>pinned: ${others[i]}</span>` : ""}</div>`;
  return NAMES.map(tile).join("");
}
