// The costs of a named model on a named device, in ms, in place of units.
import { MODELS } from "./profiles.js";

// parallel/comm/link.h: latency in ms, bytes per ms.
export const LINKS = { none: [0, Infinity], nvlink4: [0.002, 450e6], pcie4: [0.005, 32e6], ethernet100: [0.02, 12.5e6] };

const has = (object, name) => Object.hasOwn(object ?? {}, name);

// Returns the model's layers on the device, [[forward, input gradient, weight gradient, bytes]].
function layersOf({ model, device }) {
  return MODELS[model].devices[device].flatMap(([count, ...costs]) => Array(count).fill(costs));
}

// Says why the state's model cannot be cut into so many stages; "" if it can, or if the costs are units.
export function profileProblem(state, stages) {
  if (!state.model) return "";
  if (!has(MODELS, state.model)) return `model '${state.model}': expected ${Object.keys(MODELS).join(", ")}`;
  if (!has(MODELS[state.model].devices, state.device)) return `device '${state.device}': expected ${Object.keys(MODELS[state.model].devices).join(", ")}`;
  if (!has(LINKS, state.link)) return `link '${state.link}': expected ${Object.keys(LINKS).join(", ")}`;
  const { length } = layersOf(state);
  return stages > length ? `${state.model} has ${length} layers, too few for ${stages} stages: take fewer ranks or chunks` : "";
}

// Returns the layers of each stage: the slowest stage is the fastest, and among equal splits the first stages are the
// longest (parallel/pipeline/split.cpp).
export function splitOf(layers, stages) {
  const count = layers.length;
  const before = [0];
  for (const [forward, input, weight] of layers) before.push(before.at(-1) + forward + input + weight);
  const best = Array.from({ length: stages + 1 }, () => Array(count + 1).fill(Infinity)); // [stages left][first layer]
  const end = best.map((row) => [...row]);
  best[0][count] = 0;
  for (let s = 1; s <= stages; ++s) {
    for (let b = 0; b < count; ++b) {
      for (let e = b + 1; e <= count; ++e) {
        const slowest = Math.max(before[e] - before[b], best[s - 1][e]);
        if (slowest < Infinity && slowest <= best[s][b]) [best[s][b], end[s][b]] = [slowest, e];
      }
    }
  }
  const split = [];
  for (let [s, b] = [stages, 0]; s > 0; --s) {
    split.push(end[s][b] - b);
    b = end[s][b];
  }
  return split;
}

// Returns { forward, input, weight } of each stage, and { message, transfer } of each border between two, whose messages
// take `factors` times as long as on the named link.
export function profiledCosts(state, stages, factors) {
  const layers = layersOf(state);
  const [latency, bytesPerMs] = LINKS[state.link];
  const costs = { forward: [], input: [], weight: [], message: [], transfer: [] };
  let begin = 0;
  for (const length of splitOf(layers, stages)) {
    const stage = layers.slice(begin, (begin += length));
    const factor = state.stages[costs.forward.length] ?? 1;
    const sum = (which) => factor * stage.reduce((all, layer) => all + layer[which], 0);
    ["forward", "input", "weight"].forEach((name, which) => costs[name].push(sum(which)));
    const slower = factors[costs.transfer.length] ?? 1;
    const transfer = stage.at(-1)[3] / bytesPerMs;
    costs.transfer.push(slower * transfer);
    costs.message.push(slower * (latency + transfer));
  }
  costs.transfer.pop(); // the last stage sends to nobody
  costs.message.pop();
  return costs;
}

// Returns the flags with which a program plans the same.
export function profileFlags(state, stages, microbatches) {
  const { flags, microbatch } = MODELS[state.model];
  const split = splitOf(layersOf(state), stages).join(",");
  return `${flags} --batch-size ${microbatch * microbatches} --split ${split} --clock modelled --device-model ${state.device} --link ${state.link} --profile`;
}
