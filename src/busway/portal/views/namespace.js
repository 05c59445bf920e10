// All entities of the namespace: counts by state, rates, a line of the depth. What is shown is in the
// address, and only that page is asked for: ten thousand entities are as fast as ten.
import { get } from "../api.js";
import { h, replace, redraw, badge, empty, problem } from "../dom.js";
import { count, entityHref, rate, shortPath, size } from "../format.js";
import { sparkline } from "../charts.js";
import * as histories from "../histories.js";
import * as live from "../live.js";
import { repeat } from "../polling.js";
import { createQueue, createTopic } from "./create.js";

const EVERY_MS = 2000;
const PAGE = 100;
const COLUMNS = [
  ["path", "Entity", ""],
  ["active", "Active", "number"],
  ["scheduled", "Scheduled", "number wide"],
  ["deferred", "Deferred", "number wide"],
  ["dead_letter", "Dead", "number"],
  ["messages_in", "In", "number"],
  ["messages_out", "Out", "number"],
  ["bytes", "Size", "number wide"],
];
const RATES = { messages_in: "in", messages_out: "out" };

export function show(page, _, query) {
  const asked = {
    search: query.get("search") || "",
    sort: query.get("sort") || "path",
    reverse: query.has("reverse"),
    page: Number(query.get("page")) || 0,
  };
  const body = h("div", {});
  const search = h("input", {
    type: "search",
    value: asked.search,
    placeholder: "Filter",
    "aria-label": "Filter by name",
    oninput: () => change({ search: search.value, page: 0 }),
  });
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Entities"),
      h(
        "div",
        { class: "buttons" },
        search,
        h("button", { class: "primary", onclick: () => createQueue(live.latest) }, "Create queue"),
        h("button", { onclick: () => createTopic(live.latest) }, "Create topic"),
      ),
    ),
    body,
  );

  function change(wanted) {
    Object.assign(asked, wanted);
    const { search, sort, reverse, page } = asked;
    const told = new URLSearchParams();
    if (search) told.set("search", search);
    if (sort !== "path") told.set("sort", sort);
    if (reverse) told.set("reverse", "1");
    if (page) told.set("page", page);
    history.replaceState(null, "", `#/${told.size ? `?${told}` : ""}`);
    load();
  }

  async function load() {
    const before = JSON.stringify(asked);
    const { search, sort, reverse, page } = asked;
    const wanted = new URLSearchParams({ search, sort, skip: page * PAGE, top: PAGE });
    if (reverse) wanted.set("reverse", "1");
    try {
      const found = await get(`/$busway/entities?${wanted}`);
      found.entities.forEach((each) => histories.note(each));
      if (before === JSON.stringify(asked)) fill(found);
    } catch (error) {
      redraw(body, problem(error));
    }
  }

  function fill(found) {
    if (found.total === 0) {
      redraw(body, asked.search ? empty(`No entity has "${asked.search}" in its name.`) : nothing(found));
      return;
    }
    redraw(
      body,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entities" },
        h(
          "table",
          { class: "list entities-table" },
          h("thead", {}, heads()),
          h("tbody", {}, sorted(found).map(row)),
        ),
      ),
      found.total > PAGE && pages(found.total),
    );
  }

  // The server knows totals and no rates: where all are on one page, the order is by the rate.
  function sorted(found) {
    const name = RATES[asked.sort];
    if (!name || found.total > PAGE) return found.entities;
    const value = (each) => histories.ratesOf(each.path)[name] ?? -1;
    return [...found.entities].sort((a, b) => (value(b) - value(a)) * (asked.reverse ? -1 : 1));
  }

  function heads() {
    const head = ([name, label, css]) => {
      const isSorted = name === asked.sort;
      const isUpward = (name === "path") !== asked.reverse;
      return h(
        "th",
        { scope: "col", class: css, "aria-sort": isSorted ? (isUpward ? "ascending" : "descending") : null },
        h(
          "button",
          {
            class: "sort",
            "data-key": name,
            onclick: () => change({ sort: name, reverse: isSorted && !asked.reverse, page: 0 }),
          },
          label,
          isSorted && (isUpward ? " ↑" : " ↓"),
        ),
      );
    };
    return h(
      "tr",
      {},
      COLUMNS.map(head),
      h("th", { scope: "col", class: "wide" }, "Depth"),
      h("th", { scope: "col", class: "wide" }, "Status"),
    );
  }

  function pages(total) {
    const first = asked.page * PAGE;
    const turn = (label, to, isOpen) =>
      h("button", { disabled: !isOpen, onclick: () => change({ page: to }) }, label);
    return h(
      "div",
      { class: "row" },
      turn("Back", asked.page - 1, asked.page > 0),
      turn("Next", asked.page + 1, first + PAGE < total),
      h(
        "span",
        { class: "hint" },
        `${count(first + 1)} to ${count(Math.min(total, first + PAGE))} of ${count(total)}`,
      ),
      RATES[asked.sort] && h("span", { class: "hint" }, "By messages since the server was started."),
    );
  }

  return repeat(EVERY_MS, load);
}

const nothing = (found) =>
  empty(
    "This namespace has no queue and no topic yet. Create one here, with an administration client, or in a configuration file.",
    h("button", { class: "primary", onclick: () => createQueue(found) }, "Create queue"),
  );

// Of a subscription its path says what it is.
const kindOf = ({ type, partitioned, partition_count: partitions }) =>
  [type !== "subscription" && type, partitioned && `× ${partitions}`].filter(Boolean).join(" ");

function row(each) {
  const rates = histories.ratesOf(each.path);
  const { depth } = each;
  const number = (text, css = "") => h("td", { class: `number ${css}` }, text);
  return h(
    "tr",
    { "data-key": each.path },
    h(
      "th",
      { scope: "row" },
      h("a", { href: entityHref(each.path), title: each.path }, shortPath(each.path)),
      h("span", { class: "kind" }, kindOf(each)),
    ),
    number(count(depth.active)),
    number(count(depth.scheduled), "wide"),
    number(count(depth.deferred), "wide"),
    number(count(depth.dead_letter), depth.dead_letter ? "warn" : ""),
    number(rate(rates.in)),
    number(rate(rates.out)),
    number(size(depth.bytes), "wide"),
    h(
      "td",
      { class: "wide" },
      sparkline(
        histories.historyOf(each.path).map((point) => point.depth),
        `Depth of ${each.path}: ${depth.messages} now`,
      ),
    ),
    h(
      "td",
      { class: "wide" },
      each.status === "Active" ? "Active" : badge("warn", each.status),
      " ",
      each.availability === "Limited" && badge("bad", "Limited"),
    ),
  );
}
