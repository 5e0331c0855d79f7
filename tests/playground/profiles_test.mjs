// Named models on named devices: node profiles_test.mjs SCHEDULES.js PROGRAMS
// profiles.js is what the programs say, and the page's steps are those that its commands plan.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { commandNote, commandOf } from "../../docs/playground/files.js";
import { LEGAL, Library } from "../../docs/playground/library.js";
import { profilesBy } from "../../docs/playground/make_profiles.mjs";
import { peakOf } from "../../docs/playground/memory.js";
import { bottleneckOf } from "../../docs/playground/numbers.js";
import { MODELS } from "../../docs/playground/profiles.js";
import { splitOf } from "../../docs/playground/profile.js";
import { stateOf } from "../../docs/playground/state.js";

const [schedules, programs] = process.argv.slice(2);
const library = new Library(await createRequire(import.meta.url)(schedules)());

const now = readFileSync(new URL("../../docs/playground/profiles.js", import.meta.url), "utf8").split("\n");
const old = profilesBy(join(programs, "ch05_interleaved"), ["laptop"]).split("\n").filter((line) => !now.includes(line));
assert.deepEqual(old, [], "profiles.js is old: make_profiles.mjs writes it anew");

assert.deepEqual(splitOf(Array(6).fill([1, 2]), 4), [2, 2, 1, 1]);
assert.deepEqual(splitOf([[9, 0], ...Array(3).fill([1, 2])], 2), [1, 3]); // prettier-ignore

// What the page's command prints.
function planned(state, result) {
  const command = commandOf(state, result).replaceAll("build/release/bin", programs);
  return execFileSync("bash", ["-ec", `cd "$(mktemp -d)"; ${command}`], { encoding: "utf8" });
}
const numbers = (text, pattern) => [...text.matchAll(pattern)].map(([, one]) => Number(one));

// With a model, the page shows the step, the activations and the bottleneck that its command plans.
let furthest = 0;
for (const address of [
  "schedule=1f1b&model=resnet50&link=pcie4",
  "schedule=zb-h1&model=resnet50&link=pcie4",
  "schedule=zbv&model=resnet50&link=pcie4",
  "schedule=interleaved-zb&chunks=2&model=vit&link=ethernet100",
  "schedule=1f1b&model=vit&link=none",
  "schedule=gpipe&model=resnet50&device=t4&link=pcie4&ranks=3&microbatches=5",
  "schedule=1f1b&model=vit&device=h100&recompute=true",
  "schedule=zb-h1&model=gpt&device=a100&link=ethernet100&ranks=6",
  "schedule=foldx_aiao&chunks=2&model=resnet50&device=laptop&receives=use",
  "table=0F0,0F1,0B0,0B1;1F0,1B0,1F1,1B1&model=gpt&device=v100",
]) {
  const state = stateOf(address);
  const result = library.explain(library.run(state));
  assert.equal(result.status, LEGAL, `${address}: ${result.problems}`);
  const text = planned(state, result);
  const [step] = numbers(text, /^ {2}step +([\d.]+) ms/gm);
  const error = Math.abs(result.seconds / step - 1);
  furthest = Math.max(furthest, error);
  assert.ok(error < 0.005, `${address}: ${result.seconds} ms here, ${step} there`);
  const there = numbers(text, /holds at most ([\d.]+) MiB/g);
  const here = there.map((_, rank) => 1024 * peakOf(result, rank));
  assert.ok(there.length > 0 && there.every((mib, rank) => Math.abs(here[rank] - mib) < 0.001 * mib), `${address}: ${here} MiB here, ${there} there`);
  const named = /^Rank (\d+) is the bottleneck, above all by stage (\d+)/.exec(bottleneckOf(result));
  if (named) assert.match(text, new RegExp(`bottleneck +rank ${named[1]}, with stage ${named[2]}:`), address);
}
// Without one, a note says what the command plans in place of the page's step.
for (const address of ["schedule=gpipe", "transfer=1&stages=1+3", "schedule=interleaved&chunks=2", "schedule=zbv&recompute=true&waits=true", "table=0F0,0F1,0B0,0B1;1F0,1B0,1F1,1B1&forward=2"]) {
  const state = stateOf(address);
  const result = library.run(state);
  const note = commandNote(state, result, library);
  const [step] = numbers(planned(state, result), /^ {2}step +([\d.]+) units/gm);
  assert.equal(note ? numbers(note, /a step of ([\d.]+) units/g)[0] : result.seconds, step, `${address}: ${note}`);
}
for (const [address, problem] of [
  ["model=nope", /^model 'nope': expected resnet50, vit, gpt$/],
  ["model=vit&device=constructor", /^device 'constructor': expected h200, h100, a100, v100, t4, laptop$/],
  ["model=vit&link=nope", /^link 'nope': expected none, nvlink4/],
  ["model=vit&schedule=foldx_aiao&ranks=16&chunks=2", /^vit has 28 layers, too few for 32 stages/],
]) {
  assert.match(library.run(stateOf(address)).problems[0], problem);
}
console.log(`${Object.keys(MODELS).length} models agree with the programs: steps to ${(100 * furthest).toFixed(2)}%`);
