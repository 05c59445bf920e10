// The dialog that makes a rule, or changes one: a SQL filter, or conditions that all must be equal.
import { pathOf } from "../api.js";
import { h, field, choices } from "../dom.js";
import { dialog, notice } from "../dialogs.js";
import { jsonObject } from "../format.js";
import { putRule } from "../management.js";

const CONDITIONS = [
  ["Label", "Subject"],
  ["CorrelationId", "Correlation id"],
  ["MessageId", "Message id"],
  ["To", "To"],
  ["ReplyTo", "Reply to"],
  ["SessionId", "Session id"],
  ["ContentType", "Content type"],
];

export function ruleDialog(path, rule, done) {
  const name = h("input", {
    required: true,
    autocomplete: "off",
    value: rule?.name ?? "",
    disabled: rule !== null,
  });
  const sql = h("input", { placeholder: "amount > 100 AND sys.Label = 'order'", value: rule?.sql ?? "" });
  const action = h("input", { placeholder: "SET priority = 'high'", value: rule?.action ?? "" });
  const conditions = CONDITIONS.map(([key, label]) => [
    key,
    label,
    h("input", { value: rule?.conditions?.[key] ?? "" }),
  ]);
  const properties = h("textarea", {
    rows: 3,
    placeholder: '{"colour": "red"}',
    value: rule?.properties && Object.keys(rule.properties).length ? JSON.stringify(rule.properties) : "",
  });
  let kind = rule?.type === "CorrelationFilter" ? "Correlation filter" : "SQL filter";
  const forms = {
    "SQL filter": h("div", {}, field("SQL filter", sql)),
    "Correlation filter": h(
      "div",
      { class: "form" },
      h("p", { class: "hint" }, "All that are filled in must be equal."),
      conditions.map(([, label, input]) => field(label, input)),
      field("Application properties", properties, "A JSON object."),
    ),
  };
  const choose = (wanted) => {
    kind = wanted;
    for (const [label, form] of Object.entries(forms)) form.hidden = label !== kind;
  };
  choose(kind);
  return dialog(
    rule ? `Edit ${rule.name}` : "Create rule",
    h(
      "div",
      { class: "form" },
      field("Name", name),
      h(
        "div",
        { class: "row", role: "group", "aria-label": "Kind of filter" },
        choices(Object.keys(forms), kind, choose),
      ),
      Object.values(forms),
      field("Action", action, "Optional. It changes the copy that this subscription gets."),
    ),
    rule ? "Save" : "Create",
    async () => {
      const filter =
        kind === "SQL filter"
          ? { sql: sql.value.trim() || "1=1" }
          : {
              correlation: {
                ...Object.fromEntries(conditions.map(([key, , input]) => [key, input.value])),
                properties: jsonObject("The application properties", properties.value),
              },
            };
      await putRule(pathOf(path), name.value.trim(), filter, action.value.trim() || null, rule !== null);
      notice(rule ? `${rule.name} is changed.` : `${name.value.trim()} is created.`);
      await done();
    },
  );
}
