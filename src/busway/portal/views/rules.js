// Rules of a subscription, and a box to try them: a message, which rules take it, and why not.
import * as api from "../api.js";
import { h, replace, field, dialog, notice, empty } from "../dom.js";
import { createRule } from "./create.js";

export async function show(page, entity) {
  const rules = h("div", {});
  const isSubscription = entity.type === "subscription";
  replace(
    page,
    isSubscription &&
      h(
        "section",
        {},
        h(
          "div",
          { class: "row" },
          h("h2", {}, "Rules"),
          h("button", { onclick: () => createRule(entity.path, load) }, "Create rule"),
        ),
        rules,
      ),
    tryOut(entity),
  );

  async function load() {
    const found = await api.readRules(api.pathOf(entity.path));
    if (found.length === 0) {
      replace(rules, empty("Without a rule this subscription gets no messages."));
      return;
    }
    replace(
      rules,
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
              ["Name", "Filter", "Action", ""].map((each) => h("th", { scope: "col" }, each)),
            ),
          ),
          h(
            "tbody",
            {},
            found.map((rule) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, rule.name),
                h(
                  "td",
                  {},
                  h("code", {}, rule.filter || "1=1"),
                  " ",
                  h("span", { class: "kind" }, rule.type),
                ),
                h("td", {}, rule.action ? h("code", {}, rule.action) : "–"),
                h("td", {}, h("button", { class: "link", onclick: () => remove(rule) }, "Delete")),
              ),
            ),
          ),
        ),
      ),
    );
  }

  const remove = (rule) =>
    dialog(
      `Delete the rule ${rule.name}?`,
      h("p", {}, "Messages that only this rule lets in do not come any more."),
      "Delete",
      async () => {
        await api.deleteRule(api.pathOf(entity.path), rule.name);
        notice(`${rule.name} is deleted.`);
        await load();
      },
      "danger",
    );

  if (isSubscription) await load();
  return () => {};
}

function tryOut(entity) {
  const subject = h("input", {}),
    correlation = h("input", {}),
    session = h("input", {}),
    to = h("input", {}),
    id = h("input", {}),
    type = h("input", {});
  const properties = h("textarea", { rows: 4, placeholder: '{"amount": 500, "colour": "red"}' });
  const draft = h("input", { placeholder: "amount > 100" });
  const result = h("div", { role: "status" });

  async function run(event) {
    event.preventDefault();
    let values = {};
    try {
      if (properties.value.trim()) values = JSON.parse(properties.value);
    } catch (error) {
      replace(
        result,
        h("p", { class: "problem" }, `The application properties are no JSON: ${error.message}`),
      );
      return;
    }
    const broker = Object.fromEntries(
      Object.entries({
        Label: subject.value,
        CorrelationId: correlation.value,
        SessionId: session.value,
        To: to.value,
        MessageId: id.value,
      }).filter(([, value]) => value),
    );
    const body = {
      properties: broker,
      application_properties: values,
      ...(type.value && { content_type: type.value }),
      ...(draft.value.trim() && { rule: { sql: draft.value } }),
    };
    try {
      const found = await api.send("POST", `${api.explorer(entity.path)}/try`, body);
      const subscriptions = found.subscriptions || [
        { subscription: "your filter", matches: found.rules[0].matches, rules: found.rules },
      ];
      replace(
        result,
        subscriptions.length === 0
          ? empty("This topic has no subscription yet.")
          : subscriptions.map(outcome),
      );
    } catch (error) {
      replace(result, h("p", { class: "problem" }, error.message));
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
      field("Subject (sys.Label)", subject),
      field("Correlation id", correlation),
      field("Session id", session),
      field("To", to),
      field("Message id", id),
      field("Content type", type),
      field("Application properties", properties, "A JSON object."),
      field("A filter of your own", draft, "Optional: it is tried instead of the rules."),
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
      h("span", { class: matches ? "badge good" : "badge" }, matches ? "gets it" : "does not get it"),
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
