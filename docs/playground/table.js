// Editing the table: as text, and by moving one action of a rank.

// Returns the table with the action `from` of `rank` moved to the place `to` in its order; places count computations.
export function moved(table, rank, from, to) {
  const lines = table.trim().split("\n").map((line) => line.split(","));
  const [action] = lines[rank].splice(from, 1);
  lines[rank].splice(to, 0, action);
  return `${lines.map((line) => line.join(",")).join("\n")}\n`;
}

// Returns the place of action i among its rank's computations.
export function placeOf(actions, i) {
  let place = 0;
  for (let at = actions.result.rankBegin[actions.rankOf[i]]; at < i; ++at) place += actions.isWork(at) ? 1 : 0;
  return place;
}

// Returns the place to which a drag of action i to `time` brings it: after all whose middle is earlier.
export function placeAt(actions, i, time) {
  const { rankBegin } = actions.result;
  const rank = actions.rankOf[i];
  let place = 0;
  for (let at = rankBegin[rank]; at < rankBegin[rank + 1]; ++at) {
    if (at !== i && actions.isWork(at) && (actions.start(at) + actions.end(at)) / 2 < time) ++place;
  }
  return place;
}

// Tables that list messages are edited as text only, and those with updates not at all.
export function isMovable(table) {
  return !/SEND|RECV|U/.test(table);
}

// Says how the nearest legal table differs.
export function nearestText(table, nearest) {
  const [before, after] = [table, nearest].map((text) => text.trim().split("\n").map((line) => line.replaceAll(/\s/g, "")));
  const changed = after.flatMap((line, rank) => (line === before[rank] ? [] : [rank]));
  return `The nearest legal table: ${changed.map((rank) => `rank ${rank} runs ${after[rank]}`).join("; ")}.`;
}

export function showProblems(list, result, state) {
  const good = state.table ? "legal: it ends, and trains what one device would train" : "";
  const problems = result.status === 2 ? [good].filter(Boolean) : result.problems;
  list.replaceChildren(...problems.map((text) => Object.assign(document.createElement("li"), { textContent: text, className: result.status === 2 ? "good" : "" })));
}
