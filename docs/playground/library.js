// The schedule library (parallel/playground/playground.h) as objects of arrays.

import { profileProblem, profiledBytes, profiledCosts } from "./profile.js";
import { sizesOf } from "./table.js";

export const OPERATIONS = ["F", "B", "I", "W", "U", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"];
export const [F, B, I, W, U, SEND_F, RECV_F, SEND_B, RECV_B] = OPERATIONS.keys();
export const VERSIONS = ["stash", "vertical", "2bw", "flush", "none"];
export const LEGAL = 2;
export const STUCK = 1;

const ARRAYS = {
  rankBegin: Int32Array, // [p + 1]
  actions: Int32Array, // [actions, 4]: operation, stage, micro-batch, version
  times: Float64Array, // [actions, 3]: start, end, arrival
  ranks: Int32Array, // [p, 7]: activations, versions, delay, stuck at, missing operation, stage, micro-batch
  rankTimes: Float64Array, // [p, 3]: end, busy, span
  figures: Float64Array, // [3]: step, idle, idle within the spans
  stageToRank: Int32Array,
  explanation: Float64Array, // [11]
  traffic: Int32Array, // [links, 3]: from, to, messages
};
const [MESSAGE, TABLE, LOWERED, KINDS] = [0, 1, 2, 3];

export class Library {
  constructor(module) {
    this.module = module;
    this.kinds = this.text(KINDS).trim().split("\n").map(kindFrom);
    this.kinds.push({ name: "pipedream", summary: "1F1B without a flush, with versions of the weights", versions: true });
  }

  // Returns { status, problems } and the arrays above; without arrays if the table cannot be drawn.
  run(state) {
    if (!this.set(state)) return { status: 0, problems: [inPageWords(this.text(MESSAGE), state)] };
    const problem = profileProblem(state, this.array("stageToRank").length);
    if (problem) return { status: 0, problems: [problem] };
    const costs = this.setCosts(state);
    const bytes = state.model ? profiledBytes(state, costs.forward.length) : null;
    const status = this.simulate(state);
    const problems = this.text(MESSAGE).split("\n").filter(Boolean);
    if (status === 0) return { status, problems, table: this.text(TABLE) };
    const result = { status, problems, costs, bytes, unit: state.model ? " ms" : "", ...this.arrays(["rankBegin", "actions", "times", "ranks", "rankTimes", "figures", "stageToRank"]) };
    [result.seconds, result.idle, result.idleInSpan] = result.figures;
    result.rankCount = result.rankBegin.length - 1;
    result.stages = result.stageToRank.length;
    result.table = this.text(TABLE);
    if (status === STUCK) giveTimesToWaiting(result, costs, state.recompute);
    return result;
  }
  // Returns only how long the step of a legal state takes.
  secondsOf(state) {
    this.set(state);
    this.setCosts(state);
    this.simulate(state);
    return this.array("figures")[0];
  }
  simulate(state) {
    return this.call("simulate", state.receives === "use" ? 0 : 4, state.waits ? 1 : 0, state.recompute ? 1 : 0);
  }
  // Adds where the time of the last run goes, if it is legal.
  explain(result) {
    if (result.status !== LEGAL || !this.call("explain")) return result;
    Object.assign(result, this.arrays(["explanation", "traffic"]));
    return result;
  }
  // Returns the idle share of the last generated schedule with other micro-batches.
  idle(microbatches) {
    return this.call("idle", microbatches);
  }
  // Returns the nearest legal table, or "" if there is none.
  repaired(state) {
    return this.set(state) && this.call("repair") ? this.text(TABLE) : "";
  }
  lowered() {
    return this.text(LOWERED);
  }

  set(state) {
    const versions = Math.max(VERSIONS.indexOf(state.versions), 0);
    if (state.table) return this.call("read", state.table);
    if (state.schedule === "pipedream") return this.call("make_pipedream", state.ranks, state.microbatches, state.batch, versions);
    return this.call("make", state.schedule, state.ranks, state.microbatches, state.chunks, state.group);
  }
  // Returns how many stages there are in the state's schedule; 0 if it cannot be made.
  stageCount(state) {
    return this.set(state) ? this.array("stageToRank").length : 0;
  }
  setCosts(state) {
    const costs = costsOf(state, this.array("stageToRank"));
    this.module.HEAPF64.set(flat(costs), this.call("costs") / 8);
    return costs;
  }

  call(name, ...values) {
    const types = values.map((value) => typeof value);
    return this.module.ccall(`playground_${name}`, "number", types, values);
  }
  text(which) {
    return this.module.UTF8ToString(this.call("text", which));
  }
  array(name) {
    const which = Object.keys(ARRAYS).indexOf(name);
    return new ARRAYS[name](this.module.HEAPU8.buffer, this.call("array", which), this.call("length", which)).slice();
  }
  arrays(names) {
    return Object.fromEntries(names.map((name) => [name, this.array(name)]));
  }
}

// The library's advice names its parameters; the page has other names for them.
function inPageWords(message, state) {
  const perBatch = state.schedule === "pipedream" && !state.table;
  return message.replaceAll("`microbatches`", perBatch ? "micro-batches per batch:" : "micro-batches:").replaceAll(/`(\w+)`/g, "$1");
}

function kindFrom(line) {
  const [name, summary, minChunks, maxChunks, takesGroup, sendsWait] = line.split("\t");
  return { name, summary, minChunks: +minChunks, maxChunks: +maxChunks, takesGroup: takesGroup === "1", sendsWait: sendsWait === "1" };
}

// Actions that never run get the times that they would take one after the other, so that they can be shown and moved.
function giveTimesToWaiting(result, costs, recompute) {
  const { actions, times, ranks, rankBegin } = result;
  for (let rank = 0; rank < result.rankCount; ++rank) {
    const at = ranks[7 * rank + 3];
    if (at < 0) continue;
    let now = at > rankBegin[rank] ? times[3 * at - 2] : 0;
    for (let i = at; i < rankBegin[rank + 1]; ++i) {
      const [forward, backward, input, weight] = flat(costs, actions[4 * i + 1]);
      const repeated = recompute ? forward : 0;
      const seconds = [forward, repeated + backward, repeated + input, weight][actions[4 * i]] ?? 0;
      times[3 * i] = now;
      times[3 * i + 1] = now += seconds;
    }
  }
}

// Returns the links between ranks, [[a, b]], in the order in which a micro-batch first passes them.
export function rankLinks(stageToRank) {
  const links = [];
  for (let s = 1; s < stageToRank.length; ++s) {
    const [a, b] = [stageToRank[s - 1], stageToRank[s]];
    if (a !== b && !links.some((link) => link.includes(a) && link.includes(b))) links.push([a, b]);
  }
  return links;
}

const COSTS = ["forward", "backward", "input", "weight", "message", "transfer", "update"];

// Returns the costs in the order of playground_costs; those of one stage, if it is given.
export const flat = (costs, stage) => COSTS.flatMap((name) => (stage === undefined ? costs[name] : costs[name][stage]));

// Returns how many micro-batches there are before an update.
function microbatchesPerUpdate(state) {
  if (!state.table) return state.schedule === "pipedream" ? state.batch : state.microbatches;
  return sizesOf(state.table).microbatches;
}

// Returns the costs that playground_costs takes, in lists. A rank's work is the same with any number of chunks.
export function costsOf(state, stageToRank) {
  const stages = stageToRank.length;
  const ranks = Math.max(...stageToRank) + 1;
  const links = rankLinks(stageToRank);
  const factors = Array.from({ length: stages - 1 }, (_, s) => {
    const link = links.findIndex((one) => one.includes(stageToRank[s]) && one.includes(stageToRank[s + 1]));
    return state.links[link] ?? 1; // a border within a rank has no link
  });
  if (state.model) {
    const costs = profiledCosts(state, stages, factors, microbatchesPerUpdate(state));
    const update = Array(ranks).fill(0);
    costs.update.forEach((ms, stage) => (update[stageToRank[stage]] += ms));
    return { ...costs, update };
  }
  const share = ranks / stages;
  const each = (cost) => Array.from({ length: stages }, (_, s) => cost * share * (state.stages[s] ?? 1));
  const border = (cost) => factors.map((factor) => cost * factor);
  return {
    forward: each(state.forward), backward: each(state.input + state.weight), input: each(state.input), weight: each(state.weight),
    message: border(state.latency + state.transfer), transfer: border(state.transfer), update: Array(ranks).fill(state.update),
  }; // prettier-ignore
}
