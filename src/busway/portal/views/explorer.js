// Messages of an entity: peeked page by page, shown in full at the side, sent, received, settled.
import * as api from "../api.js";
import { h, replace, field, dialog, notice, empty } from "../dom.js";
import { bytesOf, count, hexOf, size, textOf, time } from "../format.js";

const PAGE = 50;
const KINDS = [
  ["active", "Active", "main", "active"],
  ["scheduled", "Scheduled", "main", "scheduled"],
  ["deferred", "Deferred", "main", "deferred"],
  ["dead-letter", "Dead letters", "dead-letter", null],
  ["transfer", "Transfer", "transfer", null],
  ["transfer-dead-letter", "Transfer dead letters", "transfer-dead-letter", null],
];

export function show(page, entity, query) {
  const kind = KINDS.find(([name]) => name === query.get("state")) || KINDS[0];
  const [, , queue, state] = kind;
  const base = `#/entity/${encodeURIComponent(entity.path)}/explorer`;
  const held = new Map();
  const rows = h("tbody", {});
  const side = h("aside", { class: "detail", "aria-label": "Message" });
  const status = h("p", { class: "hint", role: "status" });
  const chosen = new Set();
  const session = query.get("session");
  let following = null;

  const canSend = queue === "main" && entity.type !== "subscription";
  const isDead = queue.endsWith("dead-letter");
  const more = h("button", { onclick: () => load(following) }, "Load more");
  const actions = h(
    "div",
    { class: "row" },
    canSend && h("button", { class: "primary", onclick: () => compose(entity, refresh) }, "Send message"),
    state !== "scheduled" &&
      state !== "deferred" &&
      queue !== "transfer" &&
      !entity.requires_session &&
      h("button", { onclick: receiveOne }, "Receive and lock one"),
    state === "deferred" && h("button", { onclick: lockChosen }, "Lock chosen"),
    isDead && h("button", { onclick: () => resubmit([...chosen]) }, "Resubmit chosen"),
    isDead && h("button", { onclick: () => resubmit(null) }, "Resubmit all"),
    queue !== "transfer" &&
      state !== "scheduled" &&
      state !== "deferred" &&
      h("button", { class: "danger", onclick: purge }, "Purge"),
    h("button", { onclick: refresh }, "Refresh"),
  );
  const table = h(
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
          h("th", { scope: "col" }, h("span", { class: "hidden" }, "Chosen")),
          h("th", { scope: "col", class: "number" }, "Number"),
          entity.partitioned && h("th", { scope: "col", class: "number" }, "Partition"),
          h("th", { scope: "col" }, "Message id"),
          h("th", { scope: "col" }, "Subject"),
          h("th", { scope: "col" }, "Body"),
          h("th", { scope: "col" }, "Enqueued"),
          h("th", { scope: "col", class: "number" }, "Deliveries"),
          h("th", { scope: "col", class: "number" }, "Size"),
          isDead && h("th", { scope: "col" }, "Reason"),
        ),
      ),
      rows,
    ),
  );
  const list = h("div", { class: "messages" });
  replace(
    page,
    h(
      "div",
      { class: "row kinds", role: "group", "aria-label": "Which messages" },
      KINDS.filter(
        ([name]) =>
          entity.depth?.transfer || entity.depth?.transfer_dead_letter || !name.startsWith("transfer"),
      ).map(([name, label]) =>
        h(
          "a",
          { href: `${base}?state=${name}`, class: "chip", "aria-current": name === kind[0] ? "page" : null },
          label,
        ),
      ),
    ),
    session !== null &&
      h("p", { class: "hint" }, `Only session ${session}. `, h("a", { href: base }, "Show all")),
    actions,
    status,
    h("div", { class: "split" }, list, side),
  );

  async function load(from = 0) {
    const asked = new URLSearchParams({ from: from ?? 0, count: PAGE, preview: 200 });
    if (state !== null) asked.set("state", state);
    if (session !== null) asked.set("session", session);
    let found;
    try {
      found = await api.get(`${api.explorer(entity.path, queue)}/messages?${asked}`);
    } catch (error) {
      status.textContent = error.message;
      return;
    }
    following = found.next;
    rows.append(...found.messages.map(row));
    const isLast = found.messages.length === 0 || following === null;
    if (rows.children.length === 0) replace(list, nothing());
    else replace(list, table, isLast ? null : more);
    status.textContent = rows.children.length
      ? `${count(rows.children.length)} messages shown${isLast ? "" : "; there may be more"}.`
      : "";
  }

  function nothing() {
    if (isDead)
      return empty("No dead letters. Messages come here when they cannot be delivered or processed.");
    if (state === "scheduled")
      return empty("Nothing is scheduled. Send a message with a time to see it here.");
    if (state === "deferred")
      return empty("Nothing is deferred. Receive a message and defer it to see it here.");
    return empty(
      "No messages.",
      canSend && h("button", { class: "primary", onclick: () => compose(entity, refresh) }, "Send message"),
    );
  }

  function row(message) {
    const pick = h("input", {
      type: "checkbox",
      "aria-label": `Choose message ${message.sequence_number}`,
      onchange: () =>
        pick.checked ? chosen.add(message.sequence_number) : chosen.delete(message.sequence_number),
    });
    const preview = textOf(bytesOf(message.body.base64));
    return h(
      "tr",
      {},
      h("td", {}, pick),
      h(
        "th",
        { scope: "row", class: "number" },
        h(
          "button",
          { class: "link", onclick: () => open(message.sequence_number) },
          entity.partitioned ? message.sequence_number % 2 ** 48 : message.sequence_number,
        ),
      ),
      entity.partitioned && h("td", { class: "number" }, message.partition),
      h("td", { class: "cut" }, message.message_id ?? "–"),
      h("td", { class: "cut" }, message.subject ?? "–"),
      h("td", { class: "cut body" }, message.body.text ?? preview ?? `${size(message.body.size)} binary`),
      h("td", {}, time(message.enqueued_time)),
      h("td", { class: "number" }, message.delivery_count),
      h("td", { class: "number" }, size(message.size)),
      isDead && h("td", { class: "cut" }, message.dead_letter_reason ?? "–"),
    );
  }

  async function open(number) {
    try {
      const found = await api.get(
        `${api.explorer(entity.path, queue)}/messages?from=${number}&count=1&preview=all`,
      );
      const message = found.messages.find((each) => each.sequence_number === number);
      replace(
        side,
        message
          ? detail(message, held.get(number), settleOne)
          : h("p", { class: "hint" }, "That message is no longer here."),
      );
      side.scrollIntoView({ block: "nearest" });
      side.querySelector("h2")?.focus();
    } catch (error) {
      notice(error.message, "error");
    }
  }

  async function receiveOne() {
    try {
      const got = await api.receive(entity.path, queue);
      if (got === null) {
        notice("There is no message to receive now.");
        return;
      }
      held.set(got.number, got);
      notice(`Message ${got.id ?? got.number} is locked for you until ${got.until}.`);
      await open(got.number);
    } catch (error) {
      notice(error.message, "error");
    }
  }

  async function lockChosen() {
    if (chosen.size === 0) {
      notice("Choose deferred messages first.");
      return;
    }
    try {
      for (const number of chosen) {
        const got = await api.send("POST", `${api.explorer(entity.path, queue)}/messages/lock`, {
          sequence_numbers: [number],
        });
        held.set(number, { number, token: got.messages[0].lock_token });
      }
      notice(`${chosen.size} messages are locked for you.`);
      await open([...chosen][0]);
    } catch (error) {
      notice(error.message, "error");
    }
  }

  async function settleOne(message, settlement) {
    const reason = h("input", {}),
      description = h("input", {});
    const lock = held.get(message.sequence_number);
    const act = async () => {
      await api.settle(entity.path, queue, lock.token, settlement, reason.value, description.value);
      held.delete(message.sequence_number);
      replace(side);
      await refresh();
    };
    try {
      if (settlement === "dead-letter")
        await dialog(
          "Dead-letter this message",
          h("div", { class: "form" }, field("Reason", reason), field("Description", description)),
          "Dead-letter",
          act,
        );
      else await act();
    } catch (error) {
      notice(error.message, "error");
    }
  }

  async function resubmit(numbers) {
    if (numbers !== null && numbers.length === 0) {
      notice("Choose messages first.");
      return;
    }
    const what = numbers === null ? "all dead letters" : `${numbers.length} dead letters`;
    const to =
      entity.type === "subscription"
        ? `the topic ${entity.path.split("/Subscriptions/")[0]}, so that all of its subscriptions may get them`
        : entity.path;
    await dialog(
      `Resubmit ${what}?`,
      h("p", {}, `Each goes back to ${to}, and leaves the dead letters in the same commit.`),
      "Resubmit",
      async () => {
        let moved = 0;
        for (;;) {
          const done = await api.send(
            "POST",
            `${api.explorer(entity.path, queue)}/resubmit`,
            numbers === null ? {} : { sequence_numbers: numbers },
          );
          moved += done.resubmitted;
          if (!done.more) break;
        }
        notice(`${count(moved)} messages are resubmitted.`);
        await refresh();
      },
    );
  }

  async function purge() {
    const now = await api.get(api.explorer(entity.path)).catch(() => null);
    const there = now ? (isDead ? now.depth.dead_letter : now.depth.active) : null;
    await dialog(
      "Purge?",
      h(
        "p",
        {},
        there === null
          ? "All messages that nobody has locked are deleted."
          : `${count(there)} messages are deleted, except those that somebody has locked.`,
        " This cannot be undone.",
      ),
      "Purge",
      async () => {
        let deleted = 0;
        for (;;) {
          const done = await api.send("DELETE", `${api.explorer(entity.path, queue)}/messages`);
          deleted += done.deleted;
          if (!done.more) break;
        }
        notice(`${count(deleted)} messages are deleted.`);
        await refresh();
      },
      "danger",
    );
  }

  async function refresh() {
    chosen.clear();
    rows.replaceChildren();
    await load();
  }

  load();
  return () => {};
}

function detail(message, lock, settleOne) {
  const known = [
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
  const typed = (values) =>
    pairs(Object.entries(values).map(([name, { type, value }]) => [name, `${value ?? "null"} (${type})`]));
  const settlements =
    lock &&
    h(
      "div",
      { class: "row" },
      h("span", { class: "badge good" }, "locked for you"),
      ["complete", "abandon", "defer", "dead-letter"].map((each) =>
        h("button", { onclick: () => settleOne(message, each) }, each[0].toUpperCase() + each.slice(1)),
      ),
    );
  return [
    h("h2", { tabindex: "-1" }, message.message_id ?? `Message ${message.sequence_number}`),
    settlements,
    body(message),
    h("h3", {}, "Properties"),
    pairs(known.filter(([, value]) => value !== null && value !== undefined && value !== false)),
    Object.keys(message.application_properties).length > 0 && [
      h("h3", {}, "Application properties"),
      typed(message.application_properties),
    ],
    Object.keys(message.annotations).length > 0 && [h("h3", {}, "Annotations"), typed(message.annotations)],
  ];
}

function body(message) {
  const bytes = bytesOf(message.body.base64);
  const text = message.body.text ?? textOf(bytes);
  const forms = {};
  if (text !== null) {
    forms.Text = () => text;
    try {
      const value = JSON.parse(text);
      forms.JSON = () => JSON.stringify(value, null, 2);
    } catch {
      /* it is no JSON, so that form is not offered */
    }
    if (/^\s*</.test(text)) {
      const xml = new DOMParser().parseFromString(text, "application/xml");
      if (!xml.querySelector("parsererror")) forms.XML = () => indented(xml.documentElement, 0);
    }
  }
  forms.Hex = () => hexOf(bytes.slice(0, 65536));
  const shown = h("pre", { class: "body", tabindex: "0" });
  const names = Object.keys(forms);
  const buttons = names.map((name) => h("button", { class: "quiet", onclick: () => choose(name) }, name));
  function choose(name) {
    shown.textContent = forms[name]();
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
  }
  choose(forms.JSON ? "JSON" : forms.XML ? "XML" : names[0]);
  return h(
    "div",
    {},
    h("div", { class: "row" }, h("h3", {}, `Body, ${size(message.body.size)}`), buttons),
    bytes.length || text ? shown : h("p", { class: "hint" }, "It has no body."),
  );
}

function indented(node, depth) {
  const pad = "  ".repeat(depth);
  const attributes = [...node.attributes].map((each) => ` ${each.name}="${each.value}"`).join("");
  const children = [...node.children];
  if (children.length === 0)
    return `${pad}<${node.nodeName}${attributes}>${node.textContent}</${node.nodeName}>`;
  return [
    `${pad}<${node.nodeName}${attributes}>`,
    ...children.map((child) => indented(child, depth + 1)),
    `${pad}</${node.nodeName}>`,
  ].join("\n");
}

export function compose(entity, done) {
  const content = h("textarea", { rows: 6 });
  const type = h("input", { value: "application/json", list: "content-types" });
  const id = h("input", {}),
    subject = h("input", {}),
    session = h("input", { required: Boolean(entity.requires_session) }),
    key = h("input", {}),
    correlation = h("input", {});
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
      field("Schedule for", scheduled, "Empty: now."),
      field("Copies", copies),
    ),
    "Send",
    async () => {
      let values = {};
      if (properties.value.trim()) {
        try {
          values = JSON.parse(properties.value);
        } catch (error) {
          throw new Error(`The application properties are no JSON: ${error.message}`);
        }
      }
      const broker = Object.fromEntries(
        Object.entries({
          MessageId: id.value,
          Label: subject.value,
          SessionId: session.value,
          PartitionKey: key.value,
          CorrelationId: correlation.value,
          ScheduledEnqueueTimeUtc: scheduled.value && new Date(scheduled.value).toISOString(),
        }).filter(([, value]) => value),
      );
      for (let sent = 0; sent < Number(copies.value); sent += 1) {
        await api.sendMessage(entity.path, {
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
