// The page in a headless browser: node browser_test.mjs CHROMIUM PLAYGROUND.html
import assert from "node:assert/strict";
import { resolve } from "node:path";
import { Browser } from "./browser.mjs";
import { expectPicture } from "./pictures.mjs";

const [chromium, file] = process.argv.slice(2);
const page = `file://${resolve(file)}`;
const DEADLOCK = encodeURIComponent("0F0,0B0,0F1,0B1;1F1,1B1,1F0,1B0");
const browser = await Browser.open(chromium);
const see = (expression) => browser.evaluate(expression);
const text = (id) => see(`document.getElementById("${id}").textContent`);
const click = (id) => see(`document.getElementById("${id}").click()`);

// Where action "1F0" of the table is, in the window.
const placeOf = (name) =>
  see(`(() => {
    const { actions, layout } = playground;
    const box = document.getElementById("timeline").getBoundingClientRect();
    for (let i = 0; i < actions.count; ++i) {
      if (actions.isWork(i) && actions.name(i) === "${name}")
        return [box.x + (layout.x(actions.start(i)) + layout.x(actions.end(i))) / 2, box.y + layout.y(actions.rankOf[i]) + layout.bar / 2];
    }
  })()`);
// How many pixels of the timeline are red.
const redPixels = () =>
  see(`(() => {
    const canvas = document.getElementById("timeline");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) count += data[i] === 0xd5 && data[i + 1] === 0x3a && data[i + 2] === 0x1e;
    return count;
  })()`);

const tests = {
  async "shows 1F1B at once"() {
    await browser.go(page);
    assert.match(await text("verdict"), /^1F1B on 4 ranks: a step takes 33, .* idle 27\.3%/);
    assert.equal(await see(`document.querySelectorAll("#numbers div").length`), 5);
    assert.match(await text("waterfall"), /ideal24.*bubble9.*step33/);
  },
  async "controls change the schedule"() {
    await browser.go(page);
    await see(`{ const one = document.querySelector("[name=microbatches]"); one.value = 32; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    assert.match(await text("verdict"), /a step takes 105/);
    await see(`{ const one = document.querySelector("[name=schedule]"); one.value = "zb-h1"; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    assert.match(await text("verdict"), /^Zero bubble H1/);
    await browser.until(`location.hash === "#schedule=zb-h1&microbatches=32"`);
  },
  async "PipeDream keeps versions"() {
    await browser.go(`${page}#schedule=pipedream&microbatches=12`);
    assert.match(await text("verdict"), /12 micro-batches take 45, .*up to 4 versions of the weights/);
    assert.match(await text("numbers"), /staleness3$/);
  },
  async "a named model on a named device takes milliseconds"() {
    const choose = (name, value) => see(`{ const one = document.querySelector("[name=${name}]"); one.value = "${value}"; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    const isHidden = (name) => see(`document.querySelector("[data-for=${name}]").hidden`);
    await browser.go(`${page}#model=vit&device=t4`);
    assert.match(await text("verdict"), /^1F1B on 4 ranks: a step takes 3\d\d\d ms, /);
    assert.deepEqual(await Promise.all(["forward", "latency", "device", "link"].map(isHidden)), [true, true, false, false]);
    await choose("device", "laptop");
    assert.match(await text("waterfall"), /step\d+ ms/);
    assert.match(await text("command"), /--model vit .* --split 7,6,6,9 .* --device-model laptop --link nvlink4 --profile/);
    await browser.until(`location.hash === "#model=vit&device=laptop"`);
    await click("pin");
    await choose("model", "");
    assert.match(await text("verdict"), /a step takes 33, of which the ranks are idle 27.3%\.$/); // nothing compared across units
    assert.match(await text("pinned-name"), /^Pinned: 1F1B, step \d+ ms, model vit/);
    await choose("ranks", 64);
    await choose("model", "gpt");
    assert.match(await text("verdict"), /^This cannot run: gpt has 28 layers, too few for 64 stages/);
  },
  async "odd addresses show something or say what is wrong"() {
    for (const [hash, verdict] of [
      ["model=nope", /^This cannot run: model 'nope': expected/],
      ["schedule=nope", /^This cannot run: unknown schedule/],
      ["ranks=-4&microbatches=1e9&stages=x&tour=99", /^1F1B on 4 ranks: a step takes 33/],
      ["ranks=1", /^1F1B on 1 rank: a step takes 24, of which the ranks are idle 0/],
      ["schedule=pipedream&versions=nope", /^PipeDream on 4 ranks/],
      ["table=<img src=x>", /^This cannot run: table: line 1, column 1: '<img src=x>' is not an action/],
      ["pinned=schedule%3Dnope", /^1F1B on 4 ranks/],
    ]) {
      await browser.go(`${page}#${hash}`);
      assert.match(await text("verdict"), verdict);
    }
  },
  async "undo and redo walk through the states"() {
    await browser.go(`${page}#schedule=gpipe`);
    await see("playground.change({ ranks: 8 })");
    await click("undo");
    assert.equal(await see("playground.state.ranks"), 4);
    await click("redo");
    assert.equal(await see("playground.state.ranks"), 8);
  },
  async "an address gives the state back"() {
    const hash = "schedule=interleaved&ranks=3&microbatches=9&chunks=3&forward=1.5&stages=1+2+1&latency=0.3&waits=true&limit=4&pinned=schedule%3Dgpipe";
    await browser.go(`${page}#${hash}`);
    const first = await see("JSON.stringify(playground.state)");
    await see("playground.change({ ranks: 5 })");
    await click("undo");
    await browser.until(`location.hash === "#${hash}"`);
    await browser.go(`${page}${await see("location.hash")}`);
    assert.equal(await see("JSON.stringify(playground.state)"), first);
    assert.equal(await see(`document.getElementById("pinned").hidden`), false);
  },
  async "a deadlock is a red circle"() {
    await browser.go(page);
    assert.equal(await redPixels(), 0);
    await browser.go(`${page}#table=${DEADLOCK}`);
    assert.match(await text("problems"), /deadlock: rank 0 waits at 0B0 for 1B0/);
    assert.ok((await redPixels()) > 200);
    assert.match(await text("verdict"), /cannot run to its end: deadlock/);
  },
  async "dragging an action repairs it"() {
    await browser.go(`${page}#table=${DEADLOCK}`);
    const [x, y] = await placeOf("0B0");
    await browser.drag(await placeOf("0F1"), [x - 30, y]);
    assert.match(await see("playground.state.table"), /^0F0,0F1,0B0/);
    assert.match(await text("problems"), /^legal/);
    assert.equal(await redPixels(), 0);
    await click("undo");
    assert.match(await text("problems"), /deadlock/);
    await click("repair");
    assert.match(await text("problems"), /^legal/);
  },
  async "typing is checked at each change"() {
    await browser.go(`${page}#schedule=gpipe&ranks=2&microbatches=2`);
    const type = (table) => see(`{ const one = document.getElementById("table"); one.value = ${JSON.stringify(table)}; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    await type("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n");
    assert.match(await text("problems"), /1B1|micro-batch 1/);
    await type("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1Bx\n");
    assert.match(await text("problems"), /line 2.*1Bx/);
    await type("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    assert.match(await text("verdict"), /^Your table on 2 ranks/);
  },
  async "a click on a gap says who waits for whom"() {
    await browser.go(page);
    const [x, y] = await placeOf("3F0");
    await browser.mouse("mousePressed", x - 60, y);
    await browser.mouse("mouseReleased", x - 60, y);
    assert.equal(await text("cause"), "Rank 3 is idle before 3F0: it waits for 2F0 of rank 2.");
    assert.equal(await see("playground.chosen.chain.length"), 4);
  },
  async "a click on a gap of the pinned timeline says the same about it"() {
    await browser.go(`${page}#schedule=zbv&pinned=schedule~1f1b`);
    const [x, y] = await see(`(({ x, y }) => [x + playground.pinnedLayout.x(1.5), y + playground.pinnedLayout.y(3) + 5])(document.getElementById("pinned-timeline").getBoundingClientRect())`);
    await browser.mouse("mousePressed", x, y);
    await browser.mouse("mouseReleased", x, y);
    assert.equal(await text("cause"), "Pinned: Rank 3 is idle before 3F0: it waits for 2F0 of rank 2.");
  },
  async "keys choose and move an action"() {
    await browser.go(`${page}#schedule=gpipe&ranks=2&microbatches=3`);
    await see(`document.getElementById("timeline").focus()`);
    const press = (key, modifiers = 0) => browser.send("Input.dispatchKeyEvent", { type: "keyDown", key, modifiers });
    await press("ArrowRight");
    await press("ArrowRight");
    assert.match(await text("cause"), /^0F1, from 1 to 2 on rank 0: needs no other action, and feeds 1F1 of rank 1/);
    await press("ArrowRight", 1); // with Alt
    assert.match(await see("playground.state.table"), /^0F0,0F2,0F1/);
    await press("ArrowDown");
    await press("ArrowLeft");
    await press("Enter");
    assert.match(await text("cause"), /^Rank 1 is .*idle before 1F0/);
    await press("ArrowRight");
    assert.match(await text("cause"), /^1F1, from/);
  },
  async "the tour has eight steps"() {
    await browser.go(page);
    await click("tour-start");
    for (let step = 1; step <= 8; ++step) {
      assert.match(await text("tour"), new RegExp(`^${step} of 8`));
      assert.doesNotMatch(await text("verdict"), /^This cannot run/);
      await see(`document.querySelector("#tour .main").click()`);
    }
    assert.equal(await see(`document.getElementById("tour").hidden`), true);
  },
  async "every control, button and picture has a name"() {
    await browser.go(page);
    const nameless = `[...document.querySelectorAll("input, select, textarea, button, canvas")].filter((one) => one.checkVisibility() &&
      !one.ariaLabel && !one.labels?.[0]?.textContent.trim() && !(one.tagName === "BUTTON" && one.textContent.trim())).map((one) => one.outerHTML)`;
    assert.deepEqual(await see(nameless), []);
  },
  async "messages are slower on a link than on the others"() {
    await browser.go(`${page}#latency=1&receives=use`);
    const before = await see("playground.result.seconds");
    const bars = `[...document.querySelectorAll("#each-link input")]`;
    assert.deepEqual(await see(`${bars}.map((one) => one.ariaLabel)`), ["time of link 0 – 1", "time of link 1 – 2", "time of link 2 – 3"]);
    await see(`{ const one = ${bars}[1]; one.value = 3; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    assert.ok((await see("playground.result.seconds")) > before);
    await browser.until(`location.hash === "#links=1+3+1&latency=1&receives=use"`);
    await browser.go(`${page}#schedule=zbv&ranks=2`); // a border within rank 1, and one link for both arms of the V
    assert.deepEqual(await see(`${bars}.map((one) => one.ariaLabel)`), ["time of link 0 – 1"]);
  },
  async "a pinned schedule can follow the settings of the other one"() {
    await browser.go(page);
    await click("pin");
    assert.match(await text("pinned-name"), /^Pinned: 1F1B, step 33$/);
    await see("playground.change({ schedule: 'interleaved' })");
    assert.match(await text("verdict"), /28.5.*; 1.16 times as fast as the pinned one/);
    await see("playground.change({ latency: 2 })");
    assert.match(await text("verdict"), /; 1\d\d% longer than the pinned one/);
    assert.match(await text("pinned-name"), /step 33, latency 0$/);
    await click("follow");
    assert.match(await text("pinned-name"), /^Pinned: 1F1B, step 65$/);
    await browser.until(`location.hash.includes("follow=true")`);
  },
  async "a link that a program has decoded opens the same state"() {
    await browser.go(`${page}#transfer=1`);
    await see("playground.change({ pinned: '' })");
    await click("pin");
    await see("playground.change({ schedule: 'gpipe', transfer: 2 })");
    const state = await see("JSON.stringify(playground.state)");
    await browser.until(`location.hash.includes("transfer=2")`);
    await browser.go(`${page}#${decodeURIComponent((await see("location.hash")).slice(1))}`);
    assert.equal(await see("JSON.stringify(playground.state)"), state);
    assert.match(await text("pinned-name"), /transfer|busy/);
  },
  async "the league says a place, and the limit who is out"() {
    await browser.go(`${page}#schedule=zbv&microbatches=12&limit=4&league=0.01 0.05 0.2`);
    assert.match(await text("verdict"), /; place 2 in the league of 3 hand-ins\.$/);
    await see("playground.change({ limit: 3 })");
    assert.match(await text("verdict"), /not in the league/);
  },
  async "all schedules are compared, and one can be chosen"() {
    await browser.go(`${page}#limit=4`);
    await see(`document.getElementById("all").open = true`);
    await browser.until(`document.querySelectorAll("#all-rows tr").length > 10`);
    assert.match(await text("all-rows"), /GPipe3327\.3%8, over the limit/);
    assert.match(await text("all-rows"), /Zero bubble V25\.55\.9%4/);
    await see(`document.querySelector("#all-rows [value=gpipe]").click()`);
    assert.match(await text("verdict"), /^GPipe/);
    assert.match(await see("playground.library.lowered()"), /^0F0,0SEND_F0,0F1|^0RECV/); // that of the chosen one
  },
  async "what is saved has both timelines on white"() {
    await browser.go(`${page}#schedule=zb-h1&pinned=schedule~gpipe`);
    const svg = await see("playground.svg()");
    assert.match(svg, /<rect width="100%" height="100%" fill="#ffffff"\/>/);
    assert.match(svg, /Pinned: GPipe, step 33.*Zero bubble H1 on 4 ranks.*weight gradient<\/text>/s);
    await see(`HTMLAnchorElement.prototype.click = function () { globalThis.saved = this.href; }`);
    await click("save-png");
    await browser.until("globalThis.saved");
    assert.match(await see("saved.slice(0, 22)"), /^data:image\/png;base64,$/);
    const corner = `(async () => { const image = new Image(); image.src = saved; await image.decode(); const canvas = document.createElement("canvas"); canvas.getContext("2d").drawImage(image, 0, 0); return [image.width, ...canvas.getContext("2d").getImageData(0, 0, 1, 1).data]; })()`;
    assert.deepEqual(await see(corner), [1920, 255, 255, 255, 255]);
  },
  async "the command says which times it does not have"() {
    await browser.go(page);
    assert.equal(await text("command-note"), "");
    await see("playground.change({ transfer: 1, stages: [1, 2] })");
    assert.match(await text("command-note"), /^The command plans a step of 33 units: the times that you chose for messages, single stages are not in it\.$/);
  },
  async "a copied link is said to be copied"() {
    await browser.go(`${page}#schedule=gpipe`);
    await see(`Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { globalThis.copied = text; } } })`);
    await click("copy");
    await browser.until(`document.getElementById("copy").textContent === "Copied"`);
    assert.equal(await see("copied"), await see("location.href"));
    await browser.until(`document.getElementById("copy").textContent === "Copy link"`);
    await see(`navigator.clipboard.writeText = () => Promise.reject()`);
    await click("copy");
    await browser.until(`document.getElementById("copy").textContent.startsWith("Not allowed")`);
  },
  async "a filled button can be read below the pointer"() {
    await browser.go(`${page}#tour=1`);
    const [x, y] = await see(`(() => { const { x, y, width, height } = document.querySelector("#tour .main").getBoundingClientRect(); return [x + width / 2, y + height / 2]; })()`);
    await browser.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
    await browser.until(`document.querySelector("#tour .main:hover")`);
    assert.equal(await see(`(({ color, backgroundColor }) => color === backgroundColor)(getComputedStyle(document.querySelector("#tour .main")))`), false);
  },
  async "an address has what is chosen in the timeline"() {
    await browser.go(`${page}#chosen=before3F0`);
    assert.equal(await text("cause"), "Rank 3 is idle before 3F0: it waits for 2F0 of rank 2.");
    assert.equal(await see("playground.chosen.chain.length"), 4);
    await browser.until(`location.hash === "#chosen=before3F0"`);
    await see("playground.change({ microbatches: 9 })");
    await browser.until(`location.hash === "#microbatches=9"`);
  },
  async "sentences name stages as the timeline does"() {
    await browser.go(`${page}#schedule=interleaved&chunks=2&chosen=4B0`);
    assert.match(await text("cause"), /^4B0 \(B0b\), from .* needs 5B0 \(B0b\) of rank 1, and feeds 3B0 \(B0a\) of rank 3\.$/);
  },
  async "the sentence about a chosen action is in view"() {
    await browser.go(page, 420, 700);
    await see(`document.getElementById("timeline").focus()`);
    await browser.send("Input.dispatchKeyEvent", { type: "keyDown", key: "ArrowRight" });
    const [top, bottom] = await see(`(({ top, bottom }) => [top, bottom])(document.getElementById("cause").getBoundingClientRect())`);
    assert.ok(top >= 0 && bottom <= 700, `from ${top} to ${bottom}`);
  },
  async "another order keeps what it has of the settings"() {
    const choose = (value) => see(`{ const one = document.querySelector("[name=schedule]"); one.value = "${value}"; one.dispatchEvent(new Event("input", { bubbles: true })); }`);
    await browser.go(`${page}#schedule=interleaved&chunks=4&waits=true&latency=1`);
    await choose("1f1b");
    await choose("interleaved");
    assert.deepEqual(await see("[playground.state.chunks, playground.state.waits, playground.state.latency]"), [4, true, 1]);
  },
  async "with a model activations and their limit are bytes"() {
    await browser.go(`${page}#model=vit&schedule=zb-h1&gib=3.5`);
    assert.match(await text("numbers"), /peak activations3\.81 GiB/);
    assert.match(await text("verdict"), /over the memory limit on rank 2, 3\.$/);
    assert.equal(await see(`document.querySelector("[data-for=limit]").hidden`), true);
    await browser.go(`${page}#model=vit&schedule=zb-h1&ranks=2`); // of which nothing is undefined
    assert.doesNotMatch(await text("views"), /NaN|undefined/);
  },
  async "a drag says where the action goes"() {
    await browser.go(page);
    const [from, to] = [await placeOf("3F1"), await placeOf("3B2")];
    await browser.mouse("mousePressed", ...from);
    await browser.mouse("mouseMoved", ...to);
    assert.match(await text("cause"), /^3F1 goes before 3\w+\.$/);
    const place = (await text("cause")).match(/before (\w+)/)[1];
    await browser.mouse("mouseReleased", ...to);
    assert.match(await see("playground.state.table"), new RegExp(`3F1,${place}`));
  },
  async "leaving the tour gives the own state back"() {
    await browser.go(`${page}#schedule=zbv&ranks=3`);
    await click("tour-start");
    await see(`document.querySelector("#tour .main").click()`);
    await see(`document.querySelector("#tour [data-step='0']").click()`);
    assert.deepEqual(await see("[playground.state.schedule, playground.state.ranks, playground.state.tour]"), ["zbv", 3, 0]);
  },
  async "the cures of the tour's last step cure"() {
    for (const table of ["0F0,0F1,0B0,0F2,0B1,0B2;1F1,1F0,1B0,1B1,1F2,1B2", "0F0,0B0,0F1,0F2,0B1,0B2;1F0,1B0,1F1,1B1,1F2,1B2"]) {
      await browser.go(`${page}#tour=8&table=${encodeURIComponent(table)}`);
      assert.match(await text("problems"), /^legal/);
    }
  },
  async "no repair is offered where none helps"() {
    await browser.go(`${page}#schedule=interleaved&chunks=2&ranks=2&microbatches=4&receives=use&waits=true`);
    assert.match(await text("problems"), /deadlock/);
    assert.equal(await see(`document.getElementById("repair").hidden`), true);
    assert.match(await text("nearest"), /ends if senders do not wait/);
    await browser.go(`${page}#table=${encodeURIComponent("1F0,1B0")}`);
    assert.equal(await see(`document.getElementById("repair").hidden`), true);
  },
  async "an illegal table says the nearest legal one"() {
    await browser.go(`${page}#table=${DEADLOCK}`);
    assert.equal(await text("nearest"), "Nearest legal table: move 0F1 before 0B0.");
    await click("repair");
    assert.equal(await text("nearest"), "");
    assert.match(await see("playground.state.table"), /^0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0/);
  },
  async "nothing is wider than a window of 420 pixels"() {
    await browser.go(page, 420, 800);
    assert.ok((await see("document.documentElement.scrollWidth")) <= 420);
  },
};

const PICTURES = new URL("pictures.json", import.meta.url);
for (const [name, address] of [["all views", "schedule=pipedream&microbatches=12&update=0.5&latency=0.5&transfer=0.2&limit=3&pinned=schedule%3Dgpipe"], ["deadlock", `table=${DEADLOCK}`]]) {
  for (const [width, height] of [[1280, 1900], [420, 2700]]) {
    for (const colours of ["light", "dark"]) {
      const picture = `${name}, ${width} pixels, ${colours}`;
      tests[`looks as its picture: ${picture}`] = async () => {
        await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: colours }] });
        await browser.go(`${page}#${address}`, width, height);
        await expectPicture(browser, PICTURES, picture);
      };
    }
  }
}

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  browser.messages.length = 0;
  try {
    await test();
    assert.deepEqual(browser.messages, [], "errors on the console, or requests to a network");
    console.log(`passed: ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}\n${error.message}`);
  }
}
await browser.close();
console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
