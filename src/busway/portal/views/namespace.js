// All entities of the namespace: counts by state, rates, a line of the depth; made and deleted.
import { h, replace, empty } from "../dom.js";
import { count, rate, size } from "../format.js";
import { sparkline } from "../charts.js";
import * as live from "../live.js";
import { createQueue, createTopic } from "./create.js";

const COLUMNS = [
  ["path", "Entity", (each) => each.path.toLowerCase()],
  ["active", "Active", (each) => each.depth.active],
  ["scheduled", "Scheduled", (each) => each.depth.scheduled],
  ["deferred", "Deferred", (each) => each.depth.deferred],
  ["dead_letter", "Dead letters", (each) => each.depth.dead_letter],
  ["in", "In", (each) => live.ratesOf(each.path).in ?? -1],
  ["out", "Out", (each) => live.ratesOf(each.path).out ?? -1],
  ["bytes", "Size", (each) => each.depth.bytes],
];

export function show(page) {
  let sortBy = "path",
    upward = true;
  const body = h("div", {});
  const heads = h("tr", {});
  const rows = h("tbody", {});
  const table = h("div", { class: "scroll" }, h("table", { class: "list" }, h("thead", {}, heads), rows));
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Entities"),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "primary", onclick: () => createQueue(live.latest) }, "Create queue"),
        h("button", { onclick: () => createTopic(live.latest) }, "Create topic"),
      ),
    ),
    body,
  );

  function fillHeads() {
    replace(
      heads,
      COLUMNS.map(([name, label]) =>
        h(
          "th",
          {
            scope: "col",
            "aria-sort": name === sortBy ? (upward ? "ascending" : "descending") : null,
            class: name === "path" ? null : "number",
          },
          h(
            "button",
            {
              class: "sort",
              onclick: () => {
                upward = name === sortBy ? !upward : name === "path";
                sortBy = name;
                fillHeads();
                fill(live.latest);
              },
            },
            label,
            name === sortBy && (upward ? " ↑" : " ↓"),
          ),
        ),
      ),
      h("th", { scope: "col" }, "Depth"),
      h("th", { scope: "col" }, "State"),
    );
  }

  function fill(found) {
    if (!found) return;
    if (found.entities.length === 0) {
      replace(
        body,
        empty(
          "This namespace has no queue and no topic yet. Create one here, with an administration client, or in a configuration file.",
          h("button", { class: "primary", onclick: () => createQueue(found) }, "Create queue"),
        ),
      );
      return;
    }
    const value = COLUMNS.find(([name]) => name === sortBy)[2];
    const sorted = [...found.entities].sort(
      (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (upward ? 1 : -1),
    );
    replace(
      rows,
      sorted.map((each) => {
        const rates = live.ratesOf(each.path);
        return h(
          "tr",
          {},
          h(
            "th",
            { scope: "row" },
            h("a", { href: `#/entity/${encodeURIComponent(each.path)}` }, each.path),
            " ",
            h("span", { class: "kind" }, each.type),
            each.partitioned && h("span", { class: "kind" }, ` × ${each.partition_count}`),
          ),
          ["active", "scheduled", "deferred"].map((name) =>
            h("td", { class: "number" }, count(each.depth[name])),
          ),
          h(
            "td",
            { class: each.depth.dead_letter ? "number warn" : "number" },
            count(each.depth.dead_letter),
          ),
          h("td", { class: "number" }, rate(rates.in)),
          h("td", { class: "number" }, rate(rates.out)),
          h("td", { class: "number" }, size(each.depth.bytes)),
          h(
            "td",
            {},
            sparkline(
              live.historyOf(each.path).map((point) => point.depth),
              `Depth of ${each.path}: ${each.depth.messages} now`,
            ),
          ),
          h(
            "td",
            {},
            h("span", { class: each.status === "Active" ? "badge good" : "badge warn" }, each.status),
            " ",
            each.availability === "Limited" && h("span", { class: "badge bad" }, "Limited"),
          ),
        );
      }),
    );
    if (!table.isConnected) replace(body, table);
  }

  fillHeads();
  return live.listen(fill);
}
