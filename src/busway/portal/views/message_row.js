// A message as a row of the explorer's table.
import { h } from "../dom.js";
import { bytesOf, size, textOf, time } from "../format.js";

const NUMBERS_OF_PARTITION = 2 ** 48; // P-31: the high bits of a number name its partition

export function messageHeads(entity, isDead, chooseAll) {
  const head = (label, css) => h("th", { scope: "col", class: css }, label);
  return h(
    "tr",
    {},
    head(chooseAll),
    head("Number", "number"),
    entity.partitioned && head("Partition", "number"),
    head("Message id"),
    head("Subject", "roomy"),
    isDead && head("Reason"),
    head("Body"),
    head("Enqueued", "roomy"),
    head("Deliveries", "number roomy"),
    head("Size", "number roomy"),
  );
}

export function messageRow(message, entity, isDead, { open, choose }) {
  const number = message.sequence_number;
  const cell = (text, css = "") => h("td", { class: css }, text ?? "–");
  return h(
    "tr",
    { "data-number": number },
    h(
      "td",
      {},
      h("input", {
        type: "checkbox",
        "aria-label": `Choose message ${number}`,
        onchange: (event) => choose(event.target.checked),
      }),
    ),
    h(
      "th",
      { scope: "row", class: "number" },
      h(
        "button",
        { class: "link", onclick: open },
        entity.partitioned ? number % NUMBERS_OF_PARTITION : number,
      ),
    ),
    entity.partitioned && cell(message.partition, "number"),
    cell(message.message_id, "cut"),
    cell(message.subject, "cut roomy"),
    isDead && cell(message.dead_letter_reason, "cut"),
    cell(preview(message.body), "cut body"),
    cell(time(message.state === "scheduled" ? message.scheduled_time : message.enqueued_time), "roomy"),
    cell(message.delivery_count, "number roomy"),
    cell(size(message.size), "number roomy"),
  );
}

function preview(body) {
  if (body.text !== null) return body.text;
  const text = textOf(bytesOf(body.base64), { isCut: !body.complete });
  return text ?? `${size(body.size)} binary`;
}
