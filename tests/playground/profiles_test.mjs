// Named models on named devices: node profiles_test.mjs SCHEDULES.js PROGRAMS
// profiles.js is what the programs say, and the page's steps are those that its commands plan.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { commandOf } from "../../docs/playground/files.js";
import { LEGAL, Library } from "../../docs/playground/library.js";
import { profilesBy } from "../../docs/playground/make_profiles.mjs";
import { MODELS } from "../../docs/playground/profiles.js";
import { splitOf } from "../../docs/playground/profile.js";
import { stateOf } from "../../docs/playground/state.js";

const [schedules, programs] = process.argv.slice(2);
const library = new Library(await createRequire(import.meta.url)(schedules)());

const now = readFileSync(new URL("../../docs/playground/profiles.js", import.meta.url), "utf8");
assert.equal(profilesBy(join(programs, "ch05_interleaved")), now, "profiles.js is old: make_profiles.mjs writes it anew");

assert.deepEqual(splitOf(Array(6).fill([1, 1, 1]), 4), [2, 2, 1, 1]);
assert.deepEqual(splitOf([[9, 0, 0], ...Array(3).fill([1, 1, 1])], 2), [1, 3]); // prettier-ignore

// The steps that a command plans: on the modelled clock, and from the profile file that it writes.
function stepsOf(command) {
  const file = command.replace(" --profile", " --profile-file profile/profile.json");
  const script = `cd "$(mktemp -d)"; ${command} --out profile; ${file.slice(file.lastIndexOf("\n") + 1)}`;
  const plans = execFileSync("bash", ["-ec", script], { encoding: "utf8" });
  return [...plans.matchAll(/^ {2}step +([\d.]+) ms/gm)].map(([, step]) => Number(step));
}

for (const address of [
  "schedule=1f1b&model=vit&link=none",
  "schedule=gpipe&model=resnet50&device=t4&link=pcie4&ranks=3&microbatches=5&recompute=true",
  "schedule=zb-h1&model=gpt&device=a100&link=ethernet100&ranks=6",
  "schedule=foldx_aiao&chunks=2&model=resnet50&device=laptop&receives=use",
  "table=0F0,0F1,0B0,0B1;1F0,1B0,1F1,1B1&model=gpt&device=laptop",
]) {
  const result = library.run(stateOf(address));
  assert.equal(result.status, LEGAL, `${address}: ${result.problems}`);
  const command = commandOf(stateOf(address), result).replaceAll("build/release/bin", programs);
  const [modelled, simulated] = stepsOf(command);
  // Both round: a layer's costs to a nanosecond, and the printed step to a microsecond.
  assert.ok(Math.abs(result.seconds - simulated) < 2e-3, `${address}: ${result.seconds} ms here, ${simulated} ms there\n${command}`);
  // The modelled clock also counts the update and the addition of gradients, and recomputes less.
  assert.ok(Math.abs(modelled / result.seconds - 1) < 0.1, `${address}: ${result.seconds} ms here, modelled ${modelled}`);
}
for (const [address, problem] of [
  ["model=nope", /^model 'nope': expected resnet50, vit, gpt$/],
  ["model=vit&device=constructor", /^device 'constructor': expected h200, a100, t4, laptop$/],
  ["model=vit&link=nope", /^link 'nope': expected none, nvlink4/],
  ["model=vit&schedule=foldx_aiao&ranks=16&chunks=2", /^vit has 28 layers, too few for 32 stages/],
]) {
  assert.match(library.run(stateOf(address)).problems[0], problem);
}
console.log(`${Object.keys(MODELS).length} models agree with the programs`);
