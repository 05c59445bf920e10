// Scheduled messages, and the sequence numbers that come with them.

import assert from "node:assert/strict";
import { onBothFlavours, isEmpty, peekAll, receive, receiveOne } from "./world.js";

const soon = (ms) => new Date(Date.now() + ms);

onBothFlavours("a scheduled message waits its time", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const receiver = client.createReceiver(name);
  const due = soon(2_000);
  const [number] = await sender.scheduleMessages({ body: "later" }, due);
  const [peeked] = await peekAll(receiver, 1);
  assert.equal(peeked.state, "scheduled");
  assert.ok(peeked.sequenceNumber.equals(number));
  assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), due.getTime());
  const message = await receiveOne(receiver);
  assert.ok(Date.now() >= due.getTime(), "not before its time");
  assert.equal(message.body, "later");
  assert.equal(message.state, "active");
  assert.ok(message.enqueuedTimeUtc.getTime() >= due.getTime() - 100);
  await receiver.completeMessage(message);
});

onBothFlavours("by annotation is the same", "queue", async ({ client, name }) => {
  const due = soon(1_500);
  await client.createSender(name).sendMessages({ body: "later", scheduledEnqueueTimeUtc: due });
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.equal((await peekAll(receiver, 1))[0].state, "scheduled");
  await receiveOne(receiver);
  assert.ok(Date.now() >= due.getTime());
});

onBothFlavours("a cancelled message never comes", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const numbers = await sender.scheduleMessages(
    [{ body: 1, partitionKey: "k" }, { body: 2, partitionKey: "k" }],
    soon(1_500),
  );
  assert.equal(numbers.length, 2);
  await sender.cancelScheduledMessages(numbers);
  const receiver = client.createReceiver(name);
  assert.equal((await receiver.peekMessages(5)).length, 0);
  assert.ok(await isEmpty(receiver, 2_500));
  await assert.rejects(sender.cancelScheduledMessages(numbers), { code: "MessageNotFound" });
});

onBothFlavours("a session takes scheduled ones", "session", async ({ client, name }) => {
  await client
    .createSender(name)
    .scheduleMessages({ body: "later", sessionId: "s" }, soon(1_000));
  const receiver = await client.acceptNextSession(name);
  assert.equal(receiver.sessionId, "s");
  assert.equal((await receiveOne(receiver)).body, "later");
  await receiver.close();
});

onBothFlavours("numbers carry the partition", "queue", async ({ client, name, partitioned }) => {
  const sender = client.createSender(name);
  for (let i = 0; i < 32; i++) await sender.sendMessages({ body: i });
  const receiver = client.createReceiver(name);
  const messages = await receive(receiver, 32);
  const partitions = new Set(messages.map((m) => m.sequenceNumber.shiftRightUnsigned(48).toInt()));
  assert.equal(partitions.size, partitioned ? 16 : 1, "keyless messages take turns");
  const high = messages.reduce((a, b) => (a.sequenceNumber.gt(b.sequenceNumber) ? a : b));
  if (partitioned) assert.equal(high.sequenceNumber.shiftRightUnsigned(48).toInt(), 15);
  await receiver.deferMessage(high);
  const [deferred] = await receiver.receiveDeferredMessages(high.sequenceNumber);
  assert.ok(deferred.sequenceNumber.equals(high.sequenceNumber));
  assert.equal(deferred.body, high.body);
  await receiver.completeMessage(deferred);
  for (const message of messages) if (message !== high) await receiver.completeMessage(message);
  const [scheduled] = await sender.scheduleMessages({ body: "x" }, soon(60_000));
  const [peeked] = await receiver.peekMessages(1, { fromSequenceNumber: scheduled });
  assert.ok(peeked.sequenceNumber.equals(scheduled));
  await sender.cancelScheduledMessages(scheduled);
});
