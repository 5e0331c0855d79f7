// Why an action starts when it does, what it needs and feeds, and who waits for whom in a deadlock.
import { B, F, I, OPERATIONS, RECV_B, RECV_F, SEND_B, SEND_F, W, U } from "./library.js";
import { number } from "./painter.js";

const EPSILON = 1e-9;

// A result with an index of its actions.
export class Actions {
  constructor(result) {
    this.result = result;
    this.count = result.actions.length / 4;
    this.microbatches = 1;
    for (let i = 0; i < this.count; ++i) this.microbatches = Math.max(this.microbatches, this.microbatch(i) + 1);
    this.places = new Int32Array(OPERATIONS.length * result.stages * this.microbatches).fill(-1);
    this.rankOf = new Int32Array(this.count);
    for (let rank = 0; rank < result.rankCount; ++rank) {
      for (let i = result.rankBegin[rank]; i < result.rankBegin[rank + 1]; ++i) {
        this.rankOf[i] = rank;
        this.places[this.key(this.operation(i), this.stage(i), this.microbatch(i))] = i;
      }
    }
  }
  key(operation, stage, microbatch) {
    return (operation * this.result.stages + stage) * this.microbatches + microbatch;
  }
  find(operation, stage, microbatch) {
    const isInside = stage >= 0 && stage < this.result.stages && microbatch >= 0 && microbatch < this.microbatches;
    return isInside ? this.places[this.key(operation, stage, microbatch)] : -1;
  }
  operation(i) { return this.result.actions[4 * i]; } // prettier-ignore
  stage(i) { return this.result.actions[4 * i + 1]; } // prettier-ignore
  microbatch(i) { return this.result.actions[4 * i + 2]; } // prettier-ignore
  version(i) { return this.result.actions[4 * i + 3]; } // prettier-ignore
  start(i) { return this.result.times[3 * i]; } // prettier-ignore
  end(i) { return this.result.times[3 * i + 1]; } // prettier-ignore
  arrival(i) { return this.result.times[3 * i + 2]; } // prettier-ignore
  has(operation) {
    for (let i = 0; i < this.count; ++i) if (this.operation(i) === operation || (operation === B && this.operation(i) === I)) return true;
    return false;
  }
  isWork(i) { return this.operation(i) <= U; } // prettier-ignore
  name(i) { return `${this.stage(i)}${OPERATIONS[this.operation(i)]}${this.microbatch(i)}`; } // prettier-ignore
  // The name, and as the timeline writes it where ranks have several stages: "4B0 (B0b)".
  label(i) {
    const { rankCount, stages, stageToRank } = this.result;
    if (stages === rankCount) return this.name(i);
    const chunk = stageToRank.slice(0, this.stage(i)).filter((rank) => rank === this.rankOf[i]).length;
    return `${this.name(i)} (${OPERATIONS[this.operation(i)]}${this.microbatch(i)}${String.fromCharCode(97 + chunk)})`;
  }
  hasRun(i) { return this.result.ranks[7 * this.rankOf[i] + 3] < 0 || i < this.result.ranks[7 * this.rankOf[i] + 3]; } // prettier-ignore
  isFirstOfRank(i) { return i === this.result.rankBegin[this.rankOf[i]]; } // prettier-ignore

  // The backward of a stage that gives the input gradient.
  backward(stage, microbatch) {
    return Math.max(this.find(B, stage, microbatch), this.find(I, stage, microbatch));
  }
  // Returns { producer, receive } of what computation i gets from another stage; indices, or -1.
  input(i) {
    const [operation, stage, microbatch] = [this.operation(i), this.stage(i), this.microbatch(i)];
    if (operation === F) return { producer: this.find(F, stage - 1, microbatch), receive: this.find(RECV_F, stage, microbatch) };
    if (operation === W) return { producer: this.find(I, stage, microbatch), receive: -1 };
    if (operation === U) return { producer: -1, receive: -1 };
    const producer = stage + 1 < this.result.stages ? this.backward(stage + 1, microbatch) : this.find(F, stage, microbatch);
    return { producer, receive: this.find(RECV_B, stage, microbatch) };
  }
  // The computations that use what computation i makes.
  outputs(i) {
    const [operation, stage, microbatch] = [this.operation(i), this.stage(i), this.microbatch(i)];
    const last = this.result.stages - 1;
    const found = operation === F ? [stage < last ? this.find(F, stage + 1, microbatch) : this.backward(stage, microbatch)]
      : operation === I ? [this.backward(stage - 1, microbatch), this.find(W, stage, microbatch)]
      : operation === B ? [this.backward(stage - 1, microbatch)] : []; // prettier-ignore
    return found.filter((one) => one >= 0);
  }
}

// Returns { kind, from } for when action i of work starts: "message" (from the action that makes its input), "send" (from
// the action that keeps the receiver from taking a message), "work" (from the action before it), or "start".
export function reasonOf(actions, i) {
  const start = actions.start(i);
  let before = i - 1;
  const first = actions.result.rankBegin[actions.rankOf[i]];
  const { producer, receive } = actions.input(i);
  if (receive >= 0 && actions.arrival(receive) >= start - EPSILON && start > 0) {
    const isBusy = before >= first && previousEnd(actions, i) >= start - EPSILON;
    if (!isBusy) return { kind: "message", from: producer };
  }
  for (; before >= first && !actions.isWork(before); --before) {
    const blocked = actions.end(before) - actions.start(before) > EPSILON && actions.end(before) >= start - EPSILON;
    if (blocked) return { kind: "send", from: receiverWork(actions, before) };
  }
  if (before >= first && actions.end(before) >= start - EPSILON) return { kind: "work", from: before };
  return producer >= 0 && start > 0 ? { kind: "message", from: producer } : { kind: "start", from: -1 };
}

// When the rank of i is free for it, but for its message.
export function previousEnd(actions, i) {
  return actions.isFirstOfRank(i) ? 0 : actions.end(i - 1);
}

// The work that the receiver of a send does before it posts the receive; -1 if none.
function receiverWork(actions, send) {
  const forward = actions.operation(send) === SEND_F;
  const stage = actions.stage(send) + (forward ? 1 : -1);
  let i = actions.find(forward ? RECV_F : RECV_B, stage, actions.microbatch(send));
  const first = i < 0 ? 0 : actions.result.rankBegin[actions.rankOf[i]];
  while (i >= first && !actions.isWork(i)) --i;
  return i >= first ? i : -1;
}

// The actions that decide when i starts, back to the beginning of the step: [{ action, kind }], i first.
export function chainOf(actions, i) {
  const chain = [];
  const seen = new Set();
  for (let at = i; at >= 0 && !seen.has(at); ) {
    seen.add(at);
    const { kind, from } = reasonOf(actions, at);
    chain.push({ action: at, kind });
    at = from;
  }
  return chain;
}

// The work after which the step is over: the end of the critical path.
export function lastAction(actions) {
  let last = -1;
  for (let i = 0; i < actions.count; ++i) {
    if (actions.isWork(i) && (last < 0 || actions.end(i) > actions.end(last))) last = i;
  }
  return last;
}

// Says in a sentence why the rank of i is idle before it; i is -1 for the end of the rank's list.
export function explainGap(actions, i, rank) {
  if (i < 0) return `Rank ${rank} has no more work in this step; the others are not done yet.`;
  const { kind, from } = reasonOf(actions, i);
  const name = actions.label(i);
  if (kind === "message") {
    const sender = actions.rankOf[from];
    const flies = actions.start(i) - actions.end(from) > EPSILON ? ", whose message was on its way" : "";
    return `Rank ${rank} is idle before ${name}: it waits for ${actions.label(from)} of rank ${sender}${flies}.`;
  }
  if (kind === "send") {
    const receiver = from >= 0 ? ` of rank ${actions.rankOf[from]}, which runs ${actions.label(from)}` : "";
    return `Rank ${rank} is idle before ${name}: a message that it sends waits for its receive${receiver}.`;
  }
  return `Rank ${rank} is not idle before ${name}.`;
}

// The work in a rank's list at or after i; the last one if there is none.
function workAt(actions, i) {
  const end = actions.result.rankBegin[actions.rankOf[i] + 1];
  let at = i;
  while (at < end && !actions.isWork(at)) ++at;
  return at < end ? at : i;
}

// The work that makes what a missing action sends, or before which it is posted; -1 if it is not in the table.
function makerOf(actions, operation, stage, microbatch) {
  if (operation === SEND_F) return actions.find(F, stage, microbatch);
  if (operation === SEND_B || operation === I || operation === B) return actions.backward(stage, microbatch);
  const at = actions.find(operation, stage, microbatch);
  return at < 0 ? -1 : workAt(actions, at);
}

// Where ranks wait in a circle: [{ rank, action, missing, holder }], with the work that waits and the one that it needs
// from another rank or -1; without a circle the chain ends at a rank that never runs what the one before it waits for.
// Empty if no rank is stuck.
export function circleOf(actions) {
  const { ranks, rankCount, stageToRank } = actions.result;
  const waits = Array.from({ length: rankCount }, (_, rank) => {
    const [at, operation, stage, microbatch] = ranks.slice(7 * rank + 3, 7 * rank + 7);
    if (at < 0 || operation < 0) return null;
    return { rank, action: workAt(actions, at), missing: makerOf(actions, operation, stage, microbatch), holder: stageToRank[stage] };
  });
  let rank = waits.findIndex(Boolean);
  const path = [];
  while (rank >= 0 && waits[rank] && !path.includes(rank)) {
    path.push(rank);
    rank = waits[rank].holder;
  }
  const begin = path.indexOf(rank);
  return path.slice(begin < 0 ? 0 : begin).map((one) => waits[one]);
}

// Says in a sentence when action i runs, what it needs and what it feeds.
export function describe(actions, i) {
  const { producer } = actions.input(i);
  const ofRank = (one) => `${actions.label(one)} of rank ${actions.rankOf[one]}`;
  const needs = producer >= 0 ? ` needs ${ofRank(producer)},` : " needs no other action,";
  const feeds = actions.outputs(i).map(ofRank).join(" and "); // prettier-ignore
  const version = actions.version(i) >= 0 ? `, with version ${actions.version(i)} of the weights` : "";
  if (!actions.hasRun(i)) return `${ofRank(i)} never runs:${needs} and feeds ${feeds || "no other"}.`;
  return `${actions.label(i)}, from ${number(actions.start(i))} to ${number(actions.end(i))}${actions.result.unit} on rank ${actions.rankOf[i]}${version}:${needs} and feeds ${feeds || "no other"}.`;
}

// Light up for a click on action i: what it needs and feeds, and the chain that decides its start.
export function litBy(actions, i) {
  const { producer } = actions.input(i);
  return new Set([i, ...(producer >= 0 ? [producer] : []), ...actions.outputs(i)]);
}
