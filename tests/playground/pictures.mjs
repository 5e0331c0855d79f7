// Compares what a browser shows with what it showed when it was last looked at. A picture is kept as the mean colours of
// squares of 60 pixels, a hexadecimal digit for each of red, green and blue: letters may differ, places and colours not.
// With UPDATE_PICTURES=1 in the environment the pictures are written anew: look at the page before you commit them.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";

const SIDE = 60;
const MOST_LEVELS = 1; // of 16 by which a square may differ
const MOST_SQUARES = 0.02; // the share that may differ by more

// The squares of what the window shows, a line of text per row.
async function squaresOf(browser) {
  const image = (await browser.screenshot(false)).toString("base64");
  return browser.evaluate(`(async () => {
    const image = new Image();
    image.src = "data:image/png;base64,${image}";
    await image.decode();
    const context = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }).getContext("2d");
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    const [columns, rows] = [image.width, image.height].map((length) => Math.floor(length / ${SIDE}));
    const sums = new Float64Array(3 * columns * rows);
    for (let y = 0; y < rows * ${SIDE}; ++y) {
      for (let x = 0; x < columns * ${SIDE}; ++x) {
        const square = Math.floor(y / ${SIDE}) * columns + Math.floor(x / ${SIDE});
        for (let c = 0; c < 3; ++c) sums[3 * square + c] += data[4 * (y * image.width + x) + c];
      }
    }
    const digits = Array.from(sums, (sum) => Math.round(sum / ${SIDE * SIDE} / 17).toString(16)).join("");
    return Array.from({ length: rows }, (_, y) => digits.slice(3 * columns * y, 3 * columns * (y + 1)));
  })()`);
}

// Fails if the window does not look as its picture `name` in the file of this URL.
export async function expectPicture(browser, file, name) {
  const pictures = JSON.parse(readFileSync(file, "utf8"));
  const now = await squaresOf(browser);
  if (process.env.UPDATE_PICTURES) {
    writeFileSync(file, `${JSON.stringify({ ...pictures, [name]: now }, null, 1)}\n`);
    return;
  }
  const before = pictures[name] ?? [];
  assert.deepEqual(now.map((row) => row.length), before.map((row) => row.length), `${name}: another size than its picture`); // prettier-ignore
  const level = (row, i) => parseInt(row[i], 16);
  let [squares, different] = [0, 0];
  const map = now.map((row, y) => {
    let line = "";
    for (let i = 0; i < row.length; i += 3) {
      const isFar = [i, i + 1, i + 2].some((at) => Math.abs(level(row, at) - level(before[y], at)) > MOST_LEVELS);
      [squares, different] = [squares + 1, different + isFar];
      line += isFar ? "#" : ".";
    }
    return line;
  });
  assert.ok(different <= MOST_SQUARES * squares, `${name}: ${different} of ${squares} squares differ from its picture:\n${map.join("\n")}`);
}
