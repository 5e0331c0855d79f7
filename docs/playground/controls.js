// The form: one control per setting, shown where the schedule has it.
import { VERSIONS, rankLinks } from "./library.js";
import { number } from "./painter.js";
import { LINKS } from "./profile.js";
import { MODELS } from "./profiles.js";
import { DEFAULTS } from "./state.js";

export const TITLES = {
  naive: "Naive", gpipe: "GPipe", "1f1b": "1F1B", interleaved: "Interleaved 1F1B",
  "interleaved-sync": "Interleaved 1F1B, senders wait", foldx_aiao: "Looped breadth-first", "zb-h1": "Zero bubble H1", "zb-h2": "Zero bubble H2", "interleaved-zb": "Interleaved zero bubble",
  zbv: "Zero bubble V", dualpipev: "DualPipe V", pipedream: "PipeDream",
}; // prettier-ignore

// What the pinned schedule's heading calls a setting.
export const TEXTS = { microbatches: "micro-batches", input: "input gradient", weight: "weight gradient", stages: "times of stages", links: "times of links", transfer: "link busy for", waits: "senders wait" }; // prettier-ignore

const POLICIES = {
  stash: "the newest, kept until its backward", vertical: "of one age on all stages", "2bw": "two versions, one update late", flush: "drains before each update",
  none: "the newest also backwards: wrong",
}; // prettier-ignore

const RANGES = {
  // name: [label, least, most, step, text for a value]
  ranks: ["ranks", 1, 64, 1],
  microbatches: ["micro-batches", 1, 128, 1],
  chunks: ["chunks per rank", 1, 8, 1],
  group: ["group of micro-batches", 0, 32, 1, (value) => value || "default"],
  batch: ["micro-batches per batch", 1, 16, 1],
  forward: ["forward", 0.25, 4, 0.25],
  input: ["input gradient", 0.25, 4, 0.25],
  weight: ["weight gradient", 0.25, 4, 0.25],
  update: ["update of the weights", 0, 4, 0.25],
  latency: ["latency of a message", 0, 4, 0.1],
  transfer: ["time it keeps its link busy", 0, 4, 0.1],
  limit: ["limit on activations", 0, 32, 0.5, (value) => value || "none"],
  gib: ["limit on activations", 0, 32, 0.25, (value) => (value ? `${value} GiB` : "none")],
};

function range(name, state) {
  const [label, least, most, step, text = (value) => number(value)] = RANGES[name];
  const value = state[name];
  return `<label data-for="${name}" for="${name}">${label}<output>${text(value)}</output><input type="range" id="${name}" name="${name}" min="${least}" max="${Math.max(most, value)}" step="${step}" value="${value}"></label>`;
}
function choice(name, label, options, chosen) {
  const list = options.map(([value, text]) => `<option value="${value}"${value === chosen ? " selected" : ""}>${text}</option>`).join("");
  return `<label data-for="${name}">${label}<select name="${name}" aria-label="${label}">${list}</select></label>`;
}
function check(name, label, state) {
  return `<label class="check" data-for="${name}"><input type="checkbox" name="${name}"${state[name] ? " checked" : ""}>${label}</label>`;
}

// Fills the form once; `change(name, value)` hears of every change.
export function makeControls(form, library, state, change) {
  const open = (...settings) => (innerWidth > 860 || settings.some((name) => String(state[name]) !== String(DEFAULTS[name])) ? " open" : "");
  const names = [["", "your own table"], ...library.kinds.map((kind) => [kind.name, TITLES[kind.name] ?? kind.name])];
  form.innerHTML = `
    <details open><summary>Schedule</summary>${choice("schedule", "order of work", names, state.schedule)}<p id="summary" class="quiet"></p>
      ${range("ranks", state)}${range("microbatches", state)}<p id="batch-note" class="quiet">More of them are a larger batch: each one takes as long.</p>${range("chunks", state)}${range("group", state)}
      ${choice("versions", "versions of the weights", VERSIONS.map((name) => [name, `${name}: ${POLICIES[name]}`]), state.versions)}${range("batch", state)}</details>
    <details${open("model", "device", "forward", "input", "weight", "update", "recompute")}><summary>Time per micro-batch</summary>${choice("model", "model", [["", "none: times in units"], ...Object.entries(MODELS).map(([name, { title }]) => [name, title])], state.model)}
      ${choice("device", "device, modelled", Object.keys(MODELS.vit.devices).map((name) => [name, name]), state.device)}
      <p id="profile-note" class="quiet"></p>
      ${range("forward", state)}${range("input", state)}${range("weight", state)}${range("update", state)}
      ${check("recompute", "recompute (activation checkpointing)", state)}</details>
    <details id="per-stage"${state.stages.length ? " open" : ""}><summary>Times of each stage</summary><div id="stages" class="bars"></div></details>
    <details${open("link", "latency", "transfer", "receives", "waits")}><summary>Messages</summary>${choice("link", "link", Object.keys(LINKS).map((name) => [name, name]), state.link)}${range("latency", state)}${range("transfer", state)}
      ${choice("receives", "receives are posted", [["ahead", "ahead"], ["use", "at use"]], state.receives)}
      ${check("waits", "senders wait for their receivers", state)}
      <p class="quiet">A receive at use is posted when its action begins. If senders wait for it as well, ranks can block each other.</p></details>
    <details id="per-link"${state.links.length ? " open" : ""}><summary>Messages of each link</summary><div id="each-link" class="bars"></div></details>
    <details${open("limit", "gib")}><summary>Memory</summary>${range("limit", state)}${range("gib", state)}<p class="quiet" id="limit-note"></p></details>`; // prettier-ignore
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    const { list } = target.dataset;
    if (list) return change(list, [...form.querySelectorAll(`[data-list=${list}]`)].map((input) => Number(input.value)));
    const value = target.type === "checkbox" ? target.checked : target.type === "range" ? Number(target.value) : target.value;
    if (target.name !== "schedule" || value) change(target.name, value);
  });
}

// Shows the state, with only those controls that matter for it.
export function showControls(form, library, state, stageToRank) {
  const kind = library.kinds.find(({ name }) => name === state.schedule) ?? library.kinds[0];
  const [isTable, isProfiled] = [Boolean(state.table), Boolean(state.model)];
  const has = {
    ranks: !isTable, microbatches: !isTable,
    chunks: !isTable && kind.maxChunks > kind.minChunks, group: !isTable && Boolean(kind.takesGroup),
    versions: Boolean(kind.versions), batch: Boolean(kind.versions),
    device: isProfiled, link: isProfiled,
    limit: !isProfiled, gib: isProfiled, forward: !isProfiled, input: !isProfiled, weight: !isProfiled, update: !isProfiled, latency: !isProfiled, transfer: !isProfiled,
  }; // prettier-ignore
  for (const label of form.querySelectorAll("label[data-for]")) {
    const name = label.dataset.for;
    label.hidden = name in has && !has[name];
    const [input, output] = [label.querySelector("input, select"), label.querySelector("output")];
    if (input.type === "checkbox") input.checked = state[name];
    else {
      if (input.type === "range") input.max = Math.max(RANGES[name][2], state[name]);
      input.value = state[name];
    }
    if (name === "schedule") {
      input.options[0].hidden = !isTable;
      input.value = isTable ? "" : state.schedule;
    }
    if (name === "chunks" && state.chunks === 0) input.value = kind.minChunks ?? 1;
    const text = RANGES[name]?.[4] ?? number;
    if (output) output.textContent = text(Number(input.value));
  }
  form.querySelector("#summary").textContent = isTable ? "its lines say the ranks and the micro-batches" : kind.summary;
  form.querySelector("#limit-note").textContent = isProfiled ? "Of each rank, also between I and W. Weights and the optimizer's state are not counted."
    : "A micro-batch counts until its backward or its W. That more may be kept between I and W, such as gradients of outputs, only a model shows."; // prettier-ignore
  form.querySelector("#batch-note").hidden = isTable;
  form.querySelector("#profile-note").textContent = isProfiled ? profileNote(state) : "";
  showBars(form.querySelector("#stages"), "stages", state, Array.from(stageToRank, (_, s) => `stage ${s}`));
  const links = rankLinks(stageToRank).map(([a, b]) => `link ${a} – ${b}`);
  showBars(form.querySelector("#each-link"), "links", state, links);
  form.querySelector("#per-link").hidden = links.length === 0;
}

// How the model is cut, as far as it can be.
function profileNote(state) {
  return MODELS[state.model] ? `Micro-batches of ${MODELS[state.model].microbatch} samples each; its layers are cut so that the slowest stage is the fastest.` : "";
}

// One bar per name: the factors of the state's `list`.
function showBars(element, list, state, names) {
  const count = Math.min(names.length, 64);
  if (element.children.length !== count) {
    element.innerHTML = `<span><output></output><input type="range" data-list="${list}" min="0.25" max="4" step="0.25"><small></small></span>`.repeat(count);
  }
  const isRoomy = count <= 12;
  [...element.children].forEach(({ children: [output, input, name] }, i) => {
    input.value = state[list][i] ?? 1;
    output.textContent = isRoomy ? number(Number(input.value)) : "";
    name.textContent = isRoomy ? names[i].replace(/^\w+ /, "").replaceAll(" ", "") : "";
    input.ariaLabel = `time of ${names[i]}`;
    input.title = `${names[i]}: ${number(Number(input.value))} times`;
  });
}
