// Access rules of the namespace and their keys.
import * as api from "../api.js";
import { h, replace, field, check } from "../dom.js";
import { attempt, confirm, copyButton, dialog, notice } from "../dialogs.js";
import { time } from "../format.js";

const ROOT = "RootManageSharedAccessKey";

export async function show(page) {
  const rows = h("tbody", {});
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Access keys"),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "primary", onclick: () => edit(null) }, "Create rule"),
      ),
    ),
    h(
      "p",
      { class: "hint" },
      "Each rule has two keys, so that one can be renewed while programs use the other.",
    ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Access rules" },
      h(
        "table",
        { class: "list" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Rule", "Rights", "Changed", ""].map((each) => h("th", { scope: "col" }, each)),
          ),
        ),
        rows,
      ),
    ),
  );

  async function load() {
    const found = await api.get("/$busway/rules");
    replace(
      rows,
      found.rules.map((rule) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, rule.name),
          h("td", {}, rule.rights.join(", ")),
          h("td", {}, time(rule.changed)),
          h(
            "td",
            {},
            h("button", { class: "link", onclick: () => attempt(() => reveal(rule.name)) }, "Keys"),
            " ",
            h("button", { class: "link", onclick: () => renew(rule.name) }, "Renew"),
            " ",
            rule.name !== ROOT && h("button", { class: "link", onclick: () => edit(rule) }, "Edit"),
            " ",
            rule.name !== ROOT && h("button", { class: "link", onclick: () => remove(rule.name) }, "Delete"),
          ),
        ),
      ),
    );
  }

  async function reveal(name) {
    const rule = await api.get(`/$busway/rules/${encodeURIComponent(name)}`);
    const shown = (label, text) =>
      h(
        "div",
        { class: "copied" },
        field(label, h("input", { value: text, readonly: true })),
        copyButton(() => text),
      );
    await dialog(
      `Keys of ${name}`,
      h(
        "div",
        { class: "form" },
        shown("Primary key", rule.primary_key),
        shown("Secondary key", rule.secondary_key ?? ""),
        shown("Connection string", api.connectionString(name, rule.primary_key, null)),
      ),
      null,
    );
  }

  // A new rule, or other rights for one that is there; its keys stay.
  function edit(rule) {
    const has = (right) => (rule ? rule.rights.includes(right) : right !== "Manage");
    const name = h("input", {
      required: true,
      autocomplete: "off",
      value: rule?.name ?? "",
      disabled: rule !== null,
    });
    const [sends, listens, manages] = ["Send", "Listen", "Manage"].map((right) =>
      h("input", { checked: has(right) }),
    );
    return dialog(
      rule ? `Edit ${rule.name}` : "Create an access rule",
      h(
        "div",
        { class: "form" },
        field("Name", name),
        check("Send", sends),
        check("Listen", listens),
        check("Manage", manages, "It brings Send and Listen."),
      ),
      rule ? "Save" : "Create",
      async () => {
        const rights = manages.checked
          ? ["Manage", "Send", "Listen"]
          : [sends.checked && "Send", listens.checked && "Listen"].filter(Boolean);
        await api.send("PUT", `/$busway/rules/${encodeURIComponent(name.value.trim())}`, { rights });
        await load();
      },
    );
  }

  async function renew(name) {
    const which = h(
      "select",
      {},
      h("option", { value: "secondary" }, "Secondary key"),
      h("option", { value: "primary" }, "Primary key"),
    );
    await dialog(
      `Renew a key of ${name}?`,
      h(
        "div",
        { class: "form" },
        field("Which", which, "Programs that use it are refused when they next show it."),
      ),
      "Renew",
      async () => {
        const before = await api.get(`/$busway/rules/${encodeURIComponent(name)}`);
        const after = await api.send("POST", `/$busway/rules/${encodeURIComponent(name)}/renew`, {
          key: which.value,
        });
        if (name === api.signedInAs() && before[`${which.value}_key`] === api.usedKey())
          api.keepKey(after[`${which.value}_key`]);
        notice("The key is renewed.");
        await load();
      },
      "danger",
    );
  }

  const remove = (name) =>
    confirm(`Delete the rule ${name}?`, "Programs that use its keys are refused.", "Delete", async () => {
      await api.send("DELETE", `/$busway/rules/${encodeURIComponent(name)}`);
      await load();
    });

  await load();
  return () => {};
}
