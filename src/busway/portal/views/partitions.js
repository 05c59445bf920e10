// The partition map: sixteen cells, live, and what happens when a store is made ill.
import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { count, rate, size } from "../format.js";
import { card } from "./stores.js";

const EVERY_MS = 1500;

export function show(page, entity) {
  const grid = h("div", { class: "map", role: "list", "aria-label": `Partitions of ${entity.path}` });
  const stores = h("div", { class: "stores" });
  const summary = h("p", { class: "hint" });
  replace(page, summary, grid, h("h2", {}, "Messaging stores"), stores);
  let before = null;
  let timer = null;
  let left = false;

  async function poll() {
    try {
      const [now, map] = await Promise.all([
        api.get(api.explorer(entity.path)),
        api.get(`/$busway/map?entity=${encodeURIComponent(entity.path)}&top=1`),
      ]);
      fill(now, performance.now() / 1000, map.stores);
    } catch (error) {
      summary.textContent = error.message;
    }
    if (!left) timer = setTimeout(poll, EVERY_MS);
  }

  function fill(now, at, found) {
    const most = Math.max(1, ...now.partitions.map((each) => each.depth.messages));
    const names = [...new Set(now.partitions.map((each) => each.store))];
    replace(
      grid,
      now.partitions.map((each, index) => {
        const past = before?.partitions[index];
        const elapsed = before ? at - before.at : 0;
        const moved =
          past && elapsed ? Math.max(0, each.totals.messages_in - past.totals.messages_in) / elapsed : null;
        const cell = h(
          "div",
          {
            class: `cell store-${names.indexOf(each.store) % 6} ${each.available ? "" : "away"}`,
            role: "listitem",
            "aria-label": `Partition ${each.partition}, ${each.store}, ${each.available ? "available" : "unavailable"}, ${each.depth.messages} messages`,
          },
          h(
            "div",
            { class: "index" },
            each.partition,
            !each.available && h("span", { class: "badge bad" }, each.state),
          ),
          h("div", { class: "depth" }, count(each.depth.messages)),
          h("div", { class: "bar" }),
          h("div", { class: "small" }, rate(moved), " in · ", size(each.depth.bytes)),
          h("div", { class: "small" }, `${each.store ?? "–"} · ${each.broker}`),
        );
        cell.querySelector(".bar").style.setProperty("--part", each.depth.messages / most);
        return cell;
      }),
    );
    const away = now.partitions.filter((each) => !each.available).length;
    summary.textContent = away
      ? `${away} of ${now.partitions.length} partitions are unavailable: the entity is Limited. Messages without a key go to the others; messages whose key belongs to one of these are refused until it is back.`
      : `All ${now.partitions.length} partitions are available, spread over ${names.length} stores. Messages without a key take turns; messages with the same key stay together.`;
    replace(
      stores,
      found.map((store) => card(store)),
    );
    before = { ...now, at };
  }

  poll();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}
