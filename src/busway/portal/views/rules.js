// Rules of a subscription, and a box to try them.
import * as api from "../api.js";
import { h, replace, empty, table } from "../dom.js";
import { confirm, notice } from "../dialogs.js";
import { deleteRule, readRules } from "../management.js";
import { ruleDialog } from "./rule_dialog.js";
import { tryOut } from "./try_out.js";

export async function show(page, entity) {
  const rules = h("div", {});
  if (entity.type !== "subscription") {
    replace(page, tryOut(entity));
    return () => {};
  }
  const create = () => ruleDialog(entity.path, null, load);
  replace(
    page,
    h(
      "section",
      {},
      h("div", { class: "row" }, h("h2", {}, "Rules"), h("button", { onclick: create }, "Create rule")),
      rules,
    ),
    tryOut(entity),
  );

  async function load() {
    const found = await readRules(api.pathOf(entity.path));
    replace(
      rules,
      found.length === 0
        ? empty(
            "Without a rule this subscription gets no messages.",
            h("button", { class: "primary", onclick: create }, "Create rule"),
          )
        : table(["Name", "Filter", "Action", ""], found.map(row)),
    );
  }

  const row = (rule) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, rule.name),
      h("td", {}, h("code", {}, rule.filter), " ", h("span", { class: "kind" }, rule.type)),
      h("td", {}, rule.action ? h("code", {}, rule.action) : "–"),
      h(
        "td",
        {},
        h("button", { class: "link", onclick: () => ruleDialog(entity.path, rule, load) }, "Edit"),
        " ",
        h("button", { class: "link", onclick: () => remove(rule) }, "Delete"),
      ),
    );

  const remove = (rule) =>
    confirm(
      `Delete the rule ${rule.name}?`,
      "Messages that only this rule lets in do not come any more.",
      "Delete",
      async () => {
        await deleteRule(api.pathOf(entity.path), rule.name);
        notice(`${rule.name} is deleted.`);
        await load();
      },
    );

  await load();
  return () => {};
}
