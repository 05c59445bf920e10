// The partition map: sixteen cells, live, and what happens to sends while a store is away.
import * as api from "../api.js";
import { h, svg, replace, redraw, badge } from "../dom.js";
import { count, entityHref, messages, rate, size } from "../format.js";
import { repeat } from "../polling.js";
import { storeCard } from "./stores.js";

const EVERY_MS = 1500;
const EVENTS_MAX = 12;
// States in which nobody knows what is in a store.
const UNKNOWN = new Set(["opening", "fenced", "stopped", "unknown"]);

export function show(page, entity, query) {
  const chosen = query.has("partition") ? Number(query.get("partition")) : null;
  const summary = h("p", { class: "hint", role: "status" });
  const grid = h("div", { class: "map", role: "list", "aria-label": `Partitions of ${entity.path}` });
  const detail = h("aside", { class: "detail", "aria-label": "Partition" });
  const events = h("div", {});
  const stores = h("div", { class: "stores" });
  replace(
    page,
    summary,
    h("div", { class: "split" }, h("div", {}, grid, h("h2", {}, "Messaging stores"), stores, events), detail),
  );
  const told = [];
  let before = null;

  async function load() {
    try {
      const [now, map] = await Promise.all([
        api.get(`${api.pathOf(entity.path)}/$explorer`),
        api.get(`/$busway/map?entity=${encodeURIComponent(entity.path)}&top=1`),
      ]);
      fill({ ...now, at: performance.now() / 1000 }, map.stores);
    } catch (error) {
      redraw(summary, error.message);
    }
  }

  function fill(now, found) {
    const names = found.map((each) => each.name);
    const rates = now.partitions.map((_, place) => ratesOf(now, before, place));
    const most = Math.max(1, ...now.partitions.map((each) => each.depth.messages));
    redraw(summary, summaryOf(now));
    redraw(
      grid,
      now.partitions.map((each, place) => cell(entity, each, rates[place], most, names, chosen)),
    );
    redraw(
      detail,
      chosen !== null && now.partitions[chosen] && about(entity, now.partitions[chosen], rates[chosen]),
    );
    if (before) told.unshift(...changes(before, now));
    told.splice(EVENTS_MAX);
    redraw(
      events,
      told.length > 0 && [h("h2", {}, "What happened"), h("ol", { class: "events" }, told.map(item))],
    );
    redraw(
      stores,
      found.map((store) => storeCard(store, load)),
    );
    before = now;
  }

  return repeat(EVERY_MS, load);
}

function ratesOf(now, before, place) {
  if (!before) return { in: null, out: null };
  const per = (name) =>
    Math.max(0, now.partitions[place].totals[name] - before.partitions[place].totals[name]) /
    (now.at - before.at);
  return { in: per("messages_in"), out: per("messages_out") };
}

function summaryOf(now) {
  const away = now.partitions.filter((each) => !each.available).length;
  const stores = new Set(now.partitions.map((each) => each.store)).size;
  if (away === 0)
    return `All ${now.partitions.length} partitions are available, spread over ${stores} stores. Messages without a key take turns; messages with the same key stay together.`;
  return [
    badge("bad", "Limited"),
    ` ${away} of ${now.partitions.length} partitions are unavailable. Messages without a key go to the others; messages whose key belongs to one of these are refused until it is back.`,
  ];
}

function cell(entity, each, rates, most, names, chosen) {
  const isChosen = each.partition === chosen;
  const state = each.available ? "available" : each.state;
  return h(
    "div",
    { role: "listitem", "data-key": each.partition },
    h(
      "a",
      {
        class: `cell store-${names.indexOf(each.store) % 6} ${each.available ? "" : "away"}`,
        href: entityHref(entity.path, "partitions", { partition: isChosen ? "" : each.partition }),
        "aria-current": isChosen ? "true" : null,
        "aria-label": `Partition ${each.partition}: ${each.depth.messages} messages, ${each.store}, ${state}`,
      },
      h("span", { class: "index" }, each.partition, !each.available && badge("bad", each.state)),
      h("span", { class: "depth" }, UNKNOWN.has(each.state) ? "–" : count(each.depth.messages)),
      bar(each.depth.messages / most),
      h("span", { class: "small" }, `${rate(rates.in)} in`),
      h("span", { class: "small" }, `${rate(rates.out)} out`),
      h("span", { class: "small" }, `${each.store ?? "–"} · ${each.node}`),
      each.pinned_sends_refused > 0 &&
        h("span", { class: "small refused" }, `${count(each.pinned_sends_refused)} refused`),
    ),
  );
}

const bar = (part) =>
  svg(
    "svg",
    { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 100, height: 4 }),
    svg("rect", { width: 100 * part, height: 4 }),
  );

function about(entity, each, rates) {
  const pairs = [
    ["State", each.available ? "available" : each.state],
    ["Store", each.store ?? "–"],
    ["Broker", each.broker ?? "–"],
    ["Node", each.node],
    ["In", rate(rates.in)],
    ["Out", rate(rates.out)],
    ["Size", size(each.depth.bytes)],
    ["Active", count(each.depth.active)],
    ["Scheduled", count(each.depth.scheduled)],
    ["Deferred", count(each.depth.deferred)],
    ["Dead letters", count(each.depth.dead_letter)],
    ["In, since the start", count(each.totals.messages_in)],
    ["Out, since the start", count(each.totals.messages_out)],
    ["Sends refused by key", count(each.pinned_sends_refused)],
  ];
  return [
    h("h2", {}, `Partition ${each.partition}`),
    h(
      "dl",
      { class: "pairs" },
      pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    entity.type !== "topic" &&
      h(
        "p",
        {},
        h(
          "a",
          { href: entityHref(entity.path, "explorer", { partition: each.partition }) },
          "Messages in it",
        ),
      ),
    h("p", {}, h("a", { href: entityHref(entity.path, "partitions") }, "Close")),
  ];
}

// What is different since the last look, in words.
function changes(before, now) {
  const at = new Date().toLocaleTimeString();
  const found = [];
  const say = (kind, text) => found.push({ at, kind, text });
  const turned = (isAvailable) =>
    now.partitions.filter((each, place) => {
      return each.available === isAvailable && before.partitions[place].available !== isAvailable;
    });
  const list = (some) => some.map((each) => each.partition).join(", ");
  const [gone, back] = [turned(false), turned(true)];
  if (gone.length) say("bad", `Partitions ${list(gone)} are unavailable: the entity is Limited.`);
  if (back.length) say("good", `Partitions ${list(back)} are back.`);
  const rerouted = now.rerouted - before.rerouted;
  if (rerouted > 0) say("warn", `${messages(rerouted)} without a key went to another partition.`);
  const refused = now.partitions
    .map((each, place) => [each, each.pinned_sends_refused - before.partitions[place].pinned_sends_refused])
    .filter(([, times]) => times > 0);
  if (refused.length) {
    const times = refused.reduce((sum, [, each]) => sum + each, 0);
    say(
      "bad",
      `${messages(times)} refused, because their keys pin them to partition ${list(refused.map(([each]) => each))}.`,
    );
  }
  return found;
}

const item = ({ at, kind, text }) => h("li", {}, h("time", {}, at), badge(kind, text));
