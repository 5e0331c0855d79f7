// The activations that a rank keeps: in micro-batches of all of its layers, or in GiB if a model says what a layer keeps.
import { B, F, I, W } from "./library.js";
import { number } from "./painter.js";

const GIB = 2 ** 30;

// Calls see(time, by) for each change of what a rank keeps, in its order; without a model a micro-batch counts as much
// between I and W as before.
export function eachChange(result, rank, see) {
  const { actions, rankBegin, ranks, rankCount, stages, times } = result;
  const all = (value) => Array(stages).fill(value);
  const { kept, deferred, rebuilt } = result.bytes ?? { kept: all(rankCount / stages), deferred: all(rankCount / stages), rebuilt: all(0) };
  const unit = result.bytes ? GIB : 1;
  const stuckAt = ranks[7 * rank + 3];
  const end = stuckAt < 0 ? rankBegin[rank + 1] : stuckAt;
  for (let i = rankBegin[rank]; i < end; ++i) {
    const [operation, stage] = [actions[4 * i], actions[4 * i + 1]];
    if (operation === F) see(times[3 * i], kept[stage] / unit);
    if (rebuilt[stage] > 0 && (operation === B || operation === I)) see(times[3 * i], rebuilt[stage] / unit);
    if (operation === B) see(times[3 * i + 1], -(kept[stage] + rebuilt[stage]) / unit);
    if (operation === I && result.bytes) see(times[3 * i + 1], (deferred[stage] - kept[stage] - rebuilt[stage]) / unit);
    if (operation === W) see(times[3 * i + 1], -deferred[stage] / unit);
  }
}

// The most that a rank keeps.
export function peakOf(result, rank) {
  if (!result.bytes) return (result.ranks[7 * rank] * result.rankCount) / result.stages;
  let [now, most] = [0, 0];
  eachChange(result, rank, (_, by) => (most = Math.max(most, (now += by))));
  return most;
}

export const limitOf = (result, state) => (result.bytes ? state.gib : state.limit);
export const amountText = (result, amount) => number(amount, 3) + (result.bytes ? " GiB" : "");

// The ranks that keep more than the state's limit.
export function ranksOverLimit(result, state) {
  const limit = limitOf(result, state);
  return limit > 0 ? [...Array(result.rankCount).keys()].filter((rank) => peakOf(result, rank) > limit + 1e-9) : [];
}
