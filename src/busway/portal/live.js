// What the namespace holds, asked for again and again while somebody looks; rates from totals.
import { get } from "./api.js";

const EVERY_MS = 2000;
const KEPT = 150;

const histories = new Map();
const listeners = new Set();
let timer = null;
export let latest = null;
export let problem = null;

export function listen(listener) {
  listeners.add(listener);
  if (latest) listener(latest);
  if (timer === null) poll();
  return () => listeners.delete(listener);
}

export function stop() {
  clearTimeout(timer);
  timer = null;
  latest = null;
  histories.clear();
  listeners.clear();
}

export async function poll() {
  clearTimeout(timer);
  timer = setTimeout(() => {}, EVERY_MS);
  try {
    const found = await all();
    const at = performance.now() / 1000;
    for (const entity of found.entities) note(entity.path, at, entity);
    for (const path of histories.keys())
      if (!found.entities.some((each) => each.path === path)) histories.delete(path);
    latest = found;
    problem = null;
  } catch (error) {
    problem = error;
  }
  for (const listener of [...listeners]) listener(latest, problem);
  if (timer !== null) timer = setTimeout(poll, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

async function all() {
  const first = await get("/$busway/entities");
  let next = first.next;
  while (next) {
    const page = await get(next);
    first.entities.push(...page.entities);
    next = page.next;
  }
  return first;
}

function note(path, at, entity) {
  const history = histories.get(path) || [];
  const before = history.at(-1);
  const elapsed = before ? at - before.at : 0;
  // Totals begin again when the server does: then there is no rate to tell.
  const per = (name) =>
    before && elapsed > 0 && entity.totals[name] >= before.totals[name]
      ? (entity.totals[name] - before.totals[name]) / elapsed
      : null;
  history.push({
    at,
    totals: entity.totals,
    depth: entity.depth.messages,
    in: per("messages_in"),
    out: per("messages_out"),
  });
  if (history.length > KEPT) history.shift();
  histories.set(path, history);
}

export const historyOf = (path) => histories.get(path) || [];

export function ratesOf(path) {
  const last = historyOf(path).at(-1);
  return { in: last?.in ?? null, out: last?.out ?? null };
}
