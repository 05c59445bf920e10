// What was seen of each entity in the last minutes: depths, and rates taken from totals.

const KEPT = 150;
const ENTITIES_MAX = 1000;
const LEAST_S = 1; // Two views may ask at nearly the same time: a rate over less is noise.

const histories = new Map();

export const historyOf = (path) => histories.get(path) || [];
export const forget = () => histories.clear();

export function ratesOf(path) {
  const last = historyOf(path).at(-1);
  return { in: last?.in ?? null, out: last?.out ?? null };
}

// `entity` as the server told it; `waits` only where it was asked for by itself.
export function note(entity, at = performance.now() / 1000) {
  const history = histories.get(entity.path) || [];
  const before = history.at(-1);
  const elapsed = before ? at - before.at : 0;
  if (before && elapsed < LEAST_S) {
    if (before.waits === null) Object.assign(before, waiting(entity, history));
    return;
  }
  history.push({
    at,
    totals: entity.totals,
    depth: entity.depth.messages,
    in: perSecond(entity, before, "messages_in", elapsed),
    out: perSecond(entity, before, "messages_out", elapsed),
    ...waiting(entity, history),
  });
  if (history.length > KEPT) history.shift();
  histories.delete(entity.path); // the map is in the order of the last look
  histories.set(entity.path, history);
  if (histories.size > ENTITIES_MAX) histories.delete(histories.keys().next().value);
}

// Totals begin again when the server does: then there is no rate to tell.
function perSecond(entity, before, name, elapsed) {
  if (!before || entity.totals[name] < before.totals[name]) return null;
  return (entity.totals[name] - before.totals[name]) / elapsed;
}

function waiting(entity, history) {
  const before = history.findLast((each) => each.waits !== null);
  return { waits: entity.waits ?? null, waitedMs: entity.waited_ms, ...latency(entity, before) };
}

// Of what was received since the last look: the average wait, and what 95 of 100 stayed below.
function latency(entity, before) {
  const nothing = { average: null, most: null };
  if (!entity.waits || !before) return nothing;
  const counts = entity.waits.map((count, step) => count - before.waits[step]);
  const received = counts.reduce((sum, count) => sum + count, 0);
  if (received <= 0 || counts.some((count) => count < 0)) return nothing;
  const average = Math.max(0, entity.waited_ms - before.waitedMs) / received;
  return { average, most: Math.max(average, below(counts, 0.95 * received)) };
}

// Step i holds the waits from 2 ** (i - 1) up to 2 ** i ms; within one they are taken as even.
function below(counts, wanted) {
  let seen = 0;
  for (const [step, count] of counts.entries()) {
    if (count && seen + count >= wanted) {
      const least = step === 0 ? 0 : 2 ** (step - 1);
      return least + ((wanted - seen) / count) * (2 ** step - least);
    }
    seen += count;
  }
  return 2 ** (counts.length - 1);
}
