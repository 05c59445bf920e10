// Messages over HTTP: peeked at, sent, received and settled.
import { pathOf, request, send, get } from "./api.js";

export const SUB_QUEUES = {
  main: "",
  "dead-letter": "/$DeadLetterQueue",
  transfer: "/$Transfer",
  "transfer-dead-letter": "/$Transfer/$DeadLetterQueue",
};

export const explorer = (entity, queue = "main") => `${pathOf(entity)}${SUB_QUEUES[queue]}/$explorer`;

export async function sendMessage(entity, { body, contentType, broker, properties }) {
  const headers = { BrokerProperties: ascii(broker) };
  if (contentType) headers["Content-Type"] = contentType;
  if (Object.keys(properties).length) headers.BuswayProperties = ascii(properties);
  await request("POST", `${pathOf(entity)}/messages`, { body, headers });
}

// Headers are ASCII: everything else is written as JSON escapes.
function ascii(value) {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

// The next message, locked; null if there is none.
export async function receive(entity, queue) {
  const reply = await request("POST", `${pathOf(entity)}${SUB_QUEUES[queue]}/messages/head?timeout=0`);
  if (reply.status === 204) return null;
  const broker = JSON.parse(reply.headers.get("BrokerProperties"));
  return {
    number: broker.SequenceNumber,
    token: broker.LockToken,
    until: broker.LockedUntilUtc,
    id: broker.MessageId,
  };
}

export const peek = (entity, queue, query) =>
  get(`${explorer(entity, queue)}/messages?${new URLSearchParams(query)}`);

// Deleting and resubmitting are done some at a time; `name` is what the answers count.
export async function untilDone(name, ask) {
  let total = 0;
  for (;;) {
    const done = await ask();
    total += done[name];
    if (!done.more) return total;
  }
}

export const purge = (entity, queue, state) =>
  untilDone("deleted", () =>
    send("DELETE", `${explorer(entity, queue)}/messages${state ? `?state=${state}` : ""}`),
  );

// Those with these numbers; all of them for null.
export const resubmit = (entity, queue, numbers) =>
  untilDone("resubmitted", () =>
    send(
      "POST",
      `${explorer(entity, queue)}/resubmit`,
      numbers === null ? {} : { sequence_numbers: numbers },
    ),
  );

export const lockDeferred = async (entity, queue, number) =>
  (await send("POST", `${explorer(entity, queue)}/messages/lock`, { sequence_numbers: [number] }))
    .messages[0];

export const settle = (entity, queue, lockToken, settlement, reason, description) =>
  send("POST", `${explorer(entity, queue)}/messages/settle`, {
    lock_token: lockToken,
    settlement,
    reason,
    description,
  });
