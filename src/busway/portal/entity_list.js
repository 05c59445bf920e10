// The list at the left: queues, and topics with their subscriptions, with a search.
import { h, redraw, badge } from "./dom.js";
import { count, entityHref } from "./format.js";
import * as live from "./live.js";

const WIDE = matchMedia("(min-width: 800px)");

export function entityList() {
  const list = h("nav", { class: "entities", "aria-label": "Entities" });
  const search = h("input", {
    type: "search",
    placeholder: "Search entities  ( / )",
    "aria-label": "Search entities",
    oninput: () => live.search(search.value),
  });
  const element = h(
    "details",
    { class: "side", open: WIDE.matches },
    h("summary", {}, "Entities"),
    search,
    list,
  );
  WIDE.onchange = () => (element.open = WIDE.matches);

  function fill(found) {
    if (!found) return;
    const current = decodeURIComponent(location.hash.split(/[/?]/)[2] || "");
    const group = (name, kinds) => {
      const some = found.entities.filter((each) => kinds.includes(each.type));
      return (
        some.length > 0 &&
        h(
          "section",
          { "data-key": name },
          h("h2", {}, name),
          some.map((each) => item(each, current)),
        )
      );
    };
    redraw(
      list,
      group("Queues", ["queue"]),
      group("Topics", ["topic", "subscription"]),
      found.total > found.entities.length &&
        h("p", { class: "hint" }, `and ${count(found.total - found.entities.length)} more: search for them.`),
      found.entities.length === 0 &&
        h("p", { class: "hint" }, search.value ? "No entity has that in its name." : "No entities yet."),
    );
  }

  return {
    element,
    fill,
    // On a phone the list makes room for what was chosen from it.
    chosen: (isEntity) => {
      if (isEntity && !WIDE.matches) element.open = false;
    },
  };
}

function item(each, current) {
  return h(
    "a",
    {
      "data-key": each.path,
      href: entityHref(each.path),
      class: each.type,
      title: each.path,
      "aria-current": each.path === current ? "page" : null,
    },
    h("span", { class: "path" }, each.type === "subscription" ? each.path.split("/").at(-1) : each.path),
    each.availability === "Limited" && badge("bad", "Limited"),
    h("span", { class: "number" }, count(each.depth.messages)),
  );
}
