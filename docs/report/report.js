// The report: fills the page with what the facts say, and draws again when the window changes.
import { partTable } from "./charts.js";
import { curvePictures, epochsPicture } from "./curves.js";
import { MEMORY_PARTS, linksTable, mostBytes, peaksPicture } from "./links.js";
import { StepView, stepName } from "./steps.js";
import { byId, colourOf, escaped, legend, timeText, widthOf } from "./text.js";
import { badgesOf, fiveTable, partsOfStep, settingsTable, sumOf, verdictOfRuns, writeLists } from "./words.js";

const facts = JSON.parse(byId("facts").textContent);
const { runs } = facts;
const withSteps = runs.filter((run) => run.trace.steps.length > 0);
const namedFor = (run, content) => `<div>${runs.length > 1 ? `<h3>${escaped(run.name)}</h3>` : ""}${content}</div>`;
let view = null; // the step that is shown

function writePage() {
  document.title = `${runs.map((run) => run.name).join(", ")} · report`;
  byId("names").textContent = runs.map((run) => run.name).join(", ");
  byId("verdict").textContent = verdictOfRuns(facts);
  byId("badges").innerHTML = badgesOf(facts);
  byId("five").innerHTML = fiveTable(runs);
  byId("waterfalls").innerHTML = runs.map((run) => namedFor(run, `<table class="waterfall">${partTable(partsOfStep(run), sumOf(partsOfStep(run)), timeText)}</table>`)).join("");
  byId("links").innerHTML = runs.map((run) => namedFor(run, linksTable(run))).join("");
  byId("settings").innerHTML = settingsTable(facts);
  byId("settings-card").hidden = facts.settings.length === 0;
  byId("memory-legend").innerHTML = runs.some((run) => run.predicted_memory.length > 0) ? legend(MEMORY_PARTS.map(([name, colour]) => [colour, name])) : "";
  byId("curve-legend").innerHTML = runs.length > 1 ? legend(runs.map((run, i) => [colourOf(i), run.name])) : "";
  writeLists(facts);
}

function writeStepControls() {
  byId("run").innerHTML = withSteps.map((run, i) => `<option value="${i}">${escaped(run.name)}</option>`).join("");
  byId("run-label").hidden = withSteps.length < 2;
  byId("run").value = String(withSteps.length - 1);
  const omitted = runs.filter((run) => run.trace.omitted);
  byId("no-steps").textContent = omitted.map((run) => `${run.name}: ${run.trace.omitted}.`).join(" ");
  for (const child of byId("step-card").children) if (withSteps.length === 0 && child.tagName !== "H2" && child.id !== "no-steps") child.hidden = true;
}

function chooseRun() {
  const { steps } = withSteps[byId("run").value].trace;
  byId("step").max = steps.length - 1;
  byId("step").value = Math.min(1, steps.length - 1); // the first one is cold
  byId("step").disabled = steps.length < 2;
}

function drawStep() {
  if (withSteps.length === 0) return;
  const run = withSteps[byId("run").value];
  const step = run.trace.steps[byId("step").value];
  view = new StepView(step, run);
  const width = widthOf(byId("measured"));
  byId("step-name").textContent = stepName(step);
  byId("measured").innerHTML = view.timeline("measured", width);
  byId("predicted-part").hidden = !view.hasPrediction;
  byId("predicted").innerHTML = view.hasPrediction ? view.timeline("predicted", width) : "";
  byId("action").textContent = "Point at an action to see its times, measured and predicted.";
  byId("bottleneck").textContent = view.bottleneck();
  byId("memory").innerHTML = view.memory(width);
  byId("memory-name").textContent = `over this step${runs.length > 1 ? `: ${run.name}` : ""}`;
  byId("memory-note").hidden = run.predicted_memory.length === 0;
  byId("memory-part").hidden = byId("memory").innerHTML === "";
}

// The width of a column, as report.css has it, of an element with so many.
function columnOf(element, count) {
  const [least, gap] = [420, 28];
  const columns = Math.max(1, Math.min(count, Math.floor((widthOf(element) + gap) / (least + gap))));
  return (widthOf(element) - gap * (columns - 1)) / columns;
}

function drawRuns() {
  byId("epochs").innerHTML = epochsPicture(runs, widthOf(byId("epochs")));
  const withMemory = runs.filter((run) => run.peak_bytes.length > 0);
  byId("peaks").innerHTML = withMemory.map((run) => peaksPicture(run, columnOf(byId("peaks"), withMemory.length), mostBytes(withMemory))).join("");
  byId("curves").innerHTML = curvePictures(runs, columnOf(byId("curves"), 4));
}

// Marks the action under the pointer in both timelines.
function pointAt(which, event) {
  const svg = byId(which).querySelector("svg");
  const box = svg.getBoundingClientRect();
  const width = svg.viewBox.baseVal.width;
  const found = view.at(which, width, ((event.clientX - box.x) * width) / box.width, ((event.clientY - box.y) * width) / box.width);
  for (const old of document.querySelectorAll(".mark")) old.remove();
  if (!found) return;
  byId("action").textContent = found.text;
  for (const [kind, [x, y, w, h]] of Object.entries(found.boxes)) {
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ class: "mark", x, y, width: w, height: h, fill: "none", stroke: "var(--text)", "stroke-width": 2.5 })) mark.setAttribute(name, value);
    byId(kind).querySelector("svg")?.append(mark);
  }
}

writePage();
writeStepControls();
if (withSteps.length > 0) chooseRun();
drawRuns();
drawStep();
byId("run").addEventListener("input", () => { chooseRun(); drawStep(); }); // prettier-ignore
byId("step").addEventListener("input", drawStep);
for (const which of ["measured", "predicted"]) {
  for (const type of ["pointermove", "pointerdown"]) byId(which).addEventListener(type, (event) => pointAt(which, event));
}
addEventListener("resize", () => { drawRuns(); drawStep(); }); // prettier-ignore
document.documentElement.dataset.ready = "true";
