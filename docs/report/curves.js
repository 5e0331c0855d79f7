// Epoch times with their spread; loss and accuracy over steps and over time.
import { SvgPainter, number, ticks } from "./painter.js";
import { THEME, colourOf, cut, isKnown, picture, unitOf } from "./text.js";
import { spreadText, stepsOf } from "./words.js";

const ROW = 46;

export function epochsPicture(runs, width) {
  const painter = new SvgPainter();
  const [left, right] = [8, width - 12];
  const most = Math.max(...runs.flatMap((run) => run.epochs.flatMap((epoch) => [epoch.seconds, epoch.predicted_seconds ?? 0])));
  const [unitName, unit] = unitOf(most);
  const x = (seconds) => left + (seconds / (most || 1)) * (right - left);
  const bottom = ROW * runs.length + 4;
  for (const tick of ticks(most / unit, width / 120)) {
    painter.line([[x(tick * unit), 4], [x(tick * unit), bottom]], THEME.line); // prettier-ignore
    painter.text(x(tick * unit), bottom + 14, `${number(tick)}${tick > 0 ? ` ${unitName}` : ""}`, THEME.quiet, { size: 11, anchor: tick > 0 ? "middle" : "start" });
  }
  runs.forEach((run, i) => {
    const y = ROW * i + 34;
    const later = run.epochs.slice(run.epochs.length > 1 ? 1 : 0).map((epoch) => epoch.seconds);
    const spread = spreadText(run.seconds, later);
    painter.text(left, y - 14, runs.length > 1 ? `${cut(run.name, width - 8 * spread.length)}: ${spread}` : spread, THEME.text);
    painter.rect(left, y - 1, right - left, 2, THEME.line);
    for (const { seconds } of run.epochs.slice(1)) painter.rect(x(seconds) - 3, y - 3, 6, 6, colourOf(i));
    painter.frame(x(run.epochs[0].seconds) - 3, y - 3, 6, 6, colourOf(i));
    painter.rect(x(run.seconds) - 1, y - 9, 2, 18, colourOf(i));
    if (isKnown(run.predicted_seconds)) {
      const at = x(run.predicted_seconds);
      painter.line([[at - 4, y + 11], [at - 4, y + 8], [at + 4, y + 8], [at + 4, y + 11]], THEME.text, { width: 1.5 }); // prettier-ignore
    }
  });
  return picture(painter, width, bottom + 20, "Time of each epoch");
}

// Returns the points of a run: the value after each epoch, over steps (epochs if these are unknown) or seconds.
function pointsOf(run, valueOf, overTime) {
  let x = 0;
  return run.epochs.map((epoch) => [(x += overTime ? epoch.seconds : (epoch.steps ?? 1)), valueOf(epoch)]).filter(([, y]) => isKnown(y));
}

function curvePicture(runs, width, title, valueOf, overTime, isShare) {
  const painter = new SvgPainter();
  const [left, top, bottom, height] = [50, 26, 196, 232];
  const series = runs.map((run) => pointsOf(run, valueOf, overTime));
  const all = series.flat();
  if (all.length === 0) return "";
  const end = Math.max(...all.map(([x]) => x));
  const [unitName, unit] = overTime ? unitOf(end) : [runs.every(stepsOf) ? "steps" : "epochs", 1];
  const low = isShare ? 0 : Math.min(...all.map(([, y]) => y));
  const high = Math.max(...all.map(([, y]) => y), low + (isShare ? 0.01 : 1e-4 * Math.abs(low) + 1e-9));
  const digits = Math.min(3 + Math.max(0, Math.floor(Math.log10(Math.abs(high) / (high - low)))), 7); // so that its lines differ
  const px = (x) => left + (x / end) * (width - left - 16);
  const py = (y) => bottom - ((y - low) / (high - low)) * (bottom - top);
  painter.text(left, 14, title, THEME.text, { weight: 600 });
  for (const step of [0, 0.25, 0.5, 0.75, 1]) {
    const y = low + step * (high - low);
    painter.line([[left, py(y)], [width - 16, py(y)]], THEME.line); // prettier-ignore
    painter.text(left - 6, py(y) + 4, isShare ? `${number(100 * y, 3)}%` : number(y, digits), THEME.quiet, { size: 11, anchor: "end" });
  }
  for (const tick of ticks(end / unit, width / 110)) painter.text(px(tick * unit), bottom + 16, number(tick), THEME.quiet, { size: 11, anchor: "middle" });
  painter.text((left + width - 16) / 2, bottom + 32, overTime ? `${unitName} of training` : unitName, THEME.quiet, { size: 11, anchor: "middle" });
  series.forEach((points, i) => {
    const dash = i === 0 ? [] : [10 - Math.min(2 * i, 6), 5]; // a curve on another one lets that one be seen
    if (points.length > 1) painter.line(points.map(([x, y]) => [px(x), py(y)]), colourOf(i), { width: 2, dash }); // prettier-ignore
    if (points.length < 30) for (const [x, y] of points) painter.rect(px(x) - 2.5, py(y) - 2.5, 5, 5, colourOf(i));
  });
  return picture(painter, width, height, title);
}

export function curvePictures(runs, width) {
  const hasTest = runs.some((run) => run.epochs.some((epoch) => isKnown(epoch.test_acc)));
  const accuracy = (epoch) => (hasTest ? epoch.test_acc : epoch.acc);
  const name = hasTest ? "test accuracy" : "accuracy";
  return [
    curvePicture(runs, width, "loss over steps", (epoch) => epoch.loss, false, false),
    curvePicture(runs, width, "loss over time", (epoch) => epoch.loss, true, false),
    curvePicture(runs, width, `${name} over steps`, accuracy, false, true),
    curvePicture(runs, width, `${name} over time`, accuracy, true, true),
  ].filter(Boolean).map((one) => `<div>${one}</div>`).join(""); // prettier-ignore
}
