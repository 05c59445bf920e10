// One entity: its tabs, and what belongs to all of them.
import * as api from "../api.js";
import { h, replace, tabs, dialog, notice } from "../dom.js";
import * as live from "../live.js";
import * as overview from "./overview.js";
import * as partitions from "./partitions.js";
import * as explorer from "./explorer.js";
import * as sessions from "./sessions.js";
import * as rules from "./rules.js";
import * as settings from "./settings.js";
import * as subscriptions from "./subscriptions.js";

const VIEWS = { overview, partitions, explorer, sessions, rules, settings, subscriptions };

function tabsOf(entity) {
  const items = [["overview", "Overview"]];
  if (entity.partitioned) items.push(["partitions", "Partition map"]);
  if (entity.type === "topic") items.push(["subscriptions", "Subscriptions"], ["rules", "Try rules"]);
  else items.push(["explorer", "Explorer"]);
  if (entity.type === "subscription") items.push(["rules", "Rules"]);
  if (entity.requires_session) items.push(["sessions", "Sessions"]);
  items.push(["settings", "Settings"]);
  return items;
}

export async function show(page, [path, tab = "overview"], query) {
  const base = `#/entity/${encodeURIComponent(path)}`;
  const content = h("div", {});
  if (api.ownEntity()) {
    // A key of one entity may not see its description: its messages are what there is to show.
    replace(page, h("div", { class: "title" }, h("h1", {}, path)), content);
    return explorer.show(content, { path, type: "queue", partitioned: false, partition_count: 1 }, query);
  }
  const entity = await api.get(api.explorer(path));
  const chosen = VIEWS[tab] ? tab : "overview";
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, path, " ", h("span", { class: "kind" }, entity.type)),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "danger", onclick: () => remove(entity) }, "Delete"),
      ),
    ),
    tabs(
      tabsOf(entity).map(([name, label]) => [name, label, name === "overview" ? base : `${base}/${name}`]),
      chosen,
    ),
    content,
  );
  return VIEWS[chosen].show(content, entity, query);
}

function remove(entity) {
  const held = entity.depth.messages;
  return dialog(
    `Delete ${entity.path}?`,
    h(
      "p",
      {},
      held
        ? `It holds ${held} messages, which are deleted with it. This cannot be undone.`
        : "It holds no messages. This cannot be undone.",
    ),
    "Delete",
    async () => {
      await api.deleteEntity(api.pathOf(entity.path));
      await live.poll();
      notice(`${entity.path} is deleted.`);
      location.hash =
        entity.type === "subscription"
          ? `#/entity/${encodeURIComponent(entity.path.split("/Subscriptions/")[0])}`
          : "#/";
    },
    "danger",
  );
}
