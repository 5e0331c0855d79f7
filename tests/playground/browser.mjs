// Drives a headless Chromium by the DevTools protocol, over a pipe; needs no packages.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class Browser {
  // `dark`: as on a system with dark colours.
  static async open(chromium, { dark = false } = {}) {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "playground-"));
    const colours = `--blink-settings=preferredColorScheme=${dark ? 0 : 1}`;
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", colours, `--user-data-dir=${browser.folder}`]; // prettier-ignore
    browser.process = spawn(chromium, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.answers = new Map();
    browser.messages = []; // console texts, errors and network requests
    let text = "";
    browser.process.stdio[4].on("data", (part) => {
      text += part;
      const ends = text.split("\0");
      text = ends.pop();
      ends.forEach((one) => browser.receive(JSON.parse(one)));
    });
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
    browser.session = (await browser.send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.send(`${domain}.enable`);
    return browser;
  }
  send(method, params = {}) {
    const id = (this.last = (this.last ?? 0) + 1);
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    return new Promise((resolve, reject) => this.answers.set(id, { resolve, reject, method }));
  }
  receive({ id, method, params, result, error }) {
    const waiting = this.answers.get(id);
    this.answers.delete(id);
    if (error) waiting?.reject(new Error(`${waiting.method}: ${error.message}`));
    else waiting?.resolve(result);
    if (method === "Runtime.consoleAPICalled") this.messages.push(`console.${params.type}: ${params.args.map((one) => one.value ?? one.description).join(" ")}`);
    if (method === "Runtime.exceptionThrown") this.messages.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Log.entryAdded") this.messages.push(`${params.entry.level}: ${params.entry.text}`);
    const url = method === "Network.requestWillBeSent" ? params.request.url : "data:";
    if (!/^(data|blob|file|about):/.test(url)) this.messages.push(`network: ${url}`);
  }
  // Returns the value of an expression in the page, awaited.
  async evaluate(expression) {
    const answer = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? answer.exceptionDetails.text);
    return answer.result.value;
  }
  // Opens an address and waits for the first picture; a width and a height in CSS pixels.
  async go(url, width = 1280, height = 900) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.send("Page.navigate", { url: "about:blank" });
    await this.send("Page.navigate", { url });
    await this.until("document.documentElement.dataset.ready === 'true'");
  }
  // Waits for an expression to be true: in the page, at its next frames.
  async until(condition) {
    const deadline = Date.now() + 60000;
    for (;;) {
      const isTrue = await this.evaluate(`new Promise((done) => requestAnimationFrame(() => done(Boolean(${condition}))))`).catch(() => false);
      if (isTrue) return;
      if (Date.now() > deadline) throw new Error(`never true: ${condition}`);
    }
  }
  async mouse(type, x, y) {
    await this.send("Input.dispatchMouseEvent", { type, x, y, button: "left", buttons: 1, clickCount: 1 });
  }
  async drag(from, to) {
    await this.mouse("mousePressed", ...from);
    await this.mouse("mouseMoved", (from[0] + to[0]) / 2, from[1]);
    await this.mouse("mouseMoved", ...to);
    await this.mouse("mouseReleased", ...to);
  }
  async screenshot(full = true) {
    return Buffer.from((await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: full })).data, "base64");
  }
  // Ends the browser and removes its folder. Its helper processes write there until they have ended, which may be after
  // the browser itself: a removal that meets a new file begins again.
  async close() {
    const ended = new Promise((done) => this.process.on("exit", done));
    this.process.kill();
    await ended;
    const deadline = Date.now() + 60000;
    for (;;) {
      try {
        return rmSync(this.folder, { recursive: true, force: true });
      } catch (error) {
        if (error.code !== "ENOTEMPTY" || Date.now() > deadline) throw error;
        await new Promise((done) => setTimeout(done, 10));
      }
    }
  }
}
