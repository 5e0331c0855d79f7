// What a report says in words: the verdict, the five numbers, the settings, the commands.
import { number, percent } from "./painter.js";
import { bytesText, byId, escaped, isKnown, timeText } from "./text.js";

const PARTS = {
  ideal: "a rank's computations, as the mean over the ranks",
  bubble: "ranks wait for each other, although all have equally much to do",
  imbalance: "some stages take longer than others",
  messages: "activations and their gradients are on their way",
  reductions: "gradients are summed over ranks",
  update: "the optimizer's step",
  host: "the next batch is loaded; in chapter 7, the controller makes its calls",
};

export const stepsOf = (run) => run.epochs.at(-1).steps;
// Of a step, or of an epoch if it is not known how many steps that has.
export const stepSeconds = (run) => run.seconds / (stepsOf(run) || 1);

const hasParts = (epoch) => Object.keys(PARTS).every((name) => epoch.step_parts[name] !== undefined);

// Where the time of a step goes, [[name, seconds, why]]: that of the epoch whose time is nearest to the run's.
export function partsOfStep(run) {
  const epochs = run.epochs.filter(hasParts);
  const step = stepSeconds(run);
  if (epochs.length === 0) {
    const idle = isKnown(run.idle) ? run.idle : 0;
    return [["computing", (1 - idle) * step, "a rank computes, as the mean over the ranks"], ["waiting", idle * step, "a rank waits for others or for data"]]; // prettier-ignore
  }
  const distance = (epoch) => Math.abs(epoch.seconds - run.seconds);
  const { step_parts: seconds } = epochs.reduce((best, epoch) => (distance(epoch) < distance(best) ? epoch : best));
  return Object.entries(PARTS).map(([name, why]) => [name, seconds[name], why]);
}

export const sumOf = (parts) => parts.reduce((sum, [, seconds]) => sum + seconds, 0);

// The largest of the parts that are not a rank's own work.
function idleText(run) {
  if (run.ranks === 1) return "";
  const parts = partsOfStep(run);
  const [name, seconds] = parts.slice(1).reduce((most, part) => (part[1] > most[1] ? part : most));
  if (name !== "waiting" && seconds > 0) return `${((100 * seconds) / sumOf(parts)).toFixed(0)}% of its step is ${name}`;
  return isKnown(run.idle) ? `its ranks are idle ${(100 * run.idle).toFixed(0)}% of the time` : "";
}

function titleOf(run) {
  const many = (count, one, several) => (count ? `${count} ${Number(count) === 1 ? one : several}` : "");
  const what = [run.schedule ?? "", many(run.microbatches, "micro-batch", "micro-batches"), many(run.ranks, "rank", "ranks")].filter(Boolean).join(", ");
  return what ? `${run.name} (${what})` : run.name;
}

function speedText(run, baseline) {
  if (run.speed_up >= 1.005) return `is ${number(run.speed_up, 2 + (run.speed_up >= 10))} times as fast as ${baseline.name}`;
  return run.speed_up <= 0.995 ? `takes ${number(1 / run.speed_up, 3)} times as long as ${baseline.name}` : `is as fast as ${baseline.name}`;
}

const equal = (facts, a, b) => facts.equal_bytes.some((group) => group.includes(a) && group.includes(b));

// A sentence about the fastest run and its baseline, or about the only run.
export function verdictOfRuns(facts) {
  const { runs, baselines } = facts;
  const others = runs.map((run, i) => i).filter((i) => baselines[i] !== i);
  const comparable = others.filter((i) => isKnown(runs[i].speed_up));
  if (others.length > 0 && comparable.length === 0) return `These runs did different work, so their times cannot be compared: ${facts.reasons[0] ?? ""}.`;
  if (others.length === 0) {
    const run = runs[0];
    const predicted = isKnown(run.predicted_idle) ? ` (predicted ${percent(run.predicted_idle)})` : "";
    const idle = isKnown(run.idle) ? `, of which its ranks are idle ${percent(run.idle)}${predicted}` : "";
    return `${titleOf(run)}: ${stepsOf(run) ? "a step" : "an epoch"} takes ${timeText(stepSeconds(run))}${idle}.`;
  }
  const best = comparable.reduce((a, b) => (runs[b].speed_up > runs[a].speed_up ? b : a));
  const bytes = equal(facts, best, baselines[best]) ? "same bytes" : "";
  return `${[`${titleOf(runs[best])} ${speedText(runs[best], runs[baselines[best]])}`, idleText(runs[best]), bytes].filter(Boolean).join("; ")}.`;
}

export function badgesOf(facts) {
  const badge = (text, isBad) => `<span class="badge${isBad ? " bad" : ""}">${escaped(text)}</span>`;
  const groups = facts.equal_bytes.map((group) => group.map((i) => facts.runs[i].name).join(" = "));
  return [
    ...groups.map((names) => badge(`same bytes: ${names}`)),
    ...(facts.reasons.length > 0 ? [badge("not comparable: see the warnings", true)] : []),
  ].join("");
}

function fiveOf(run) {
  const steps = stepsOf(run);
  const most = (values) => (values.length > 0 ? Math.max(...values) : null);
  const total = (parts) => Object.values(parts).reduce((sum, one) => sum + one, 0);
  const peak = most(run.peak_bytes);
  const delays = run.delays.length > 0 || steps ? Math.max(0, ...run.delays) : null;
  const link = steps ? Math.max(0, ...run.links.map(([, , bytes]) => bytes)) : null;
  const at = run.peak_bytes.length > 1 ? `, rank ${run.peak_bytes.indexOf(peak)}` : "";
  return [
    [steps ? "step time" : "epoch time", stepSeconds(run), isKnown(run.predicted_seconds) ? run.predicted_seconds / (steps || 1) : null, timeText, `, ${run.clock} clock`],
    ["idle share", run.idle, run.predicted_idle, percent],
    ["memory per rank", peak, most(run.predicted_memory.map(total)), (bytes) => bytesText(bytes), at],
    ["bytes per link", link, most(run.trace.predicted_links.map(([, , bytes]) => bytes)), (bytes) => (bytes > 0 ? bytesText(bytes) : "none")],
    ["staleness", delays, null, (updates) => `${updates} ${updates === 1 ? "update" : "updates"}`],
  ];
}

export function fiveTable(runs) {
  const all = runs.map(fiveOf);
  const cell = ([, value, predicted, text, more = ""]) =>
    `<td>${isKnown(value) ? text(value) + escaped(more) : "–"}${isKnown(predicted) ? `<small>${text(predicted)}</small>` : ""}</td>`;
  const row = (_, i) => `<tr><th scope="row">${all[0][i][0]}</th>${all.map((five) => cell(five[i])).join("")}</tr>`;
  return headings(runs) + all[0].map(row).join("");
}

const headings = (runs) => (runs.length > 1 ? `<tr><td></td>${runs.map((run) => `<th scope="col">${escaped(run.name)}</th>`).join("")}</tr>` : "");

export function settingsTable(facts) {
  const row = ({ name, values }) => `<tr><th scope="row">${escaped(name)}</th>${values.map((one) => `<td>${escaped(one ?? "–")}</td>`).join("")}</tr>`;
  return headings(facts.runs) + facts.settings.map(row).join("");
}

export function writeLists(facts) {
  const commands = facts.runs.filter((run) => run.command);
  byId("commands").innerHTML = commands.map((run) => `<h3>${escaped(run.name)}</h3><pre>${escaped(run.command)}</pre>`).join("");
  byId("commands-card").hidden = commands.length === 0;
  const item = (kind) => (text) => `<li class="${kind}">${escaped(text)}</li>`;
  byId("warnings").innerHTML = [...facts.reasons.map(item("reason")), ...facts.notes.map(item("note"))].join("");
  byId("warnings-card").hidden = facts.reasons.length + facts.notes.length === 0;
}

export const spreadText = (median, seconds) => {
  const [least, most] = [Math.min(...seconds), Math.max(...seconds)];
  return `median ${timeText(median)}` + (most > least ? `, ${timeText(least)} to ${timeText(most)}` : "");
};
