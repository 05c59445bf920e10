// One message in full: what can be done with it, its body in several forms, its properties.
import { h, badge } from "../dom.js";
import { bytesOf, size, textOf, time } from "../format.js";
import { formsOf } from "../bodies.js";

const SETTLEMENTS = ["complete", "abandon", "defer", "dead-letter"];

export function messageDetail(message, { lock, settle, resubmit, loadAll, close }) {
  const capital = (word) => word[0].toUpperCase() + word.slice(1);
  return [
    h(
      "div",
      { class: "row" },
      h("h2", { tabindex: "-1" }, message.message_id ?? `Message ${message.sequence_number}`),
      h("button", { class: "quiet", "aria-label": "Close this message", onclick: close }, "×"),
    ),
    lock &&
      h(
        "div",
        { class: "row" },
        badge("good", "locked for you"),
        SETTLEMENTS.map((each) => h("button", { onclick: () => settle(each) }, capital(each))),
      ),
    resubmit && h("div", { class: "row" }, h("button", { onclick: resubmit }, "Resubmit")),
    body(message, loadAll),
    h("h3", {}, "Properties"),
    pairs(known(message).filter(([, value]) => value !== null && value !== undefined && value !== false)),
    typed("Application properties", message.application_properties),
    typed("Annotations", message.annotations),
  ];
}

const known = (message) => [
  ["Sequence number", message.sequence_number],
  ["Partition", message.partition],
  ["State", message.state],
  ["Message id", message.message_id],
  ["Session", message.session_id],
  ["Subject", message.subject],
  ["Correlation id", message.correlation_id],
  ["Content type", message.content_type],
  ["To", message.to],
  ["Reply to", message.reply_to],
  ["Reply to session", message.reply_to_session_id],
  ["Partition key", message.partition_key],
  ["Via partition key", message.via_partition_key],
  ["Enqueued", time(message.enqueued_time)],
  ["Scheduled for", message.scheduled_time && time(message.scheduled_time)],
  ["Expires", message.expires_time && time(message.expires_time)],
  ["Deliveries", message.delivery_count],
  ["Size", size(message.size)],
  ["Dead-letter reason", message.dead_letter_reason],
  ["Dead-letter description", message.dead_letter_error_description],
  ["Dead-letter source", message.dead_letter_source],
];

const pairs = (items) =>
  h(
    "dl",
    { class: "pairs" },
    items.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]),
  );

function typed(title, values) {
  const items = Object.entries(values).map(([name, { type, value }]) => [
    name,
    `${value ?? "null"} (${type})`,
  ]);
  return items.length > 0 && [h("h3", {}, title), pairs(items)];
}

function body(message, loadAll) {
  const bytes = bytesOf(message.body.base64);
  const isCut = !message.body.complete;
  const forms = formsOf(message.body.text ?? textOf(bytes, { isCut }), bytes, isCut);
  const shown = h("pre", { class: "body", tabindex: "0", "aria-label": "Body" });
  const buttons = Object.keys(forms).map((name) =>
    h("button", { class: "quiet", onclick: () => choose(name) }, name),
  );
  function choose(name) {
    shown.textContent = forms[name]();
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
  }
  choose(["JSON", "XML"].find((name) => forms[name]) ?? Object.keys(forms)[0]);
  return h(
    "div",
    {},
    h("div", { class: "row" }, h("h3", {}, `Body, ${size(message.body.size)}`), buttons),
    message.body.size || message.body.text ? shown : h("p", { class: "hint" }, "It has no body."),
    isCut &&
      h(
        "p",
        { class: "hint" },
        `The first ${size(bytes.length)} are shown. `,
        h("button", { onclick: loadAll }, `Load all ${size(message.body.size)}`),
      ),
    !isCut && message.body.size > 0 && h("button", { onclick: () => save(message, bytes) }, "Download"),
  );
}

// As a file of no type that a browser would open: what it holds is not looked at.
function save(message, bytes) {
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  h("a", { href: address, download: `message-${message.sequence_number}.bin` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
