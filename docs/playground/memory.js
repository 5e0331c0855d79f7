// The activations that a rank keeps: in micro-batches of all of its layers, or in GiB if a model says what a layer keeps.
import { B, F, I, W } from "./library.js";
import { number } from "./painter.js";

const GIB = 2 ** 30;

// Calls see(time, by) for each change of what a rank keeps, in its order; without a model a micro-batch counts as much
// between I and W as before.
export function eachChange(result, rank, see) {
  const { actions, bytes, rankBegin, ranks, rankCount, stages, times } = result;
  const share = (name, stage) => (bytes ? bytes[name][stage] / GIB : name === "rebuilt" ? 0 : rankCount / stages);
  const stuckAt = ranks[7 * rank + 3];
  const end = stuckAt < 0 ? rankBegin[rank + 1] : stuckAt;
  for (let i = rankBegin[rank]; i < end; ++i) {
    const [operation, stage] = [actions[4 * i], actions[4 * i + 1]];
    const [kept, deferred, rebuilt] = ["kept", "deferred", "rebuilt"].map((name) => share(name, stage));
    if (operation === F) see(times[3 * i], kept);
    if (rebuilt > 0 && (operation === B || operation === I)) see(times[3 * i], rebuilt);
    if (operation === B) see(times[3 * i + 1], -kept - rebuilt);
    if (operation === I) see(times[3 * i + 1], deferred - kept - rebuilt);
    if (operation === W) see(times[3 * i + 1], -deferred);
  }
}

// The most that a rank keeps.
export function peakOf(result, rank) {
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
