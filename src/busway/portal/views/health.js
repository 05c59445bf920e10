// How the stores and the nodes are.
import * as api from "../api.js";
import { h, replace, redraw, badge, table } from "../dom.js";
import { count, size, span } from "../format.js";
import * as live from "../live.js";
import { repeat } from "../polling.js";
import { storeCard } from "./stores.js";

const EVERY_MS = 2000;

export function show(page) {
  const hint = h("p", { class: "hint" });
  const stores = h("div", { class: "stores" });
  const nodes = h("div", {});
  replace(
    page,
    h("div", { class: "title" }, h("h1", {}, "Health")),
    h("h2", {}, "Messaging stores"),
    hint,
    stores,
    h("h2", {}, "Nodes"),
    nodes,
  );

  async function load() {
    try {
      const [map, found] = await Promise.all([api.get("/$busway/map?top=1"), api.get("/$busway/nodes")]);
      redraw(hint, hintOf());
      redraw(
        stores,
        map.stores.map((store) => storeCard(store, load)),
      );
      redraw(nodes, nodesTable(found.nodes));
    } catch (error) {
      redraw(hint, error.message);
    }
  }

  return repeat(EVERY_MS, load);
}

const hintOf = () =>
  live.latest?.allow_faults
    ? "Each store has a message broker of its own. Make one slow, ill or gone, and watch a partition map: the others go on."
    : "Each store has a message broker of its own. Start the server with --allow-faults to rehearse an outage from here.";

function nodesTable(nodes) {
  const row = (each) =>
    h(
      "tr",
      { "data-key": each.name },
      h("th", { scope: "row" }, each.name),
      h(
        "td",
        {},
        badge(each.status === "ok" ? "good" : "bad", each.status),
        each.ill_stores > 0 && ` ${each.ill_stores} of ${each.stores.length} stores`,
      ),
      h("td", {}, each.version),
      h("td", {}, each.started_s ? span(Date.now() - each.started_s * 1000) : "–"),
      h("td", {}, each.stores.join(", ")),
      h(
        "td",
        { class: "number" },
        `${count(each.amqp_connections)} AMQP, ${count(each.http_connections)} HTTP`,
      ),
      h("td", { class: "number" }, size(each.memory_bytes)),
      h("td", { class: "number" }, `${size(each.uncommitted_bytes)} of ${size(each.uncommitted_bytes_max)}`),
    );
  return table(
    [
      "Node",
      "Health",
      "Version",
      "Up for",
      "Stores",
      ["Connections", "number"],
      ["Memory", "number"],
      ["Not committed yet", "number"],
    ],
    nodes.map(row),
  );
}
