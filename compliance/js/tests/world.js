// What the tests share: the two flavours of entities, a client per test, entities from the pools
// of compliance/entities.py, and ways to receive that end when what was asked for is there.

import test from "node:test";
import { ServiceBusClient } from "@azure/service-bus";

export const CONNECTION_STRING = process.env.BUSWAY_CONNECTION_STRING;
export const TLS_CONNECTION_STRING = process.env.BUSWAY_TLS_CONNECTION_STRING;
const TEST_MS = 60_000;

const taken = new Map();

function take(kind, flavour) {
  const prefix = flavour === "partitioned" ? `${kind}-partitioned` : kind;
  const number = (taken.get(prefix) ?? 0) + 1;
  taken.set(prefix, number);
  return `${prefix}-${number}`;
}

const connect = (connectionString, options) =>
  new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 }, ...options });

// A test on a conventional and on a partitioned entity. It is given { client, name, take, partitioned }.
export function onBothFlavours(sentence, kind, body, way = [CONNECTION_STRING]) {
  for (const flavour of ["conventional", "partitioned"]) {
    test(`${sentence} (${flavour})`, { timeout: TEST_MS }, async () => {
      const client = connect(...way);
      try {
        await body({
          client,
          name: take(kind, flavour),
          take: (other) => take(other, flavour),
          partitioned: flavour === "partitioned",
        });
      } finally {
        await client.close();
      }
    });
  }
}

// On a partitioned entity without keys a single receive may bring fewer than there are.
export async function receive(receiver, count, waitMs = 10_000) {
  const messages = [];
  while (messages.length < count) {
    const some = await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: waitMs });
    if (some.length === 0) throw new Error(`${messages.length} of ${count} messages came`);
    messages.push(...some);
  }
  return messages;
}

export async function receiveOne(receiver, waitMs) {
  return (await receive(receiver, 1, waitMs))[0];
}

export async function isEmpty(receiver, waitMs = 500) {
  return (await receiver.receiveMessages(1, { maxWaitTimeInMs: waitMs })).length === 0;
}

// Peeks until so many are there; a peek may return fewer than asked (PRT-5).
export async function peekAll(receiver, count) {
  const messages = [];
  while (messages.length < count) {
    const some = await receiver.peekMessages(count - messages.length);
    if (some.length === 0) throw new Error(`${messages.length} of ${count} messages were peeked`);
    messages.push(...some);
  }
  return messages;
}

export async function until(condition, what, ms = 20_000) {
  const end = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited ${ms} ms in vain until ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

export const bodies = (messages) => messages.map((message) => message.body);
