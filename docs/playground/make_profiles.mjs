// Writes profiles.js: node make_profiles.mjs CH05_INTERLEAVED > profiles.js
// Each model's profile file (docs/reference/profile.md) on each device, of which nothing needs to be there: the clock is
// modelled. Runs of equal layers become one.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MODELS = {
  resnet50: { title: "ResNet-50, images of 224 x 224", flags: "--model resnet50 --image-size 224", microbatch: 16 },
  vit: { title: "vision transformer, 24 blocks, 1,024 wide", flags: "--model vit --depth 24 --width 1024 --heads 16", microbatch: 32 },
  gpt: { title: "GPT, 24 blocks, 1,024 wide, 1,024 bytes", flags: "--model gpt --depth 24 --width 1024 --heads 16 --context 1024", microbatch: 4 },
};
const DEVICES = ["h200", "a100", "t4", "laptop"];

const inNanoseconds = (seconds) => Math.round(seconds * 1e9) / 1e6;

function layersOn(program, { flags, microbatch }, device) {
  const out = mkdtempSync(join(tmpdir(), "profile-"));
  const run = `${flags} --ranks 1 --microbatches 1 --batch-size ${microbatch} --clock modelled --device-model ${device} --explain --profile`;
  execFileSync(program, [...run.split(" "), "--out", out], { stdio: ["ignore", "ignore", "inherit"] });
  const { layers } = JSON.parse(readFileSync(join(out, "profile.json"), "utf8"));
  rmSync(out, { recursive: true });
  const runs = [];
  for (const layer of layers) {
    const times = [layer.forward_seconds, layer.backward_input_seconds, layer.backward_weight_seconds].map(inNanoseconds);
    const costs = [...times, layer.output_bytes];
    if (runs.length > 0 && costs.every((cost, i) => cost === runs.at(-1)[i + 1])) ++runs.at(-1)[0];
    else runs.push([1, ...costs]);
  }
  return JSON.stringify(runs);
}

export function profilesBy(program) {
  const models = Object.entries(MODELS).map(([name, model]) => {
    const rows = DEVICES.map((device) => `      ${device}: ${layersOn(program, model, device)},`);
    return `  ${name}: {\n    title: "${model.title}",\n    flags: "${model.flags}",\n    microbatch: ${model.microbatch},\n    devices: {\n${rows.join("\n")}\n    },\n  },`;
  });
  return `// Written by make_profiles.mjs. Of each device [[layers, forward, input gradient, weight gradient, bytes of the output]],
// per layer and micro-batch; times in ms.
export const MODELS = {\n${models.join("\n")}\n}; // prettier-ignore\n`;
}

if (process.argv[1].endsWith("make_profiles.mjs")) process.stdout.write(profilesBy(process.argv[2]));
