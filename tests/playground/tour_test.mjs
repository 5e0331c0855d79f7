// What the guided tour promises comes true: node tour_test.mjs SCHEDULES.js
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { LEGAL, Library } from "../../docs/playground/library.js";
import { peakOf } from "../../docs/playground/memory.js";
import { pinnedOf, stateOf } from "../../docs/playground/state.js";
import { TOUR } from "../../docs/playground/tour.js";

const library = new Library(await createRequire(import.meta.url)(process.argv[2])());

// Returns what a step of the tour shows after `changes` of its settings, and what its pinned schedule shows.
function tried(step, changes = {}) {
  const state = { ...stateOf(TOUR[step - 1][1]), ...changes };
  const shown = [pinnedOf(state, library), state].map((one) => one && library.explain(library.run(one)));
  return { pinned: shown[0], own: shown[1] };
}
const bubble = ({ explanation }) => explanation[1];
const says = (step, text) => assert.match(TOUR[step - 1].slice(2).join(" "), text);

says(2, /Drag the micro-batches up/);
assert.ok(tried(2, { microbatches: 26 }).own.idle < tried(2).own.idle / 2);
assert.equal(peakOf(tried(2, { microbatches: 26 }).own, 0), 26);

says(3, /Raise the micro-batches of both/);
const more = tried(3, { microbatches: 16 });
assert.deepEqual([peakOf(more.pinned, 0), peakOf(more.own, 0)], [16, 4]);
assert.equal(more.pinned.seconds, more.own.seconds);

says(4, /Raise the latency/);
const gain = (latency) => { const { pinned, own } = tried(4, { latency }); return pinned.seconds - own.seconds; }; // prettier-ignore
assert.ok(gain(0) > 0 && gain(0.5) > 0 && gain(2) < 0, "with a latency of 2 the additional messages cost more");

says(5, /input gradient slower/);
assert.ok(bubble(tried(5, { input: 2 }).own) > bubble(tried(5).own));

says(6, /make the last stage slow/);
const { own: slow, pinned: slowToo } = tried(6, { stages: [1, 1, 1, 1, 1, 1, 1, 3] });
assert.deepEqual(slowToo.costs.forward.map((cost) => Math.round(1e9 * cost) / 1e9), [1, 1, 1, 2], "the pinned one has the same slow head");
assert.deepEqual([...slow.explanation.slice(7, 9)], [0, 7], "rank 0 suffers, by stage 7");

says(7, /micro-batches per batch to 4/);
const versions = (batch) => [...tried(7, { batch }).own.ranks.slice(1, 3)]; // of rank 0: versions, and updates by which gradients are late
assert.deepEqual([versions(1), versions(4)], [[4, 3], [2, 1]]); // prettier-ignore

says(8, /drag 0F1 before 0B0, or 1F1 behind 1B0.*1F1B, which is 12/);
assert.notEqual(tried(8).own.status, LEGAL);
for (const table of ["0F0,0F1,0B0,0F2,0B1,0B2\n1F1,1F0,1B0,1B1,1F2,1B2", "0F0,0B0,0F1,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2"]) {
  assert.equal(tried(8, { table }).own.status, LEGAL);
}
assert.equal(library.run(stateOf("ranks=2&microbatches=3")).seconds, 12);
assert.ok(tried(8, { table: "0F0,0F1,0B0,0F2,0I1,0W1,0B2\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2" }).own.seconds < 12);
console.log(`${TOUR.length} steps keep what they promise`);
