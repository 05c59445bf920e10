// Dialogs that create entities and rules, with the defaults of the service.
import * as api from "../api.js";
import { h, field, check } from "../dom.js";
import { dialog, notice } from "../dialogs.js";
import { entityHref, toDuration } from "../format.js";
import * as live from "../live.js";
import { createEntity } from "../management.js";

function partitioning(found) {
  // P-9, P-11, P-13, P-14: ticked by default; where the tier leaves no choice it is shown and cannot be
  // changed.
  const premium = found?.tier?.toLowerCase() === "premium";
  const forced = premium && found.namespace_partitions > 1;
  const box = h("input", { checked: premium ? forced : true, disabled: premium });
  const hint = !premium
    ? "16 partitions over all messaging stores. Later only busway pipeline migrate changes it."
    : forced
      ? `No choice: in this Premium namespace every entity has ${found.namespace_partitions} partitions.`
      : "No choice: this Premium namespace was made without partitions.";
  return {
    control: check("Enable partitioning", box, hint),
    value: () => (premium ? null : String(box.checked)),
  };
}

const number = (value, min, max) => h("input", { type: "number", value, min, max });
const optional = (text, write = (value) => value) => (text.trim() === "" ? null : write(text));

async function made(kind, path, settings) {
  await createEntity(kind, api.pathOf(path), settings);
  await live.poll();
  notice(`${path} is created.`);
  location.hash = entityHref(path);
}

export function createQueue(found) {
  const name = h("input", { required: true, autocomplete: "off", placeholder: "orders" });
  const parts = partitioning(found);
  const session = h("input", {}),
    duplicates = h("input", {}),
    expired = h("input", {});
  const lock = h("input", { value: "60s" }),
    ttl = h("input", { placeholder: "never" });
  const deliveries = number(10, 1, 2147483647),
    megabytes = number(1024, 1, 81920);
  return dialog(
    "Create queue",
    h(
      "div",
      { class: "form" },
      field("Name", name),
      parts.control,
      check("Require sessions", session),
      check("Detect duplicates", duplicates),
      check("Dead-letter expired messages", expired),
      field("Maximum delivery count", deliveries),
      field("Lock duration", lock, "30s to 5m"),
      field("Time to live", ttl, "Such as 14d; empty for never."),
      field("Maximum size in MB", megabytes, "Of each partition."),
    ),
    "Create",
    () =>
      made("Queue", name.value.trim(), {
        LockDuration: toDuration(lock.value),
        MaxSizeInMegabytes: megabytes.value,
        RequiresDuplicateDetection: duplicates.checked,
        RequiresSession: session.checked,
        DefaultMessageTimeToLive: optional(ttl.value, toDuration),
        DeadLetteringOnMessageExpiration: expired.checked,
        MaxDeliveryCount: deliveries.value,
        EnablePartitioning: parts.value(),
      }),
  );
}

export function createTopic(found) {
  const name = h("input", { required: true, autocomplete: "off", placeholder: "events" });
  const parts = partitioning(found);
  const duplicates = h("input", {});
  const ttl = h("input", { placeholder: "never" }),
    megabytes = number(1024, 1, 81920);
  return dialog(
    "Create topic",
    h(
      "div",
      { class: "form" },
      field("Name", name),
      parts.control,
      check("Detect duplicates", duplicates),
      field("Time to live", ttl, "Such as 14d; empty for never."),
      field("Maximum size in MB", megabytes, "Of each partition."),
    ),
    "Create",
    () =>
      made("Topic", name.value.trim(), {
        DefaultMessageTimeToLive: optional(ttl.value, toDuration),
        MaxSizeInMegabytes: megabytes.value,
        RequiresDuplicateDetection: duplicates.checked,
        EnablePartitioning: parts.value(),
      }),
  );
}

export function createSubscription(topic) {
  const name = h("input", { required: true, autocomplete: "off", placeholder: "billing" });
  const session = h("input", {}),
    expired = h("input", {});
  const lock = h("input", { value: "60s" }),
    ttl = h("input", { placeholder: "never" }),
    deliveries = number(10, 1, 2147483647);
  return dialog(
    `Create subscription of ${topic}`,
    h(
      "div",
      { class: "form" },
      field("Name", name),
      check("Require sessions", session),
      check("Dead-letter expired messages", expired),
      field("Maximum delivery count", deliveries),
      field("Lock duration", lock),
      field("Time to live", ttl, "Such as 14d; empty for never."),
    ),
    "Create",
    async () => {
      const path = `${topic}/Subscriptions/${name.value.trim()}`;
      await made("Subscription", path, {
        LockDuration: toDuration(lock.value),
        RequiresSession: session.checked,
        DefaultMessageTimeToLive: optional(ttl.value, toDuration),
        DeadLetteringOnMessageExpiration: expired.checked,
        MaxDeliveryCount: deliveries.value,
      });
    },
  );
}
