// The page: one state, from which everything is drawn again after each change.
import { Actions, chainOf, describe, explainGap, lastAction, litBy } from "./cause.js";
import { drawActivations, drawCurve, drawLinks, linksOf, LINK_PITCH, microbatchesOfCurve, waterfall } from "./charts.js";
import { makeControls, showControls, TEXTS, TITLES } from "./controls.js";
import { commandNote, commandOf, pngOf, save, svgOf } from "./files.js";
import { LEGAL, Library } from "./library.js";
import { amountText, limitOf, peakOf } from "./memory.js";
import { bottleneckOf, numbersOf, rowsOfAll, verdictOf } from "./numbers.js";
import { CanvasPainter, number, percent, themeOf } from "./painter.js";
import { addressOf, DEFAULTS, History, nested, pinnedOf, stateOf } from "./state.js";
import { isMovable, moved, nearestText, placeAt, placeOf, showProblems } from "./table.js";
import { drawTimeline, hit, horizonOf, Layout } from "./timeline.js";
import { showTour, TOUR } from "./tour.js";

const element = (id) => document.getElementById(id);
const NOTHING = { action: -1, lit: new Set(), chain: [], text: "" }; // chosen in the timeline
const LARGE = 6000; // actions: what takes long to explain follows after the picture

const nameOf = (state) => (state.table ? "a table" : TITLES[state.schedule]);

// The settings of the pinned state that another one does not share, as texts: "4 micro-batches", "transfer 1".
function differences(pinned, state) {
  const names = Object.keys(DEFAULTS).filter((name) => !["schedule", "table", "pinned", "tour", "league", "limit", "gib", "follow", "chosen", "chunks", "versions", "batch", "group", "waits", ...(state.follow ? ["stages"] : [])].includes(name));
  return names.filter((name) => String(pinned[name]) !== String(state[name])).map((name) => `${TEXTS[name] ?? name} ${pinned[name] === "" ? "none" : pinned[name]}`);
}

// What a click on action i, or on the gap before i, lights up, and a sentence about it.
function viewOf(actions, i, isGap, rank) {
  if (!isGap) return { lit: litBy(actions, i), chain: [], text: describe(actions, i) };
  const chain = chainOf(actions, i >= 0 ? i : lastAction(actions));
  return { lit: new Set(chain.map(({ action }) => action)), chain, text: explainGap(actions, i, rank) };
}

// Copies a text, and says so on the button.
async function copy(id, text) {
  const button = element(id);
  const before = (button.dataset.text ??= button.textContent);
  const written = navigator.clipboard?.writeText(text) ?? Promise.reject();
  button.textContent = await written.then(() => "Copied", () => "Not allowed: copy it yourself");
  clearTimeout(button.timer);
  button.timer = setTimeout(() => (button.textContent = before), 2000);
}

class Page {
  constructor(library) {
    this.library = library;
    this.history = new History(stateOf(location.hash));
    makeControls(element("controls"), library, this.state, (name, value) => this.change({ [name]: value }, name));
    this.listen();
    this.open();
  }
  get state() { return this.history.now; } // prettier-ignore

  // Shows the state, with what its address has chosen in the timeline.
  open() {
    const { chosen } = this.state;
    this.state.chosen = "";
    this.redraw();
    if (chosen) this.chooseNamed(chosen);
  }
  change(difference, kind = "") {
    const state = { ...this.state, ...difference };
    if ("schedule" in difference) Object.assign(state, this.sizesFor(state));
    this.history.add(state, kind);
    this.redraw();
  }
  // Another schedule replaces a table, and keeps what it can of the settings.
  sizesFor(state) {
    const kindOf = (schedule) => this.library.kinds.find(({ name }) => name === schedule);
    const [kind, before] = [kindOf(state.schedule), kindOf(this.state.schedule)];
    this.chunks = state.chunks || this.chunks; // of the last order that has them
    const takesChunks = kind.name.startsWith("interleaved") || kind.name.startsWith("foldx");
    return { table: "", chunks: takesChunks ? (this.chunks ?? 2) : 0, group: kind.takesGroup ? state.group : 0, waits: Boolean(kind.sendsWait) || (state.waits && !before?.sendsWait) };
  }
  move(by) {
    this.history.move(by);
    this.redraw();
  }

  redraw(chosen = NOTHING) {
    const begin = performance.now();
    this.chosen = chosen;
    this.width = element("timeline").clientWidth; // of all with an axis of time; asked before the page changes
    const pinned = pinnedOf(this.state, this.library);
    this.pinned = pinned && this.library.run(pinned);
    if (this.pinned?.times?.length < 3 * LARGE) this.library.explain(this.pinned);
    const result = this.library.run(this.state);
    if (result.rankBegin) {
      this.actions = new Actions(result);
      this.result = result;
    }
    clearTimeout(this.addressTimer); // the browser takes longer for it than for the picture
    this.addressTimer = setTimeout(() => this.writeAddress(), 0);
    showControls(element("controls"), this.library, this.state, this.result?.stageToRank ?? []);
    this.showVerdict(result);
    this.drawTimelines();
    const rest = () => (this.showTable(result), this.drawDetails(result));
    if (this.actions && this.actions.count > LARGE) this.later(rest);
    else rest();
    this.showAll();
    showTour(element("tour"), this.state.tour, (step) => this.goToTour(step));
    const { at, states } = this.history; // disabled ones would lose the focus
    element("undo").ariaDisabled = String(at === 0);
    element("redo").ariaDisabled = String(at === states.length - 1);
    this.scriptTime = performance.now() - begin;
    document.documentElement.dataset.ready = "true";
  }
  writeAddress() {
    history.replaceState(null, "", `#${addressOf({ ...this.state, chosen: this.chosen.name ?? "" })}`);
  }
  // As in the address: "3F0" for an action, "before3F0" for the gap before it.
  chooseNamed(text) {
    const name = text.replace(/^before/, "");
    for (let i = 0; i < (this.actions?.count ?? 0); ++i) {
      if (this.actions.isWork(i) && this.actions.name(i) === name) return this.choose(i, name !== text && this.result.status === LEGAL, this.actions.rankOf[i]);
    }
  }
  // Once the picture is shown; a later redraw replaces what was still to come.
  later(draw) {
    clearTimeout(this.timer);
    this.timer = setTimeout(draw, 0);
  }

  showTable(result) {
    const table = element("table");
    table.readOnly = /U/.test(result.table ?? "");
    if (document.activeElement !== table || table.readOnly) table.value = result.table || this.state.table;
    element("command").textContent = result.rankBegin ? commandOf(this.state, result) : "";
    element("command-note").textContent = result.rankBegin ? commandNote(this.state, result, this.library) : "";
  }
  showVerdict(result) {
    showProblems(element("problems"), result, this.state);
    const nearest = result.status === LEGAL ? "" : this.library.repaired(this.state);
    element("repair").hidden = !nearest || nearest === result.table;
    element("nearest").textContent = !element("repair").hidden ? nearestText(this.state.table, nearest) : nearest ? "No other order helps: it ends if senders do not wait, or receives are posted ahead." : "";
    element("reset").hidden = !this.state.table;
    for (const id of ["timeline", "details", "numbers"]) element(id).classList.toggle("stale", !result.rankBegin);
    for (const id of ["details", "numbers"]) element(id).hidden = Boolean(result.rankBegin) && result.status !== LEGAL;
    element("verdict").textContent = verdictOf(result, this.state, this.pinned);
    if (result.status === LEGAL) element("numbers").innerHTML = numbersOf(this.actions, this.state, this.pinned);
  }

  drawTimelines(ofPinned = {}) {
    if (!this.actions) return;
    const theme = themeOf(document.documentElement);
    const isOneAxis = this.pinned?.rankBegin && this.pinned.unit === this.result.unit;
    this.horizon = Math.max(horizonOf(this.result), isOneAxis ? horizonOf(this.pinned) : 0);
    element("pinned").hidden = !this.pinned?.rankBegin;
    if (this.pinned?.rankBegin) {
      const pinned = pinnedOf(this.state, this.library);
      element("follow").checked = this.state.follow;
      const step = number(this.pinned.seconds) + this.pinned.unit;
      element("pinned-name").textContent = [`Pinned: ${nameOf(pinned)}`, `step ${step}`, ...differences(pinned, this.state)].join(", ");
      element("pinned-timeline").setAttribute("aria-label", `Timeline of the pinned schedule, a step of ${step}`);
      this.pinnedLayout = this.draw("pinned-timeline", new Actions(this.pinned), drawTimeline, ofPinned);
    }
    element("timeline-name").textContent = this.state.table ? "One step of your table" : this.state.schedule === "pipedream" ? "PipeDream, without a flush" : `One step of ${TITLES[this.state.schedule]}`;
    this.layout = this.draw("timeline", this.actions, drawTimeline, this.chosen);
    element("cause").textContent = this.chosen.text;
    element("stuck-note").hidden = this.result.status === LEGAL;
    element("lighter-note").hidden = this.result.stages <= this.result.rankCount && this.state.schedule !== "pipedream";
  }
  draw(id, actions, drawing, ...more) {
    const { result } = actions;
    const layout = new Layout(result, this.width, result.unit === this.result.unit ? this.horizon : horizonOf(result));
    drawing(new CanvasPainter(element(id), this.width, layout.height), actions, layout, themeOf(document.documentElement), ...more);
    return layout;
  }

  drawDetails(result) {
    if (result.status !== LEGAL) return;
    const theme = themeOf(document.documentElement);
    this.draw("activations", this.actions, drawActivations, limitOf(result, this.state), this.pinned?.status === LEGAL ? this.pinned : null);
    element("pinned-note").hidden = this.pinned?.status !== LEGAL || this.pinned.rankCount !== result.rankCount || this.pinned.unit !== result.unit;
    const peaks = Array.from({ length: result.rankCount }, (_, rank) => amountText(result, peakOf(result, rank)));
    const versions = Array.from({ length: result.rankCount }, (_, rank) => result.ranks[7 * rank + 1]);
    const hasVersions = this.state.schedule === "pipedream" && !this.state.table && !result.bytes;
    element("activations-unit").textContent = result.bytes ? "GiB" : "micro-batches of all of a rank's layers";
    element("versions-note").hidden = !hasVersions;
    element("activations").setAttribute("aria-label", `At most ${peaks.join(", ")}${result.bytes ? "" : " micro-batches"}${hasVersions ? ` and ${versions.join(", ")} versions of the weights` : ""}, rank by rank`);
    this.drawLinkRows(theme);
    this.library.explain(result);
    element("waterfall").innerHTML = waterfall(result, this.pinned);
    element("bottleneck").textContent = bottleneckOf(result);
    element("curve-card").hidden = Boolean(this.state.table) || this.state.schedule === "pipedream";
    if (!element("curve-card").hidden) this.later(() => this.drawIdleCurve(theme));
  }
  // Every schedule with the same settings, where the reader has opened that table.
  showAll() {
    if (!element("all").open) return;
    const rows = this.library.kinds.map(({ name }) => {
      const state = { ...this.state, schedule: name, ...this.sizesFor({ ...this.state, schedule: name }) };
      return { name, title: TITLES[name] ?? name, result: this.library.run(state) };
    });
    this.library.run(this.state); // whose messages can be saved
    element("all-rows").innerHTML = rowsOfAll(rows, this.state);
    for (const button of element("all-rows").querySelectorAll("button")) button.onclick = () => this.change({ schedule: button.value });
  }
  drawLinkRows(theme) {
    const takeTime = this.result.costs.message.some((message) => message > 0);
    const links = takeTime ? linksOf(this.actions) : [];
    const canvas = element("links");
    canvas.hidden = links.length === 0;
    element("links-note").textContent = this.result.rankCount === 1 ? "One rank alone sends nothing." : takeTime ? "Dark: the link is busy; light: the message is on its way." : "Messages take no time yet: give them a latency or a transfer time to see when each link is busy.";
    if (canvas.hidden) return;
    canvas.setAttribute("aria-label", `${links.length} links with ${links[0][1].length} messages on the first`);
    const layout = new Layout(this.result, this.width, this.horizon);
    drawLinks(new CanvasPainter(canvas, this.width, links.length * LINK_PITCH + 6), links, layout, theme);
  }
  drawIdleCurve(theme) {
    const points = microbatchesOfCurve(this.state.microbatches).map((m) => [m, this.library.idle(m)]);
    const canvas = element("curve");
    canvas.setAttribute("aria-label", points.map(([m, share]) => `${m}: ${percent(share)}`).join(", "));
    drawCurve(new CanvasPainter(canvas, canvas.clientWidth, 200), points, this.state.microbatches, canvas.clientWidth, 200, theme);
  }

  // Lights up what a click on action i, or on the gap before i (-1: at the end of the rank), is about.
  choose(i, isGap, rank) {
    this.chosen = { ...viewOf(this.actions, i, isGap, rank), action: isGap ? -1 : i, name: i < 0 ? "" : `${isGap ? "before" : ""}${this.actions.name(i)}` };
    this.drawTimelines();
    this.writeAddress();
    element("cause").scrollIntoView({ block: "nearest" });
  }
  // The same in the pinned timeline, for as long as nothing else is chosen.
  choosePinned({ offsetX, offsetY }) {
    const actions = new Actions(this.pinned);
    const found = hit(actions, this.pinnedLayout, offsetX, offsetY);
    const isGap = found?.action < 0;
    if (!found || (isGap && this.pinned.status !== LEGAL)) return;
    const view = viewOf(actions, isGap ? found.before : found.action, isGap, found.rank);
    this.chosen = NOTHING;
    this.drawTimelines(view);
    element("cause").textContent = `Pinned: ${view.text}`;
  }
  clear() {
    this.chosen = NOTHING;
    this.drawTimelines();
    this.writeAddress();
  }
  moveTo(i, place) {
    if (!isMovable(this.result.table) || place === placeOf(this.actions, i)) return;
    const [key, rank] = [[this.actions.operation(i), this.actions.stage(i), this.actions.microbatch(i)], this.actions.rankOf[i]];
    this.change({ table: moved(this.result.table, rank, placeOf(this.actions, i), place) });
    const now = this.actions.find(...key);
    if (now >= 0) this.choose(now, false);
  }
  goToTour(step) {
    if (this.state.tour === 0) this.beforeTour = this.state;
    const left = this.state.tour < TOUR.length && this.beforeTour ? this.beforeTour : this.state; // at its end you keep your own schedule
    this.history.add(step > 0 ? { ...stateOf(TOUR[step - 1][1]), ...this.waitsOf(TOUR[step - 1][1]), tour: step } : { ...left, tour: 0 });
    this.redraw();
    if (step === 0) return element("tour-start").focus();
    element("tour").scrollIntoView({ block: "nearest" });
    element("tour").focus();
  }
  waitsOf(address) {
    const kind = this.library.kinds.find(({ name }) => name === stateOf(address).schedule);
    return { waits: Boolean(kind?.sendsWait) && !stateOf(address).table };
  }

  listen() {
    const click = (id, act) => (element(id).onclick = act);
    click("tour-start", () => this.goToTour(1));
    click("undo", () => this.move(-1));
    click("redo", () => this.move(1));
    click("pin", () => this.change({ pinned: nested(addressOf({ ...this.state, pinned: "", tour: 0 })) }));
    element("pinned-timeline").onclick = (event) => this.choosePinned(event);
    click("unpin", () => this.change({ pinned: "", follow: false }));
    click("follow", () => this.change({ follow: element("follow").checked }));
    click("copy", () => (this.writeAddress(), copy("copy", location.href)));
    click("copy-command", () => copy("copy-command", element("command").textContent));
    click("repair", () => this.repair());
    click("reset", () => this.change({ table: "" }));
    click("save-csv", () => save("schedule.csv", this.result.table, "text/csv"));
    click("save-lowered", () => save("schedule_lowered.csv", this.library.lowered(), "text/csv"));
    click("save-svg", () => save("schedule.svg", this.svg(), "image/svg+xml"));
    click("save-png", async () => save("schedule.png", await pngOf(this.svg())));
    element("all").addEventListener("toggle", () => this.redraw(this.chosen));
    element("site").hidden = !location.protocol.startsWith("http"); // beside the book
    element("table").addEventListener("input", ({ target }) => this.change({ table: target.value }, "text"));
    addEventListener("hashchange", () => (this.history.add(stateOf(location.hash)), this.open()));
    addEventListener("resize", () => this.redraw(this.chosen));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw(this.chosen));
    addEventListener("keydown", (event) => this.pressed(event));
    this.listenToTimeline(element("timeline"));
  }
  // The timeline on paper, below the pinned one if there is one on the same axis.
  svg() {
    const isPinned = this.pinned?.rankBegin && this.pinned.unit === this.result.unit;
    const pinned = isPinned ? [[element("pinned-name").textContent, new Actions(this.pinned)]] : [];
    return svgOf([...pinned, [element("verdict").textContent, this.actions]]);
  }
  repair() {
    const table = this.library.repaired(this.state);
    if (table) this.change({ table });
  }
  pressed(event) {
    const inText = event.target instanceof HTMLTextAreaElement;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !inText) {
      event.preventDefault();
      this.move(event.shiftKey ? 1 : -1);
    }
  }
  listenToTimeline(canvas) {
    let held = -1;
    let from = 0;
    const at = ({ offsetX, offsetY }) => hit(this.actions, this.layout, offsetX, offsetY);
    canvas.onpointerdown = (event) => {
      held = at(event)?.action ?? -1;
      from = event.offsetX;
      if (held >= 0) canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => this.follow(canvas, event, held >= 0 && Math.abs(event.offsetX - from) > 4 ? held : -1);
    canvas.onpointerup = (event) => {
      const found = at(event);
      const isDrag = held >= 0 && Math.abs(event.offsetX - from) > 4;
      if (isDrag) this.moveTo(held, placeAt(this.actions, held, this.layout.timeAt(event.offsetX)));
      else if (!found) this.clear();
      else if (found.action >= 0) this.choose(found.action, false);
      else if (this.result.status === LEGAL) this.choose(found.before, true, found.rank);
      held = -1;
    };
    canvas.onpointerleave = () => this.drawTimelines();
    canvas.onkeydown = (event) => this.walk(event);
  }
  // The cursor: a line at the time below the pointer, on the timeline alone; and what is dragged.
  follow(canvas, event, dragged) {
    if (this.actions.count > LARGE) return;
    this.drawTimelines();
    const painter = CanvasPainter.over(canvas);
    const theme = themeOf(document.documentElement);
    const { layout } = this;
    const time = layout.timeAt(event.offsetX);
    if (time < 0 || time > layout.horizon) return;
    painter.line([[event.offsetX, layout.top], [event.offsetX, layout.height - 22]], theme.text, { dash: [2, 3] }); // prettier-ignore
    const nearRight = event.offsetX > layout.left + layout.width - 50;
    painter.text(event.offsetX + (nearRight ? -4 : 4), layout.height - 24, number(time, 3) + this.result.unit, theme.text, { size: 11, weight: 600, anchor: nearRight ? "end" : "start" });
    if (dragged < 0) return;
    const rank = this.actions.rankOf[dragged];
    const others = [...Array(this.result.rankBegin[rank + 1] - this.result.rankBegin[rank]).keys()].map((i) => i + this.result.rankBegin[rank]).filter((i) => i !== dragged && this.actions.isWork(i));
    const next = others[placeAt(this.actions, dragged, time)];
    element("cause").textContent = `${this.actions.name(dragged)} goes ${next === undefined ? "to the end" : `before ${this.actions.name(next)}`}.`;
    if (next !== undefined) painter.line([[layout.x(this.actions.start(next)), layout.y(rank) - 2], [layout.x(this.actions.start(next)), layout.y(rank) + layout.bar + 2]], theme.accent, { width: 3 }); // prettier-ignore
    const width = layout.x(this.actions.end(dragged)) - layout.x(this.actions.start(dragged));
    painter.frame(event.offsetX - width / 2, layout.y(this.actions.rankOf[dragged]), width, layout.bar, theme.accent);
  }
  // As a click on the gap before the chosen action.
  explainWait() {
    const i = this.chosen.action;
    if (i < 0 || this.result.status !== LEGAL) return;
    this.choose(i, true, this.actions.rankOf[i]);
    this.chosen.action = i; // the arrows go on from here
  }
  // Arrow keys choose an action; with Alt they move it; Enter says what it waited for.
  walk(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") return this.clear();
    if (event.key === "Enter") return this.explainWait();
    if (!by || !this.actions) return;
    event.preventDefault();
    const { actions, result } = this;
    const works = (rank) => [...Array(result.rankBegin[rank + 1] - result.rankBegin[rank]).keys()].map((i) => i + result.rankBegin[rank]).filter((i) => actions.isWork(i));
    const chosen = this.chosen.action;
    if (chosen < 0) return this.choose(works(0)[0], false);
    if (event.altKey && by[1]) return this.moveTo(chosen, placeOf(actions, chosen) + by[1]);
    const rank = Math.min(Math.max(actions.rankOf[chosen] + by[0], 0), result.rankCount - 1);
    const row = works(rank);
    const next = by[0] ? row.find((i) => actions.end(i) > actions.start(chosen)) ?? row.at(-1) : row[Math.min(Math.max(row.indexOf(chosen) + by[1], 0), row.length - 1)];
    this.choose(next, false);
  }
}

loadSchedules().then((module) => (globalThis.playground = new Page(new Library(module))));
