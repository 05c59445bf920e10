// Who is connected, with the key that they have shown and their links.
import * as api from "../api.js";
import { h, replace, redraw, empty, problem, table } from "../dom.js";
import { count, entityHref } from "../format.js";
import { repeat } from "../polling.js";

const EVERY_MS = 3000;

export function show(page) {
  const list = h("div", {});
  replace(page, h("div", { class: "title" }, h("h1", {}, "Connections")), list);

  async function load() {
    try {
      const found = await api.get("/$busway/connections");
      redraw(
        list,
        h(
          "p",
          { class: "hint" },
          `${count(found.total)} over AMQP, ${count(found.http_connections)} over HTTP.`,
        ),
        found.total === 0
          ? empty(
              "Nobody is connected over AMQP. Programs appear here as soon as they open a client: the Overview of an entity has one to copy.",
            )
          : table(["Client", "Access rule", "Address", "Links"], found.connections.map(row)),
        found.total > found.connections.length &&
          h("p", { class: "hint" }, `The first ${count(found.connections.length)} are shown.`),
      );
    } catch (error) {
      redraw(list, problem(error));
    }
  }

  return repeat(EVERY_MS, load);
}

function row(each) {
  const links = each.links.filter((link) => link.entity || link.role === "transactions");
  const others = [...new Set(each.links.filter((link) => link.node).map((link) => link.node))];
  return h(
    "tr",
    { "data-key": each.id },
    h(
      "th",
      { scope: "row", class: "cut", title: each.container },
      each.product || each.container || each.id,
      h("span", { class: "kind" }, each.container),
    ),
    h("td", {}, each.access_rules.join(", ") || "none shown yet"),
    h("td", {}, each.address, each.transport === "websocket" && h("span", { class: "kind" }, " WebSocket")),
    h(
      "td",
      {},
      h(
        "ul",
        { class: "plain" },
        links.map(item),
        others.length > 0 && h("li", { class: "small" }, `requests to ${others.join(", ")}`),
      ),
    ),
  );
}

const item = (link) =>
  h(
    "li",
    {},
    `${link.role} `,
    link.entity && h("a", { href: entityHref(link.entity) }, link.entity),
    h("span", { class: "small" }, ` credit ${count(link.credit)}`),
  );
