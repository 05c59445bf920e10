import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { Busway } from "./busway.js";

let busway;
let client;

before(async () => {
  busway = await Busway.start();
  client = new ServiceBusClient(busway.connectionString);
});

after(async () => {
  await client?.close();
  await busway?.stop();
});

afterEach(() => busway.reset());

async function one(receiver) {
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
  return message;
}

test("a reminder comes a week later", async () => {
  const queue = await busway.createQueue("reminders");
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const due = new Date((await busway.now()).getTime() + 7 * 24 * 3_600_000);
  await sender.scheduleMessages({ body: "buy a book" }, due);
  await busway.advance("6d");
  assert.equal((await receiver.peekMessages(1))[0].state, "scheduled");
  await busway.advance("1d");
  const message = await one(receiver);
  assert.equal(message.body, "buy a book");
  await receiver.completeMessage(message);
});

test("a worker that is too slow loses its order", async () => {
  const queue = await busway.createQueue("orders", { LockDuration: "PT5M" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  await client.createSender(queue).sendMessages({ body: "book" });
  const first = await one(receiver);
  await busway.advance("5m");
  await assert.rejects(receiver.completeMessage(first), { code: "MessageLockLost" });
  const again = await one(receiver);
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
});

test("an order that nobody handles is dead-lettered", async () => {
  const properties = { DeadLetteringOnMessageExpiration: true };
  const queue = await busway.createQueue("orders", properties);
  await client.createSender(queue).sendMessages({ body: "book", timeToLive: 3_600_000 });
  await busway.advance("1h");
  const message = await one(client.createReceiver(queue, { subQueueType: "deadLetter" }));
  assert.equal(message.deadLetterReason, "TTLExpiredException");
});

test("each test has the real time again", async () => {
  assert.ok(Math.abs((await busway.now()).getTime() - Date.now()) < 600_000);
});
