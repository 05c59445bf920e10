// A messaging store as a card: how it is, and what it is made to be where faults are allowed.
import * as api from "../api.js";
import { h, badge } from "../dom.js";
import { attempt, notice } from "../dialogs.js";
import * as live from "../live.js";

const SLOW_MS = 300;
const FAULTS = [
  ["none", "Well"],
  ["slow", "Slow"],
  ["ill", "Ill"],
  ["gone", "Gone"],
];

export function storeCard(store, changed) {
  const isWell = store.reason === null && store.fault === "none";
  return h(
    "div",
    { class: "card", "data-key": store.name },
    h(
      "div",
      { class: "row" },
      h("b", {}, store.name),
      badge(isWell ? "good" : "bad", store.fault === "none" ? store.state : store.fault),
      h(
        "span",
        { class: "small" },
        store.round_trip_ms === null ? "does not answer" : `answers in ${Math.round(store.round_trip_ms)} ms`,
      ),
    ),
    (store.problem || store.reason) && h("p", { class: "problem" }, store.problem || store.reason),
    store.damaged_messages > 0 &&
      h(
        "p",
        { class: "problem" },
        `${store.damaged_messages} damaged messages are set aside: busway verify tells more.`,
      ),
    live.latest?.allow_faults && faults(store, changed),
  );
}

function faults(store, changed) {
  const make = (mode) =>
    attempt(async () => {
      const body = mode === "slow" ? { mode, delay_ms: SLOW_MS } : { mode };
      await api.send("POST", `/$busway/stores/${encodeURIComponent(store.name)}/fault`, body);
      notice(mode === "none" ? `${store.name} is well again.` : `${store.name} is ${mode} now.`);
      await changed();
    });
  return h(
    "div",
    { class: "choice", role: "group", "aria-label": `Make ${store.name}` },
    FAULTS.map(([mode, label]) =>
      h(
        "button",
        { "data-key": mode, "aria-pressed": String(store.fault === mode), onclick: () => make(mode) },
        label,
      ),
    ),
  );
}
