// The dialog that sends a message, or schedules it.
import { h, field } from "../dom.js";
import { dialog, notice } from "../dialogs.js";
import { jsonObject, secondsOf, toDuration } from "../format.js";
import { sendMessage } from "../messages.js";

export function compose(entity, done) {
  const content = h("textarea", { rows: 6, spellcheck: "false" });
  const type = h("input", { value: "application/json" });
  const id = h("input", {}),
    subject = h("input", {}),
    session = h("input", { required: Boolean(entity.requires_session) }),
    key = h("input", {}),
    correlation = h("input", {}),
    ttl = h("input", { placeholder: "as the entity says" });
  const scheduled = h("input", { type: "datetime-local", step: "1" });
  const properties = h("textarea", { rows: 3, placeholder: '{"amount": 5}' });
  const copies = h("input", { type: "number", min: 1, max: 1000, value: 1 });
  return dialog(
    `Send to ${entity.path}`,
    h(
      "div",
      { class: "form" },
      field("Body", content),
      field("Content type", type),
      field("Message id", id, "Empty: the broker gives one."),
      field("Subject", subject),
      field("Session id", session),
      field("Partition key", key),
      field("Correlation id", correlation),
      field("Application properties", properties, "A JSON object."),
      field("Time to live", ttl, "Such as 30s, 5m or 14d."),
      field("Schedule for", scheduled, "Empty: now."),
      field("Copies", copies),
    ),
    "Send",
    async () => {
      const values = jsonObject("The application properties", properties.value);
      const broker = Object.fromEntries(
        Object.entries({
          MessageId: id.value,
          Label: subject.value,
          SessionId: session.value,
          PartitionKey: key.value,
          CorrelationId: correlation.value,
          TimeToLive: ttl.value.trim() && secondsOf(toDuration(ttl.value)),
          ScheduledEnqueueTimeUtc: scheduled.value && new Date(scheduled.value).toISOString(),
        }).filter(([, value]) => value),
      );
      for (let sent = 0; sent < Number(copies.value); sent += 1) {
        await sendMessage(entity.path, {
          body: content.value,
          contentType: type.value,
          broker:
            sent && broker.MessageId ? { ...broker, MessageId: `${broker.MessageId}-${sent + 1}` } : broker,
          properties: values,
        });
      }
      notice(Number(copies.value) === 1 ? "The message is sent." : `${copies.value} messages are sent.`);
      await done();
    },
  );
}
