// The namespace as the list at the left has it: the first entities, or those that are searched for.
import { get } from "./api.js";
import * as histories from "./histories.js";
import { repeat } from "./polling.js";

const EVERY_MS = 2000;
export const SHOWN_MAX = 200;

const listeners = new Set();
let stopPolling = null;
let wanted = "";
export let latest = null;

export function listen(listener) {
  listeners.add(listener);
  if (latest) listener(latest);
  if (stopPolling === null) stopPolling = repeat(EVERY_MS, poll);
  return () => listeners.delete(listener);
}

export function stop() {
  stopPolling?.();
  stopPolling = null;
  latest = null;
  wanted = "";
  histories.forget();
  listeners.clear();
}

export function search(text) {
  wanted = text.trim();
  return poll();
}

export async function poll() {
  const asked = wanted;
  let problem = null;
  try {
    const found = await get(`/$busway/entities?${new URLSearchParams({ top: SHOWN_MAX, search: asked })}`);
    if (asked !== wanted) return; // somebody has typed on
    found.entities.forEach((each) => histories.note(each));
    latest = found;
  } catch (error) {
    problem = error;
  }
  for (const listener of [...listeners]) listener(latest, problem);
}
