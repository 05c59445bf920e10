// Subscriptions of a topic.
import { get } from "../api.js";
import { h, replace, redraw, empty, problem, table } from "../dom.js";
import { count, entityHref, rate } from "../format.js";
import * as histories from "../histories.js";
import * as live from "../live.js";
import { repeat } from "../polling.js";
import { compose } from "./compose.js";
import { createSubscription } from "./create.js";

const EVERY_MS = 2000;
const SHOWN_MAX = 500;
const COUNTS = ["active", "scheduled", "deferred", "dead_letter"];

export function show(page, entity) {
  const list = h("div", {});
  const create = () => createSubscription(entity.path);
  replace(
    page,
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary", onclick: create }, "Create subscription"),
      h("button", { onclick: () => compose(entity, () => live.poll()) }, "Send message"),
    ),
    list,
  );

  async function load() {
    const wanted = new URLSearchParams({ search: `${entity.path}/Subscriptions/`, top: SHOWN_MAX });
    try {
      const found = await get(`/$busway/entities?${wanted}`);
      const some = found.entities.filter((each) => each.path.startsWith(`${entity.path}/Subscriptions/`));
      some.forEach((each) => histories.note(each));
      redraw(
        list,
        some.length === 0
          ? empty(
              "No subscription yet: what is sent to this topic is dropped.",
              h("button", { class: "primary", onclick: create }, "Create subscription"),
            )
          : table(
              [
                "Subscription",
                ...["Active", "Scheduled", "Deferred", "Dead letters", "In", "Out"].map((each) => [
                  each,
                  "number",
                ]),
              ],
              some.map(row),
            ),
      );
    } catch (error) {
      redraw(list, problem(error));
    }
  }

  return repeat(EVERY_MS, load);
}

function row(each) {
  const rates = histories.ratesOf(each.path);
  return h(
    "tr",
    { "data-key": each.path },
    h("th", { scope: "row" }, h("a", { href: entityHref(each.path) }, each.path.split("/").at(-1))),
    COUNTS.map((name) => h("td", { class: "number" }, count(each.depth[name]))),
    h("td", { class: "number" }, rate(rates.in)),
    h("td", { class: "number" }, rate(rates.out)),
  );
}
