// Makes the playground one file: node bundle.mjs SCHEDULES.js PLAYGROUND.html
// Modules follow those that they import and share one scope, so their top-level names must differ.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
const [schedules, output] = process.argv.slice(2);
const modules = new Map(); // name -> text

function add(name) {
  if (modules.has(name)) return;
  const text = readFileSync(join(folder, name), "utf8");
  modules.set(name, "");
  for (const [, imported] of text.matchAll(/^import .* from "\.\/(.*)";$/gm)) add(imported);
  modules.delete(name); // its place is after them
  modules.set(name, text.replace(/^import .*;\n/gm, "").replace(/^export /gm, ""));
}

add("main.js");
const parts = {
  style: readFileSync(join(folder, "style.css"), "utf8"),
  schedules: readFileSync(schedules, "utf8"),
  modules: [...modules.values()].join("\n"),
};
const page = readFileSync(join(folder, "page.html"), "utf8");
writeFileSync(output, page.replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name].replaceAll("</script", "<\\/script")));
