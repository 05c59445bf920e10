// Entities whose journals are kept, and how far their readers are.
import * as api from "../api.js";
import { h, replace, empty } from "../dom.js";
import { count } from "../format.js";
import * as live from "../live.js";

export async function show(page) {
  const list = h("div", {});
  replace(page, h("div", { class: "title" }, h("h1", {}, "Captures")), list);
  await live.poll();
  const captured = (live.latest?.entities || []).filter((each) => each.captured);
  if (captured.length === 0) {
    replace(
      list,
      empty(
        "No entity is captured. A captured entity keeps a journal of what happens to its messages, which the data pipeline reads: busway capture orders on, then busway pipeline capture.",
      ),
    );
    return () => {};
  }
  const rows = await Promise.all(
    captured.map(async (each) => {
      try {
        const told = await api.get(`${api.pathOf(each.path)}/$journal`);
        const end = Object.fromEntries(told.partitions.map((part) => [part.partition, part.next]));
        const events = told.partitions.reduce((sum, part) => sum + (part.next - part.earliest), 0);
        const readers = Object.entries(told.holds || {}).map(
          ([name, hold]) =>
            `${name}: ${count(Object.entries(hold.next || hold).reduce((sum, [part, next]) => sum + Math.max(0, (end[part] ?? 0) - next), 0))} behind`,
        );
        return [each.path, count(events), readers.join(", ") || "no reader holds it"];
      } catch (error) {
        return [each.path, "–", error.message];
      }
    }),
  );
  replace(
    list,
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "list" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Entity"),
            h("th", { scope: "col", class: "number" }, "Events kept"),
            h("th", { scope: "col" }, "Readers"),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map(([path, events, readers]) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, h("a", { href: `#/entity/${encodeURIComponent(path)}` }, path)),
              h("td", { class: "number" }, events),
              h("td", {}, readers),
            ),
          ),
        ),
      ),
    ),
  );
  return () => {};
}
