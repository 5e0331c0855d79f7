// The costs of a named model on a named device, in ms, in place of units.
import { MODELS } from "./profiles.js";

// parallel/comm/link.h: latency in ms, bytes per ms.
export const LINKS = { none: [0, Infinity], nvlink4: [0.002, 450e6], pcie4: [0.005, 32e6], ethernet100: [0.02, 12.5e6] };

const has = (object, name) => Object.hasOwn(object ?? {}, name);

const rowsOf = (runs) => runs.flatMap(([count, ...row]) => Array(count).fill(row));
// The columns of times, and of bytes, in profiles.js.
const [FORWARD, BACKWARD, INPUT, WEIGHT, ADDED, UPDATE] = Array(6).keys();
const [OUTPUT, KEPT, FREED, DEFERRED] = Array(4).keys();

// Returns the times of the model's layers on the device, each as a stage of its own.
const timesOf = ({ model, device }) => rowsOf(MODELS[model].devices[device].first);

// Says why the state's model cannot be cut into so many stages; "" if it can, or if the costs are units.
export function profileProblem(state, stages) {
  if (!state.model) return "";
  if (!has(MODELS, state.model)) return `model '${state.model}': expected ${Object.keys(MODELS).join(", ")}`;
  if (!has(MODELS[state.model].devices, state.device)) return `device '${state.device}': expected ${Object.keys(MODELS[state.model].devices).join(", ")}`;
  if (!has(LINKS, state.link)) return `link '${state.link}': expected ${Object.keys(LINKS).join(", ")}`;
  const { length } = timesOf(state);
  return stages > length ? `${state.model} has ${length} layers, too few for ${stages} stages: take fewer ranks or chunks` : "";
}

// Returns the layers of each stage for layers of [forward, backward]: the slowest stage is the fastest, and among equal splits the first stages are the
// longest (parallel/pipeline/split.cpp).
export function splitOf(layers, stages) {
  const count = layers.length;
  const before = [0];
  for (const [forward, backward] of layers) before.push(before.at(-1) + forward + backward);
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

// Returns [first layer, end] of each stage.
function stagesOf(state, stages) {
  let begin = 0;
  return splitOf(timesOf(state), stages).map((length) => [begin, (begin += length)]);
}

// Returns { forward, backward, input, weight, update } of each stage, and { message, transfer } of each border between two,
// whose messages take `factors` times as long as on the named link. All but the first of each `added` micro-batches add
// their gradients to those that are there.
export function profiledCosts(state, stages, factors, added) {
  const { bytes, devices } = MODELS[state.model];
  const outputs = rowsOf(bytes);
  const [first, second, further] = ["first", "second", "further"].map((place) => rowsOf(devices[state.device][place]));
  const [latency, bytesPerMs] = LINKS[state.link];
  const costs = { forward: [], backward: [], input: [], weight: [], message: [], transfer: [], update: [] };
  stagesOf(state, stages).forEach(([begin, end], s) => {
    const rows = [...first.slice(begin, begin + 1), ...second.slice(begin + 1, Math.min(begin + 2, end)), ...further.slice(begin + 2, end)];
    const ms = (which) => rows.reduce((all, row) => all + row[which], 0);
    const factor = state.stages[s] ?? 1;
    const adding = (1 - 1 / added) * ms(ADDED);
    costs.forward.push(factor * ms(FORWARD));
    costs.backward.push(factor * (ms(BACKWARD) + adding));
    costs.input.push(s === 0 ? 0 : factor * ms(INPUT)); // nobody needs the gradient of the model's input
    costs.weight.push(factor * (ms(s === 0 ? BACKWARD : WEIGHT) + adding));
    costs.update.push(ms(UPDATE));
    if (s + 1 === stages) return; // the last stage sends to nobody
    const transfer = outputs[end - 1][OUTPUT] / bytesPerMs;
    costs.transfer.push(factors[s] * transfer);
    costs.message.push(factors[s] * (latency + transfer));
  });
  return costs;
}

// Returns the bytes that each stage keeps of a micro-batch, { kept, deferred, rebuilt }: until its backward or I, between I
// and W, and what recomputation adds during a backward (parallel/pipeline/layer_profile.h).
export function profiledBytes(state, stages) {
  const { bytes, input } = MODELS[state.model];
  const layers = rowsOf(bytes);
  const sizes = { kept: [], deferred: [], rebuilt: [] };
  stagesOf(state, stages).forEach(([begin, end], s) => {
    const graph = layers.slice(begin, end).reduce((all, layer, i) => all + layer[KEPT] - (i > 0 ? layer[FREED] : 0), 0);
    const images = s === 0 ? input : 0;
    sizes.kept.push(images + (state.recompute ? layers[end - 1][OUTPUT] : graph));
    sizes.deferred.push(s === 0 ? images + graph : layers.slice(begin, end).reduce((all, layer) => all + layer[DEFERRED], 0));
    sizes.rebuilt.push(state.recompute ? graph : 0);
  });
  return sizes;
}

// Returns the flags with which a program plans the same.
export function profileFlags(state, stages, microbatches) {
  const { flags, microbatch } = MODELS[state.model];
  const split = splitOf(timesOf(state), stages).join(",");
  return `${flags} --batch-size ${microbatch * microbatches} --split ${split} --clock modelled --device-model ${state.device} --link ${state.link} --profile`;
}
