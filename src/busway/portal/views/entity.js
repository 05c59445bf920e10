// One entity: its tabs, and what belongs to all of them.
import * as api from "../api.js";
import { h, replace, badge, tabs } from "../dom.js";
import { confirm, notice } from "../dialogs.js";
import { count, entityHref } from "../format.js";
import * as live from "../live.js";
import { deleteEntity } from "../management.js";
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
  const content = h("div", {});
  if (api.ownEntity()) {
    // A key of one entity may not see its description: its messages are what there is to show.
    replace(page, h("div", { class: "title" }, h("h1", {}, path)), content);
    return explorer.show(content, { path, type: "queue", partitioned: false, partition_count: 1 }, query);
  }
  const entity = await api.get(`${api.pathOf(path)}/$explorer`);
  const chosen = VIEWS[tab] ? tab : "overview";
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h(
        "h1",
        {},
        entity.path,
        " ",
        h("span", { class: "kind" }, entity.type, entity.partitioned && ` × ${entity.partition_count}`),
        entity.status !== "Active" && badge("warn", entity.status),
      ),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "danger", onclick: () => remove(entity) }, "Delete"),
      ),
    ),
    tabs(
      tabsOf(entity).map(([name, label]) => [
        name,
        label,
        entityHref(entity.path, name === "overview" ? "" : name),
      ]),
      chosen,
    ),
    content,
  );
  return VIEWS[chosen].show(content, entity, query);
}

async function remove(entity) {
  const held = (await api.get(`${api.pathOf(entity.path)}/$explorer`)).depth.messages;
  const below =
    entity.type === "topic" ? ` Its ${entity.subscriptions.length} subscriptions go with it.` : "";
  return confirm(
    `Delete ${entity.path}?`,
    (held ? `It holds ${count(held)} messages, which are deleted with it.` : "It holds no messages.") +
      `${below} This cannot be undone.`,
    "Delete",
    async () => {
      await deleteEntity(api.pathOf(entity.path));
      await live.poll();
      notice(`${entity.path} is deleted.`);
      location.hash =
        entity.type === "subscription"
          ? entityHref(entity.path.split("/Subscriptions/")[0], "subscriptions")
          : "#/";
    },
  );
}
