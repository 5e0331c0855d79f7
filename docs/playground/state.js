// What the reader has chosen: its defaults, its form in the page's address, and undo.

import { sizesOf } from "./table.js";

export const DEFAULTS = Object.freeze({
  schedule: "1f1b", ranks: 4, microbatches: 8, chunks: 0, group: 0,
  forward: 1, input: 1, weight: 1, update: 0, stages: [], links: [], // factors of the times of stages and links; 1 where there is none
  model: "", device: "h200", link: "nvlink4", // profiled costs in place of those three, the update and messages below
  latency: 0, transfer: 0, receives: "ahead", waits: false, recompute: false,
  versions: "stash", batch: 1, limit: 0, gib: 0, // of activations, in micro-batches or with a model in GiB; 0: no limit
  league: [], // idle shares of others' schedules
  table: "", // in place of the schedule
  pinned: "", // another state's address, for comparison
  follow: false, // the pinned one has all but its own order from this one
  chosen: "", // in the timeline: "3F0", or "before3F0" for a gap
  tour: 0, // the step of the tour, from 1
}); // prettier-ignore

const OWN = ["schedule", "table", "chunks", "group", "versions", "batch", "waits"]; // what makes an order

// The pinned state, or null. One that follows has the other's factors of stages, for its own number of stages.
export function pinnedOf(state, library) {
  if (!state.pinned) return null;
  const pinned = stateOf(state.pinned);
  if (!state.follow) return pinned;
  const following = { ...state, ...(state.table ? sizesOf(state.table) : {}), ...Object.fromEntries(OWN.map((name) => [name, pinned[name]])), pinned: "" };
  if (state.stages.length > 0) following.stages = resampled(state.stages, library.stageCount(state), library.stageCount(following));
  return following;
}

// Factors of `count` parts of a model, as those of `others` parts.
function resampled(factors, count, others) {
  return Array.from({ length: others }, (_, other) => {
    const shared = (i) => Math.max(Math.min((i + 1) / count, (other + 1) / others) - Math.max(i / count, other / others), 0);
    return Array.from({ length: count }, (_, i) => others * shared(i) * (factors[i] ?? 1)).reduce((sum, one) => sum + one, 0);
  });
}

// Whole numbers, with their least and most.
const WHOLE = { ranks: [1, 64], microbatches: [1, 512], chunks: [0, 16], group: [0, 512], batch: [1, 64], tour: [0, 8] };

// Returns the state's differences from the defaults, as "schedule=gpipe&ranks=8".
export function addressOf(state) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const [now, before] = [textOf(state[name]), textOf(value)];
    if (now !== before) parts.set(name, now);
  }
  return parts.toString();
}

// An address within another one, which outlives a program that decodes links.
export const nested = (address) => (address || "schedule=1f1b").replaceAll("&", "!").replaceAll("=", "~");

export function stateOf(address) {
  const state = { ...DEFAULTS };
  const plain = address.replace(/^#/, "");
  for (const [name, text] of new URLSearchParams(plain.includes("=") ? plain : plain.replaceAll("!", "&").replaceAll("~", "="))) {
    if (name in DEFAULTS) state[name] = valueOf(text, DEFAULTS[name]);
    if (name in WHOLE) state[name] = Math.min(Math.max(Math.round(state[name]), WHOLE[name][0]), WHOLE[name][1]);
  }
  return state;
}

// Tables have their line ends as ";", which addresses keep readable.
function textOf(value) {
  if (Array.isArray(value)) return value.map((one) => String(one ?? 1)).join(" ");
  return String(value).trim().replaceAll("\n", ";");
}
function valueOf(text, like) {
  if (Array.isArray(like)) return text.split(" ").filter(Boolean).map(Number).map((one) => (one > 0 ? one : 1));
  if (typeof like === "boolean") return text === "true";
  if (typeof like === "number") return +text >= 0 && +text < 1e6 ? +text : like;
  return text.replaceAll(";", "\n");
}

// The states so far; undo and redo walk through them.
export class History {
  constructor(state) {
    this.states = [state];
    this.at = 0;
  }
  get now() {
    return this.states[this.at];
  }
  // A change with the same `kind` as the last one, such as another letter in the table, replaces it.
  add(state, kind = "") {
    if (kind && kind === this.kind && this.at === this.states.length - 1) this.states.pop();
    else this.states.length = this.at + 1;
    this.states.push(state);
    this.at = this.states.length - 1;
    this.kind = kind;
  }
  move(by) {
    this.kind = "";
    this.at = Math.min(Math.max(this.at + by, 0), this.states.length - 1);
    return this.now;
  }
}
