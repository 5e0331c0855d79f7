// Editing the table: as text, and by moving one action of a rank.

// Returns the table with the action `from` of `rank` moved to the place `to` in its order; places count computations.
export function moved(table, rank, from, to) {
  const lines = table.trim().split("\n").map((line) => line.split(","));
  const [action] = lines[rank].splice(from, 1);
  lines[rank].splice(to, 0, action);
  return `${lines.map((line) => line.join(",")).join("\n")}\n`;
}

// Returns how many ranks and micro-batches a table has.
export function sizesOf(table) {
  const microbatches = [...table.matchAll(/\D(\d+)(?=\s*(,|\n|$))/g)].map(([, one]) => Number(one));
  return { ranks: table.trim().split("\n").length, microbatches: 1 + Math.max(...microbatches, 0) };
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

// Returns which of `after` are not in a longest common subsequence with `before`, as truth values.
function isNewIn(before, after) {
  const common = Array.from({ length: before.length + 1 }, () => new Int32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; --i) {
    for (let j = after.length - 1; j >= 0; --j) common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  let i = 0;
  return after.map((action, j) => {
    while (i < before.length && before[i] !== action && common[i + 1][j] > common[i][j + 1]) ++i;
    if (before[i] !== action) return true;
    ++i;
    return false;
  });
}

// Says how the nearest legal table differs: "Nearest legal table: move 0F1 before 0B0."
export function nearestText(table, nearest) {
  const [before, after] = [table, nearest].map((text) => text.trim().split("\n").map((line) => line.replaceAll(/\s/g, "").split(",").filter(Boolean)));
  const changes = after.flatMap((actions, rank) => {
    const old = before[rank] ?? [];
    const isNew = isNewIn(old, actions);
    const placed = actions.flatMap((action, i) => {
      if (!isNew[i]) return [];
      const next = actions.find((_, j) => j > i && !isNew[j]);
      return [`${old.includes(action) ? "move" : "add"} ${action} ${next ? `before ${next}` : `to the end of rank ${rank}`}`];
    });
    const dropped = old.filter((action, i) => !actions.includes(action) || old.indexOf(action) !== i);
    return [...placed, ...dropped.map((action) => `drop ${action} of rank ${rank}`)];
  });
  const shown = changes.length > 6 ? [...changes.slice(0, 6), `${changes.length - 6} more changes`] : changes;
  return `Nearest legal table: ${shown.join("; ")}.`;
}

export function showProblems(list, result, state) {
  const good = state.table ? "legal: it ends, and trains what one device would train" : "";
  const problems = result.status === 2 ? [good].filter(Boolean) : result.problems;
  list.replaceChildren(...problems.map((text) => Object.assign(document.createElement("li"), { textContent: text, className: result.status === 2 ? "good" : "" })));
}
