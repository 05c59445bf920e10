// The description of an entity, as management has it; what may change can be changed.
import * as api from "../api.js";
import { h, replace, field, check } from "../dom.js";
import { attempt, dialog, notice } from "../dialogs.js";
import { duration, toDuration } from "../format.js";
import * as live from "../live.js";
import { readEntity, updateEntity } from "../management.js";

const SPANS = [
  "LockDuration",
  "DefaultMessageTimeToLive",
  "AutoDeleteOnIdle",
  "DuplicateDetectionHistoryTimeWindow",
];
const CHANGEABLE = {
  queue: [
    "Status",
    "LockDuration",
    "DefaultMessageTimeToLive",
    "MaxDeliveryCount",
    "MaxSizeInMegabytes",
    "DeadLetteringOnMessageExpiration",
    "AutoDeleteOnIdle",
    "ForwardTo",
    "ForwardDeadLetteredMessagesTo",
    "UserMetadata",
  ],
  topic: ["Status", "DefaultMessageTimeToLive", "MaxSizeInMegabytes", "AutoDeleteOnIdle", "UserMetadata"],
  subscription: [
    "Status",
    "LockDuration",
    "DefaultMessageTimeToLive",
    "MaxDeliveryCount",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "AutoDeleteOnIdle",
    "ForwardTo",
    "ForwardDeadLetteredMessagesTo",
    "UserMetadata",
  ],
};
const HIDDEN = ["AuthorizationRules", "CountDetails"];
const words = (name) => name.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

export async function show(page, entity) {
  const table = h("tbody", {});
  replace(
    page,
    h(
      "div",
      { class: "row" },
      h("button", { onclick: () => attempt(edit) }, "Edit"),
      h(
        "span",
        { class: "hint" },
        "Partitioning, sessions and duplicate detection are chosen when an entity is created.",
      ),
    ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings" },
      h("table", { class: "list settings" }, table),
    ),
  );

  async function load() {
    const { description } = await readEntity(api.pathOf(entity.path));
    replace(
      table,
      [...description.children]
        .filter((each) => !HIDDEN.includes(each.localName))
        .map((each) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, words(each.localName)),
            h(
              "td",
              {},
              SPANS.includes(each.localName) ? duration(each.textContent) : each.textContent || "–",
            ),
          ),
        ),
    );
  }

  async function edit() {
    const { value } = await readEntity(api.pathOf(entity.path));
    const controls = CHANGEABLE[entity.type].map((name) => {
      const now = value(name) ?? "";
      if (now === "true" || now === "false") {
        const box = h("input", { checked: now === "true" });
        return { name, now, shown: check(words(name), box), read: () => String(box.checked) };
      }
      if (name === "Status") {
        const select = h(
          "select",
          {},
          ["Active", "Disabled", "SendDisabled", "ReceiveDisabled"].map((each) =>
            h("option", { selected: each === now }, each),
          ),
        );
        return { name, now, shown: field("Status", select), read: () => select.value };
      }
      const isSpan = SPANS.includes(name);
      const before =
        isSpan && now
          ? duration(now)
              .replace("never", "")
              .replace(" min", "m")
              .replace(/ (s|h|d)\b/g, "$1")
          : now;
      const input = h("input", { value: before.includes(" ") ? now : before });
      const first = input.value;
      return {
        name,
        now,
        shown: field(words(name), input, isSpan ? "30s, 5m, 2h, 14d; empty for never." : null),
        read: () =>
          input.value === first ? now : isSpan && input.value ? toDuration(input.value) : input.value || null,
      };
    });
    await dialog(
      `Edit ${entity.path}`,
      h(
        "div",
        { class: "form" },
        controls.map((each) => each.shown),
      ),
      "Save",
      async () => {
        const changes = {};
        for (const { name, now, read } of controls) {
          const wanted = read();
          if ((wanted ?? "") !== now) changes[name] = wanted;
        }
        if (Object.keys(changes).length) await updateEntity(api.pathOf(entity.path), changes);
        notice("Saved.");
        await Promise.all([load(), live.poll()]);
      },
    );
  }

  await load();
  return () => {};
}
