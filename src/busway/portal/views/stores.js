// The messaging stores: how they are, and what they are made to be where faults are allowed.
import * as api from "../api.js";
import { h, replace, notice } from "../dom.js";
import * as live from "../live.js";

const EVERY_MS = 2000;

export function card(store) {
  const make = (mode, delay) => async () => {
    try {
      await api.send(
        "POST",
        `/$busway/stores/${encodeURIComponent(store.name)}/fault`,
        delay ? { mode, delay_ms: delay } : { mode },
      );
      notice(mode === "none" ? `${store.name} is well again.` : `${store.name} is ${mode} now.`);
    } catch (error) {
      notice(error.message, "error");
    }
  };
  const isWell = store.reason === null && store.fault === "none";
  const faults = live.latest?.allow_faults
    ? h(
        "div",
        { class: "row" },
        h("button", { onclick: make("slow", 300) }, "Make slow"),
        h("button", { onclick: make("ill") }, "Make ill"),
        h("button", { onclick: make("gone") }, "Take away"),
        h(
          "button",
          { class: "primary", onclick: make("none"), disabled: store.fault === "none" },
          "Make well",
        ),
      )
    : null;
  return h(
    "div",
    { class: "card" },
    h(
      "div",
      { class: "row" },
      h("b", {}, store.name),
      h(
        "span",
        { class: isWell ? "badge good" : "badge bad" },
        store.fault === "none" ? store.state : store.fault,
      ),
      h(
        "span",
        { class: "small" },
        store.round_trip_ms === null ? "" : `answers in ${Math.round(store.round_trip_ms)} ms`,
      ),
    ),
    (store.problem || store.reason) && h("p", { class: "problem" }, store.problem || store.reason),
    faults,
  );
}

export function show(page) {
  const stores = h("div", { class: "stores" });
  const hint = h("p", { class: "hint" });
  replace(page, h("div", { class: "title" }, h("h1", {}, "Messaging stores")), hint, stores);
  let timer = null,
    left = false;

  async function poll() {
    try {
      const map = await api.get("/$busway/map?top=1");
      replace(stores, map.stores.map(card));
      hint.textContent = live.latest?.allow_faults
        ? "Each store has a message broker of its own. Make one slow or ill, or take it away, and watch a partition map: the others go on."
        : "Each store has a message broker of its own. Start the server with --allow-faults to rehearse an outage from here.";
    } catch (error) {
      hint.textContent = error.message;
    }
    if (!left) timer = setTimeout(poll, EVERY_MS);
  }

  poll();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}
