// Writes profiles.js: node make_profiles.mjs CH05_INTERLEAVED > profiles.js
// What each layer of a model takes and keeps, from plans of the program on its modelled clock; so none of the devices needs
// to be there. In these plans a stage is one layer, two or three: what a layer adds to a stage depends on those before it, as
// some are fused, and as the first one keeps the gradient of its input.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MODELS = {
  resnet50: { title: "ResNet-50, images of 224 x 224", flags: "--model resnet50 --image-size 224", microbatch: 16, input: 4 * 16 * 3 * 224 * 224 },
  vit: { title: "vision transformer, 24 blocks, 1,024 wide", flags: "--model vit --depth 24 --width 1024 --heads 16", microbatch: 32, input: 4 * 32 * 3 * 32 * 32 },
  gpt: { title: "GPT, 24 blocks, 1,024 wide, 1,024 bytes", flags: "--model gpt --depth 24 --width 1024 --heads 16 --context 1024", microbatch: 4, input: 4 * 4 * 1024 },
}; // prettier-ignore
const DEVICES = ["h200", "h100", "a100", "v100", "t4", "laptop"];
const ROUNDED = 4e-4; // ms by which equal layers may differ: a trace has times to an eighth of a microsecond

// Runs the program with a folder of its own; returns the JSON of its files by name.
function plan(program, { flags, microbatch }, microbatches, more) {
  const out = mkdtempSync(join(tmpdir(), "profile-"));
  const run = `${flags} --microbatches ${microbatches} --batch-size ${microbatch * microbatches} --clock modelled --explain --profile ${more}`;
  execFileSync(program, [...run.split(" "), "--out", out], { stdio: ["ignore", "ignore", "inherit"] });
  const files = Object.fromEntries(["profile", "schedule_trace"].map((name) => [name, JSON.parse(readFileSync(join(out, `${name}.json`), "utf8"))]));
  rmSync(out, { recursive: true });
  return files;
}

// What stages of these numbers of layers take, in ms: [[forward, backward, input gradient, weight gradient, adding the
// gradients of another micro-batch, update]].
function timesOf(program, model, device, split) {
  const ms = {};
  for (const schedule of ["1f1b", "zb-h1"]) {
    const more = `--ranks ${split.length} --split ${split.join(",")} --schedule ${schedule} --device-model ${device}`;
    for (const { ph, name, tid, dur } of plan(program, model, 2, more).schedule_trace.traceEvents) {
      if (ph === "X") ms[name === "optimizer" ? `${tid - 1}U` : name] = dur / 1000;
    }
  }
  const of = (name) => ms[name] ?? 0;
  return split.map((_, s) => [`${s}F0`, `${s}B0`, `${s}I0`, `${s}W0`].map(of).concat(of(`${s}B1`) - of(`${s}B0`), of(`${s}U`)));
}

// What stages of `size` layers from each layer on take; those that end with layer k at place k.
function timesUpTo(program, model, device, count, size) {
  const rows = Array(count).fill(Array(6).fill(0));
  for (let first = 0; first < size; ++first) {
    const whole = Math.floor((count - first) / size);
    const ones = (number) => Array(number).fill(1);
    const split = [...ones(first), ...Array(whole).fill(size), ...ones(count - first - size * whole)];
    timesOf(program, model, device, split).slice(first, first + whole).forEach((row, i) => (rows[first + size * (i + 1) - 1] = row));
  }
  return rows;
}

// What each layer adds to a stage as its first, as its second, and as a further layer.
function addedTimes(program, model, device, count) {
  const upTo = [1, 2, 3].map((size) => timesUpTo(program, model, device, count, size));
  return upTo.map((rows, i) => rows.map((row, k) => row.map((ms, which) => (k < i ? 0 : i === 0 ? ms : ms - upTo[i - 1][k - 1][which]))));
}

const inNanoseconds = (ms) => Math.round(ms * 1e6) / 1e6;

// [[count, …]] of runs of equal rows; `tolerance` is by how much equal ones may differ.
function runsOf(rows, tolerance = 0) {
  const runs = [];
  for (const row of rows) {
    if (runs.length > 0 && row.every((one, i) => Math.abs(one - runs.at(-1)[i + 1]) <= tolerance)) ++runs.at(-1)[0];
    else runs.push([1, ...row]);
  }
  return JSON.stringify(runs);
}

function textOf(program, [name, model], devicesAsked) {
  const { layers } = plan(program, model, 1, `--ranks 1 --device-model ${DEVICES[0]}`).profile;
  const devices = devicesAsked.map((device) => {
    const [first, second, further] = addedTimes(program, model, device, layers.length).map((rows) => runsOf(rows.map((row) => row.map(inNanoseconds)), ROUNDED)); // prettier-ignore
    return `      ${device}: { first: ${first}, second: ${second}, further: ${further} },`;
  });
  const bytes = runsOf(layers.map((layer) => [layer.output_bytes, layer.kept_bytes, layer.freed_bytes, layer.deferred_bytes]));
  return `  ${name}: {
    title: "${model.title}",
    flags: "${model.flags}",
    microbatch: ${model.microbatch},
    input: ${model.input},
    bytes: ${bytes},
    devices: {\n${devices.join("\n")}\n    },\n  },`;
}

export function profilesBy(program, devices = DEVICES) {
  return `// Written by make_profiles.mjs, for one micro-batch. \`bytes\` of the layers: [[layers, output, kept for the backward, part of
// the input that is freed after the forward, kept between I and W]]; \`input\`: those that enter the model. Times on each
// device, in ms, that a layer adds to a stage as its first, second or further layer: [[layers, forward, backward, input gradient,
// weight gradient, adding the gradients of another micro-batch, update]].
export const MODELS = {\n${Object.entries(MODELS).map((model) => textOf(program, model, devices)).join("\n")}\n}; // prettier-ignore\n`;
}

if (process.argv[1].endsWith("make_profiles.mjs")) process.stdout.write(profilesBy(process.argv[2]));
