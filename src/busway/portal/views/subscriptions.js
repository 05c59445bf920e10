// Subscriptions of a topic.
import { h, replace, empty } from "../dom.js";
import { count } from "../format.js";
import * as live from "../live.js";
import { createSubscription } from "./create.js";
import { compose } from "./explorer.js";

export function show(page, entity) {
  const list = h("div", {});
  replace(
    page,
    h(
      "div",
      { class: "row" },
      h(
        "button",
        { class: "primary", onclick: () => createSubscription(entity.path) },
        "Create subscription",
      ),
      h("button", { onclick: () => compose(entity, () => live.poll()) }, "Send message"),
    ),
    list,
  );
  return live.listen((found) => {
    const some = (found?.entities || []).filter(
      (each) => each.type === "subscription" && each.path.startsWith(`${entity.path}/Subscriptions/`),
    );
    if (some.length === 0) {
      replace(list, empty("No subscription yet: what is sent to this topic is dropped."));
      return;
    }
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
              h("th", { scope: "col" }, "Subscription"),
              ["Active", "Scheduled", "Deferred", "Dead letters"].map((each) =>
                h("th", { scope: "col", class: "number" }, each),
              ),
            ),
          ),
          h(
            "tbody",
            {},
            some.map((each) =>
              h(
                "tr",
                {},
                h(
                  "th",
                  { scope: "row" },
                  h("a", { href: `#/entity/${encodeURIComponent(each.path)}` }, each.path.split("/").at(-1)),
                ),
                ["active", "scheduled", "deferred", "dead_letter"].map((name) =>
                  h("td", { class: "number" }, count(each.depth[name])),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  });
}
