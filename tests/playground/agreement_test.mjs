// WebAssembly says what native code says, in all fields: node agreement_test.mjs SCHEDULES.js NATIVE_ROWS [CHROMIUM PAGE]
// With the last two a page in a browser says it, otherwise node.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { Actions } from "../../docs/playground/cause.js";
import { versionsOf } from "../../docs/playground/charts.js";
import { costsOf, flat, LEGAL, Library, VERSIONS } from "../../docs/playground/library.js";
import { DEFAULTS } from "../../docs/playground/state.js";
import { resolve } from "node:path";
import { Browser } from "./browser.mjs";

const [schedules, nativeRows, chromium, page] = process.argv.slice(2);
const library = new Library(await createRequire(import.meta.url)(schedules)());
const ARRAYS = ["rankBegin", "actions", "times", "ranks", "rankTimes", "figures", "stageToRank", "explanation", "traffic"];
const FIELDS = ["status", "message", ...ARRAYS, "idle", "table", "lowered", "repaired"];

// Mulberry32: the same numbers on every machine.
let seed = 52;
function random(end) {
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * end);
}
const pick = (list) => list[random(list.length)];

function hashOf(bytes) {
  let hash = 2166136261;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 16777619);
  return hash >>> 0;
}
function hashOfText(which) {
  return hashOf(new TextEncoder().encode(library.text(which)));
}

function randomState() {
  const tenths = () => random(40) / 10;
  const kind = pick(library.kinds);
  return {
    ...DEFAULTS, schedule: kind.name, ranks: 1 + random(8), microbatches: 1 + random(24),
    chunks: kind.maxChunks > kind.minChunks ? random(4) : 0, group: kind.takesGroup && random(3) === 0 ? random(9) : 0,
    versions: pick(VERSIONS), batch: 1 + random(4), forward: tenths(), input: tenths(), weight: tenths(), update: tenths(), latency: tenths(),
    transfer: tenths() / 7, stages: Array.from({ length: 16 }, () => 0.25 + random(12) / 4),
    links: Array.from({ length: random(9) }, () => 0.25 + random(12) / 4), receives: pick(["use", "ahead"]), waits: random(3) === 0, recompute: random(3) === 0,
  }; // prettier-ignore
}

// A generated table with up to three changes: cells that swap, vanish, come twice, or get another number.
function mutatedTable() {
  let table = "";
  while (!table) table = library.set({ ...randomState(), schedule: pick(library.kinds.slice(0, -1)).name }) ? library.text(1) : "";
  const rows = table.trim().split("\n").map((line) => line.split(","));
  for (let change = random(4); change > 0; --change) {
    const row = pick(rows);
    const [a, b] = [random(row.length), random(row.length)];
    const kind = random(4);
    if (kind === 0) [row[a], row[b]] = [row[b], row[a]];
    else if (kind === 1) row.splice(a, 1);
    else if (kind === 2) row.splice(a, 0, row[b] ?? "0F0");
    else row[a] = (row[a] ?? "").replace(/\d+$/, random(9));
  }
  return rows.map((row) => row.join(",")).join("\n");
}

// The line that native_rows.cpp reads.
function lineOf(state) {
  const begin = state.table ? ["read", state.table.replaceAll("\n", ";")]
    : state.schedule === "pipedream" ? ["make_pipedream", state.ranks, state.microbatches, state.batch, VERSIONS.indexOf(state.versions)]
    : ["make", state.schedule, state.ranks, state.microbatches, state.chunks, state.group]; // prettier-ignore
  const stageToRank = library.set(state) ? library.array("stageToRank") : [0];
  const costs = flat(costsOf(state, stageToRank));
  return [...begin, state.receives === "use" ? 0 : 4, Number(state.waits), Number(state.recompute), costs.join(",")].join("\t");
}

// Whether the versions that the page draws reach the library's peaks.
function drawsAllVersions(state) {
  const result = library.run(state);
  if (result.status !== LEGAL || state.schedule !== "pipedream" || state.table) return true;
  const actions = new Actions(result);
  return [...Array(result.rankCount).keys()].every((rank) => Math.max(...versionsOf(actions, rank).map(([, count]) => count)) === result.ranks[7 * rank + 1]);
}

function rowOf(state) {
  if (!library.set(state)) return `0 ${hashOfText(0)}`;
  library.setCosts(state);
  const status = library.call("simulate", state.receives === "use" ? 0 : 4, Number(state.waits), Number(state.recompute));
  const row = [status, hashOfText(0)];
  if (status === LEGAL) library.call("explain");
  if (status > 0) row.push(...ARRAYS.map((name) => hashOf(new Uint8Array(library.array(name).buffer))));
  if (status === LEGAL) row.push(hashOf(new Uint8Array(new Float64Array([library.idle(3)]).buffer)), hashOfText(1), hashOfText(2));
  row.push(library.call("repair") ? hashOfText(1) : 0);
  return row.join(" ");
}

async function rowsInBrowser(states) {
  const browser = await Browser.open(chromium);
  await browser.go(`file://${resolve(page)}`);
  const rows = await browser.evaluate(`(() => {
    const [library, ARRAYS, LEGAL] = [playground.library, ${JSON.stringify(ARRAYS)}, ${LEGAL}];
    ${hashOf} ${hashOfText} ${rowOf}
    return ${JSON.stringify(states)}.map(rowOf);
  })()`);
  await browser.close();
  return rows;
}

const states = [...Array.from({ length: 300 }, randomState), ...Array.from({ length: 200 }, () => ({ ...randomState(), table: mutatedTable() }))];
const native = execFileSync(nativeRows, { input: `${states.map(lineOf).join("\n")}\n`, encoding: "utf8", maxBuffer: 1 << 26 }).trim().split("\n");
const rows = chromium ? await rowsInBrowser(states) : states.map(rowOf);
const counts = [0, 0, 0];
let different = 0;
states.forEach((state, i) => {
  const [row, other] = [rows[i].split(" "), (native[i] ?? "").split(" ")];
  ++counts[row[0]];
  const fields = row.flatMap((value, at) => (value === other[at] ? [] : [FIELDS[at] ?? at]));
  if (fields.length === 0 && row.length === other.length) return;
  ++different;
  console.error(`${lineOf(state)}\n  differs in ${fields.join(", ")}`);
});
const wrongVersions = states.filter((state) => !drawsAllVersions(state));
for (const state of wrongVersions) console.error(`${lineOf(state)}\n  draws other versions of the weights than the library keeps at most`);
console.log(`${states.length} cases: ${counts[2]} legal, ${counts[1]} stuck, ${counts[0]} refused; ${different} differ`);
process.exit(different > 0 || wrongVersions.length > 0 || native.length !== states.length || Math.min(...counts) < 20 ? 1 : 0);
