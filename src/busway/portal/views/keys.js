// Access rules of the namespace and their keys.
import * as api from "../api.js";
import { h, replace, field, check, dialog, notice } from "../dom.js";
import { time } from "../format.js";

export async function show(page) {
  const rows = h("tbody", {});
  replace(
    page,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Access keys"),
      h("div", { class: "buttons" }, h("button", { class: "primary", onclick: create }, "Create rule")),
    ),
    h(
      "p",
      { class: "hint" },
      "Each rule has two keys, so that one can be renewed while programs use the other.",
    ),
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
            h("button", { class: "link", onclick: () => reveal(rule.name) }, "Keys"),
            " ",
            h("button", { class: "link", onclick: () => renew(rule.name) }, "Renew"),
            " ",
            rule.name !== "RootManageSharedAccessKey" &&
              h("button", { class: "link", onclick: () => remove(rule.name) }, "Delete"),
          ),
        ),
      ),
    );
  }

  const string = (name, key) =>
    `Endpoint=sb://${location.host};SharedAccessKeyName=${name};SharedAccessKey=${key};UseDevelopmentEmulator=true;`;

  async function reveal(name) {
    const rule = await api.get(`/$busway/rules/${encodeURIComponent(name)}`);
    const shown = (label, text) => field(label, h("input", { value: text, readonly: true }));
    await dialog(
      `Keys of ${name}`,
      h(
        "div",
        { class: "form" },
        shown("Primary key", rule.primary_key),
        shown("Secondary key", rule.secondary_key ?? ""),
        shown("Connection string", string(name, rule.primary_key)),
      ),
      null,
    );
  }

  async function create() {
    const name = h("input", { required: true }),
      sends = h("input", { checked: true }),
      listens = h("input", { checked: true }),
      manages = h("input", {});
    await dialog(
      "Create an access rule",
      h(
        "div",
        { class: "form" },
        field("Name", name),
        check("Send", sends),
        check("Listen", listens),
        check("Manage", manages, "It brings Send and Listen."),
      ),
      "Create",
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
    dialog(
      `Delete the rule ${name}?`,
      h("p", {}, "Programs that use its keys are refused."),
      "Delete",
      async () => {
        await api.send("DELETE", `/$busway/rules/${encodeURIComponent(name)}`);
        await load();
      },
      "danger",
    );

  await load();
  return () => {};
}
