// The verdict in a sentence, and the five numbers of a schedule beside those of the pinned one.
import { Actions } from "./cause.js";
import { TITLES } from "./controls.js";
import { LEGAL, RECV_B, RECV_F } from "./library.js";
import { number, percent } from "./painter.js";

const ranksOf = (result) => [...Array(result.rankCount).keys()];

// The most micro-batches of all its layers whose activations a rank keeps.
export function peakOf(result, rank) {
  return (result.ranks[7 * rank] * result.rankCount) / result.stages;
}

function ranksOverLimit(result, limit) {
  return limit > 0 ? ranksOf(result).filter((rank) => peakOf(result, rank) > limit) : [];
}

export function verdictOf(result, state, pinned) {
  if (result.status !== LEGAL) return `${result.rankBegin ? "This table cannot run to its end" : "This cannot run"}: ${result.problems[0]}.`;
  const name = state.table ? "Your table" : TITLES[state.schedule];
  const isOneStep = state.table || state.schedule !== "pipedream";
  const work = isOneStep ? "a step takes" : `${state.microbatches} micro-batches take`;
  const over = ranksOverLimit(result, state.limit);
  const versions = Math.max(...ranksOf(result).map((rank) => result.ranks[7 * rank + 1]));
  const remarks = [
    pinned?.status === LEGAL && pinned.unit === result.unit && `${number(pinned.seconds / result.seconds, 3)} times as fast as the pinned one`,
    over.length > 0 && `over the memory limit on rank ${over.join(", ")}`,
    versions > 1 && `a rank keeps up to ${versions} versions of the weights`,
  ].filter(Boolean);
  return [`${name} on ${result.rankCount} ${result.rankCount === 1 ? "rank" : "ranks"}: ${work} ${number(result.seconds)}${result.unit}, of which the ranks are idle ${percent(result.idle)}`, ...remarks].join("; ") + ".";
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

const NAMES = ["step time", "idle share", "peak activations", "messages per link", "staleness"];

function valuesOf(actions) {
  const { result } = actions;
  const most = (value) => Math.max(...ranksOf(result).map(value));
  return [
    number(result.seconds) + result.unit, percent(result.idle), number(most((rank) => peakOf(result, rank)), 3), String(busiestLink(actions)),
    String(most((rank) => result.ranks[7 * rank + 2])),
  ]; // prettier-ignore
}

export function numbersOf(actions, state, pinned) {
  const values = valuesOf(actions);
  const others = pinned?.status === LEGAL ? valuesOf(new Actions(pinned)) : null;
  const isOver = ranksOverLimit(actions.result, state.limit).length > 0;
  const tile = (name, i) => `<div class="${i === 2 && isOver ? "over" : ""}"><span>${name}</span><b>${values[i]}</b>${others ? `<span>pinned: ${others[i]}</span>` : ""}</div>`;
  return NAMES.map(tile).join("");
}
