// What docs/how-to/use-rhea.md says. Entities come from the pools of compliance/entities.py.

import assert from "node:assert/strict";
import test from "node:test";
import rhea from "rhea";

const PATIENCE_MS = 20_000;
const taken = new Map();

function take(kind, flavour) {
  const prefix = flavour === "partitioned" ? `${kind}-partitioned` : kind;
  const number = (taken.get(prefix) ?? 0) + 1;
  taken.set(prefix, number);
  return `${prefix}-${number}`;
}

function options(variable) {
  const text = process.env[variable];
  const part = (name) => new RegExp(`${name}=([^;]*)`).exec(text)[1];
  const url = new URL(part("Endpoint").replace(/^sb:/, "http:"));
  return {
    host: url.hostname,
    port: Number(url.port),
    username: part("SharedAccessKeyName"),
    password: part("SharedAccessKey"),
    reconnect: false,
  };
}

function onBothFlavours(sentence, body, more = {}, variable = "BUSWAY_CONNECTION_STRING") {
  for (const flavour of ["conventional", "partitioned"]) {
    test(`${sentence} (${flavour})`, { timeout: 60_000 }, async () => {
      const container = rhea.create_container();
      const connection = container.connect({ ...options(variable), ...more });
      try {
        await once(connection, "connection_open");
        await body({ connection, container, take: (kind) => take(kind, flavour) });
      } finally {
        connection.close();
      }
    });
  }
}

function once(emitter, event) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${event} in time`)), PATIENCE_MS);
    emitter.once(event, (context) => {
      clearTimeout(timer);
      resolve(context);
    });
  });
}

async function send(connection, path, ...messages) {
  const sender = connection.open_sender(path);
  await once(sender, "sendable");
  for (const message of messages) {
    const accepted = once(sender, "accepted");
    sender.send(message);
    await accepted;
  }
  sender.close();
}

// Asks for so many, and ends when they are there or the broker says that there are no more.
function collect(connection, source, count, more = {}) {
  return new Promise((resolve, reject) => {
    const found = [];
    const receiver = connection.open_receiver({ source, credit_window: 0, ...more });
    const timer = setTimeout(() => reject(new Error(`${found.length} of ${count} came`)), PATIENCE_MS);
    const end = () => {
      clearTimeout(timer);
      receiver.close();
      resolve(found.map((message) => message.body));
    };
    receiver.on("receiver_open", () => {
      receiver.drain = source.distribution_mode === "copy";
      receiver.add_credit(count);
    });
    receiver.on("message", ({ message }) => {
      found.push(message);
      if (found.length === count) end();
    });
    receiver.on("receiver_drained", end);
    receiver.on("receiver_error", ({ receiver: link }) => {
      clearTimeout(timer);
      reject(link.error);
    });
  });
}

const browse = (connection, address, filter, more) =>
  collect(connection, { address, distribution_mode: "copy", filter }, 1000, more);
const receive = (connection, address, count) => collect(connection, { address }, count);
const texts = (count) => Array.from({ length: count }, (_, n) => `m${String(n).padStart(3, "0")}`);

async function refused(connection, source) {
  const receiver = connection.open_receiver({ source });
  const { receiver: link } = await once(receiver, "receiver_error");
  return link.error;
}

onBothFlavours("what is sent is received", async ({ connection, take }) => {
  const queue = take("queue");
  await send(connection, queue, ...texts(20).map((body) => ({ body })));
  assert.deepEqual((await receive(connection, queue, 20)).sort(), texts(20));
  assert.deepEqual(await browse(connection, queue), []);
});

onBothFlavours("a browser sees every message once and takes none", async ({ connection, take }) => {
  const queue = take("queue");
  await send(connection, queue, ...texts(150).map((body) => ({ body })));
  for (const mode of [0, 1, 2]) {
    const shown = await browse(connection, queue, undefined, { snd_settle_mode: mode });
    assert.deepEqual(shown.sort(), texts(150));
  }
  assert.deepEqual((await receive(connection, queue, 150)).sort(), texts(150));
});

onBothFlavours("a browser may have a selector", async ({ connection, take }) => {
  const queue = take("queue");
  const messages = texts(20).map((body, n) => ({ body, application_properties: { n, even: n % 2 === 0 } }));
  await send(connection, queue, ...messages);
  const filter = rhea.filter.selector("even AND n BETWEEN 4 AND 8");
  assert.deepEqual((await browse(connection, queue, filter)).sort(), ["m004", "m006", "m008"]);
});

onBothFlavours("a receiver with a selector is refused", async ({ connection, take }) => {
  const filter = rhea.filter.selector("colour = 'red'");
  const error = await refused(connection, { address: take("queue"), filter });
  assert.equal(error.condition, "amqp:not-implemented");
  assert.match(error.description, /cannot have a selector/);
});

onBothFlavours("a filter that is not known is refused", async ({ connection, take }) => {
  const error = await refused(connection, { address: take("queue"), filter: { colour: "red" } });
  assert.equal(error.condition, "amqp:not-implemented");
  assert.match(error.description, /'colour'/);
});

onBothFlavours("a subscription is received from, its topic is not", async ({ connection, take }) => {
  const topic = take("topic");
  const red = { body: "red", application_properties: { colour: "red" } };
  await send(connection, topic, { body: "plain" }, red);
  const all = `${topic}/Subscriptions/all`;
  assert.deepEqual((await browse(connection, all)).sort(), ["plain", "red"]);
  assert.deepEqual((await receive(connection, all, 2)).sort(), ["plain", "red"]);
  assert.deepEqual(await receive(connection, `${topic}/Subscriptions/red`, 1), ["red"]);
  const error = await refused(connection, { address: topic });
  assert.match(error.description, /Receive from one of its subscriptions/);
});

onBothFlavours("a rejected message is in the dead-letter queue", async ({ connection, take }) => {
  const queue = take("queue");
  await send(connection, queue, { body: "bad" });
  const receiver = connection.open_receiver({ source: { address: queue }, autoaccept: false });
  const { delivery } = await once(receiver, "message");
  delivery.reject({ condition: "bad", description: "really" });
  assert.deepEqual(await receive(connection, `${queue}/$DeadLetterQueue`, 1), ["bad"]);
});

onBothFlavours("delivery annotations come back with the lock token", async ({ connection, take }) => {
  const queue = take("queue");
  await send(connection, queue, { body: "x", delivery_annotations: { "x-opt-way": "by air" } });
  const receiver = connection.open_receiver({ source: { address: queue } });
  const { message } = await once(receiver, "message");
  assert.equal(message.delivery_annotations["x-opt-way"], "by air");
  assert.equal(message.delivery_annotations["x-opt-lock-token"].length, 16);
});

onBothFlavours("a received message can be sent again", async ({ connection, take }) => {
  const [queue, other] = [take("queue"), take("queue")];
  const sent = {
    body: "again",
    message_id: "id",
    correlation_id: "c",
    subject: "s",
    content_type: "text/plain",
    to: "t",
    reply_to: "r",
    group_id: "g",
    application_properties: { n: 1 },
  };
  await send(connection, queue, sent);
  const first = await once(connection.open_receiver({ source: { address: queue } }), "message");
  await send(connection, other, first.message);
  const second = await once(connection.open_receiver({ source: { address: other } }), "message");
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(second.message[name], value);
});

onBothFlavours(
  "it is the same in TLS",
  async ({ connection, take }) => {
    const queue = take("queue");
    await send(connection, queue, { body: "secret" });
    assert.deepEqual(await browse(connection, queue), ["secret"]);
    assert.deepEqual(await receive(connection, queue, 1), ["secret"]);
  },
  { transport: "tls" },
  "BUSWAY_TLS_CONNECTION_STRING",
);
