// A message that is not sent: which rules would take it, and why the others would not.
import * as api from "../api.js";
import { h, replace, badge, empty, field, problem } from "../dom.js";
import { jsonObject } from "../format.js";

const FIELDS = [
  ["Label", "Subject (sys.Label)"],
  ["CorrelationId", "Correlation id"],
  ["SessionId", "Session id"],
  ["To", "To"],
  ["MessageId", "Message id"],
];

export function tryOut(entity) {
  const inputs = FIELDS.map(([name, label]) => [name, label, h("input", {})]);
  const type = h("input", {});
  const properties = h("textarea", {
    rows: 2,
    placeholder: '{"amount": 500, "colour": "red"}',
    spellcheck: "false",
  });
  const draft = h("textarea", { rows: 2, placeholder: "amount > 100", spellcheck: "false" });
  const result = h("div", { role: "status" });

  async function run(event) {
    event.preventDefault();
    try {
      const values = inputs.map(([name, , input]) => [name, input.value]).filter(([, value]) => value);
      const found = await api.send("POST", `${api.pathOf(entity.path)}/$explorer/try`, {
        properties: Object.fromEntries(values),
        application_properties: jsonObject("The application properties", properties.value),
        ...(type.value && { content_type: type.value }),
        ...(draft.value.trim() && { rule: { sql: draft.value.trim() } }),
      });
      const subscriptions = found.subscriptions || [
        { subscription: "Your filter", matches: found.rules[0].matches, rules: found.rules },
      ];
      replace(
        result,
        subscriptions.length === 0
          ? empty("This topic has no subscription yet: create one to give it rules.")
          : subscriptions.map(outcome),
      );
    } catch (error) {
      replace(result, problem(error));
    }
  }

  return h(
    "section",
    { class: "try" },
    h("h2", {}, "Try a message"),
    h("p", { class: "hint" }, "Nothing is sent. Fill in what the filters look at."),
    h(
      "form",
      { class: "form wide", onsubmit: run },
      inputs.map(([, label, input]) => field(label, input)),
      field("Content type", type),
      h("div", { class: "double" }, field("Application properties", properties, "A JSON object.")),
      h(
        "div",
        { class: "full" },
        field("A filter of your own", draft, "Optional: it is tried instead of the rules."),
      ),
      h("button", { class: "primary" }, "Try"),
    ),
    result,
  );
}

function outcome({ subscription, matches, rules }) {
  return h(
    "div",
    { class: "card" },
    h(
      "div",
      { class: "row" },
      h("b", {}, subscription),
      badge(matches ? "good" : "", matches ? "gets it" : "does not get it"),
    ),
    rules.length === 0 && h("p", { class: "hint" }, "It has no rule, so it gets nothing."),
    rules.map((rule) =>
      h(
        "div",
        { class: "rule" },
        h(
          "div",
          {},
          h("code", {}, rule.rule),
          " ",
          rule.matches ? "matches" : rule.error ? "fails" : "does not match",
          rule.matches && rule.action && `, and does ${rule.action}`,
        ),
        rule.error && h("p", { class: "problem" }, rule.error),
        h(
          "ul",
          {},
          rule.parts.map((part) =>
            h(
              "li",
              { class: part.outcome === "true" ? "yes" : "no" },
              h("code", {}, part.text),
              ` is ${part.outcome}`,
              part.found !== null && `: the message has ${part.found}`,
            ),
          ),
        ),
      ),
    ),
  );
}
