// Writes profiles.js: node make_profiles.mjs CH05_INTERLEAVED > profiles.js
// What each layer of a model takes and keeps, from plans of the program on its modelled clock; so none of the devices needs
// to be there. In these plans a stage is one layer, or two: layers of which one is fused with the next take less together.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MODELS = {
  resnet50: { title: "ResNet-50, images of 224 x 224", flags: "--model resnet50 --image-size 224", microbatch: 16, input: 4 * 16 * 3 * 224 * 224 },
  vit: { title: "vision transformer, 24 blocks, 1,024 wide", flags: "--model vit --depth 24 --width 1024 --heads 16", microbatch: 32, input: 4 * 32 * 28 * 28 },
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

// What each layer and the next one take less if one stage has both, the times as above.
function gainsOf(program, model, device, layers) {
  const gains = [];
  for (const first of [0, 1]) {
    const pairs = Math.floor((layers.length - first) / 2);
    const rest = layers.length - first - 2 * pairs;
    const split = [...Array(first).fill(1), ...Array(pairs).fill(2), ...Array(rest).fill(1)];
    const together = timesOf(program, model, device, split);
    for (let pair = 0; pair < pairs; ++pair) {
      const at = first + 2 * pair;
      gains[at] = together[first + pair].map((ms, i) => layers[at][i] + layers[at + 1][i] - ms);
    }
  }
  return gains;
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
    const times = timesOf(program, model, device, layers.map(() => 1)); // prettier-ignore
    const texts = [times, gainsOf(program, model, device, times)].map((rows) => runsOf(rows.map((row) => row.map(inNanoseconds)), ROUNDED)); // prettier-ignore
    return `      ${device}: { times: ${texts[0]}, gains: ${texts[1]} },`;
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
// device, in ms: [[layers, forward, backward, input gradient, weight gradient, adding the gradients of another micro-batch,
// update]]. \`gains\`: the same, by how much less a layer and the next one take in one stage.
export const MODELS = {\n${Object.entries(MODELS).map((model) => textOf(program, model, devices)).join("\n")}\n}; // prettier-ignore\n`;
}

if (process.argv[1].endsWith("make_profiles.mjs")) process.stdout.write(profilesBy(process.argv[2]));
