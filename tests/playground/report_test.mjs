// The report of two runs in a headless browser: node report_test.mjs CHROMIUM CH03_GPIPE COMPARE
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser } from "./browser.mjs";
import { expectPicture } from "./pictures.mjs";

const [chromium, gpipe, compare] = process.argv.slice(2);
const NAME = "<img src=x onerror=alert(1)>";
const folder = mkdtempSync(join(tmpdir(), "report-"));
const run = (program, ...flags) => execFileSync(program, flags, { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
const common = ["--smoke", "--clock", "modelled", "--link", "pcie4", "--microbatches", "8", "--epochs", "3"];
run(gpipe, ...common, "--ranks", "1", "--out", NAME);
run(gpipe, ...common, "--ranks", "4", "--out", "four", "--report");
run(compare, NAME, "four", "--html", "both.html");

const PICTURES = new URL("pictures.json", import.meta.url);
const tests = (see, browser) => ({
  async "says what the runs are, as text"() {
    assert.match(await see(`document.getElementById("verdict").textContent`), /^four \(gpipe, 8 micro-batches, 4 ranks\) is .* times as fast as <img src=x onerror=alert\(1\)>; \d+% of its step is imbalance; same bytes\.$/);
    const shares = await see(`[...[...document.querySelectorAll(".waterfall")].at(-1).querySelectorAll("tr:not(.sum)")].map((row) => [row.cells[0].textContent, parseFloat(row.cells[3].textContent)])`);
    assert.equal(shares.slice(1).reduce((most, one) => (one[1] > most[1] ? one : most))[0], "imbalance"); // the largest but the ideal one
    assert.match(await see(`document.getElementById("badges").textContent`), /same bytes/);
    assert.equal(await see(`document.querySelectorAll("img").length`), 0);
    assert.match(await see(`document.getElementById("settings").textContent`), /ranks14$/);
  },
  async "the parts of a step add up to it"() {
    const seconds = (text) => Number(text.split(" ")[0]) * { s: 1, ms: 1e-3, "µs": 1e-6 }[text.split(" ")[1]];
    for (const parts of await see(`[...document.querySelectorAll(".waterfall")].map((table) => [...table.rows].map((row) => row.cells[2].textContent))`)) {
      const times = parts.map(seconds);
      const step = times.pop();
      assert.ok(Math.abs(times.reduce((sum, one) => sum + one, 0) - step) < 2e-3 * step, parts.join(", "));
    }
  },
  async "the slider changes the step, and a pointer marks an action in both timelines"() {
    assert.match(await see(`document.getElementById("step-name").textContent`), /^2 of epoch 1/);
    await see(`{ const one = document.getElementById("step"); one.value = 4; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    assert.match(await see(`document.getElementById("step-name").textContent`), /^5 of epoch 1/);
    assert.match(await see(`document.getElementById("bottleneck").textContent`), /^Rank 3 is the bottleneck: it works .* stage 3/);
    const [x, y] = await see(`(() => { document.getElementById("measured").scrollIntoView();
      const labels = [...document.querySelectorAll("#measured text")].filter((one) => one.textContent === "B3" || one.textContent === "3");
      const box = labels.at(-1).getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()`);
    await browser.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
    await browser.until(`document.querySelectorAll(".mark").length === 2`);
    assert.match(await see(`document.getElementById("action").textContent`), /^\dB3 on rank \d: measured .* predicted /);
  },
  async "it looks as its picture"() {
    const [width, colours] = await see(`[innerWidth, matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"]`);
    await browser.go(`file://${join(folder, "both.html")}`, width, width > 1000 ? 2700 : 3900); // without the commands, whose paths differ
    await expectPicture(browser, PICTURES, `report, ${width} pixels, ${colours}`);
  },
  async "a report of one run says how long its step takes"() {
    await browser.go(`file://${join(folder, "four/report.html")}`, await see("innerWidth"));
    assert.match(await see(`document.getElementById("verdict").textContent`), /^four \(.*\): a step takes .* idle [\d.]+% \(predicted [\d.]+%\)\.$/);
    assert.equal(await see(`document.getElementById("settings-card").hidden`), true);
  },
  async "every picture has content, a name, and fits"() {
    for (const id of ["epochs", "measured", "predicted", "memory", "peaks", "curves"]) {
      assert.ok(await see(`document.querySelectorAll("#${id} svg").length`), id);
    }
    assert.deepEqual(await see(`[...document.querySelectorAll("svg, select, input")].filter((one) => !one.ariaLabel && !one.labels?.length).length`), 0);
    assert.equal(await see(`/NaN|undefined|null/.test(document.querySelector("article").innerHTML)`), false);
    assert.ok((await see("document.documentElement.scrollWidth")) <= (await see("innerWidth")));
  },
});

let failed = 0;
for (const file of ["both.html", "four/report.html"]) {
  const size = statSync(join(folder, file)).size;
  console.log(`${file}: ${size} bytes`);
  failed += size >= 400000 ? 1 : 0;
}
for (const dark of [false, true]) {
  const browser = await Browser.open(chromium, { dark });
  const see = (expression) => browser.evaluate(expression);
  for (const width of [1280, 420]) {
    for (const [name, test] of Object.entries(tests(see, browser))) {
      browser.messages.length = 0;
      try {
        await browser.go(`file://${join(folder, "both.html")}`, width);
        await test();
        assert.deepEqual(browser.messages, [], "errors on the console, or requests to a network");
        console.log(`passed at ${width} px${dark ? ", dark" : ""}: ${name}`);
      } catch (error) {
        ++failed;
        console.log(`FAILED at ${width} px${dark ? ", dark" : ""}: ${name}\n${error.message}`);
      }
    }
  }
  await browser.close();
}
rmSync(folder, { recursive: true });
console.log(`${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
