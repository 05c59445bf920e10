// Who is connected, with their links.
import * as api from "../api.js";
import { h, replace, empty } from "../dom.js";
import { count } from "../format.js";

const EVERY_MS = 3000;

export function show(page) {
  const list = h("div", {});
  replace(page, h("div", { class: "title" }, h("h1", {}, "Connections")), list);
  let timer = null,
    left = false;

  async function poll() {
    try {
      const found = await api.get("/$busway/connections");
      replace(
        list,
        found.total === 0
          ? empty("Nobody is connected over AMQP. Programs appear here as soon as they open a client.")
          : table(found),
      );
    } catch (error) {
      replace(list, h("p", { class: "problem", role: "alert" }, error.message));
    }
    if (!left) timer = setTimeout(poll, EVERY_MS);
  }

  poll();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}

function table(found) {
  const heads = ["Client", "Address", "Transport", "Links"].map((each) => h("th", { scope: "col" }, each));
  const rows = found.connections.map((each) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "cut" }, each.container || each.id),
      h("td", {}, each.address),
      h("td", {}, each.transport),
      h("td", {}, each.links.length === 0 ? "–" : h("ul", { class: "plain" }, each.links.map(item))),
    ),
  );
  return [
    h("p", { class: "hint" }, `${count(found.total)} over AMQP, ${count(found.http_connections)} over HTTP.`),
    h(
      "div",
      { class: "scroll" },
      h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
    ),
  ];
}

function item(link) {
  const place = link.entity && [
    " ",
    h("a", { href: `#/entity/${encodeURIComponent(link.entity)}` }, link.entity),
  ];
  return h("li", {}, link.role, place, h("span", { class: "small" }, ` credit ${count(link.credit)}`));
}
