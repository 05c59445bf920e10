// Sending, receiving, peeking and settling on queues without sessions.

import assert from "node:assert/strict";
import { onBothFlavours, bodies, isEmpty, peekAll, receive, receiveOne, until } from "./world.js";

onBothFlavours("a message arrives as it was sent", "queue", async ({ client, name }) => {
  const sent = {
    body: { number: 7, words: ["one", "two"] },
    messageId: "id-1",
    correlationId: "correlation",
    contentType: "application/json",
    subject: "subject",
    to: "to",
    replyTo: "reply-to",
    timeToLive: 600_000,
    applicationProperties: { text: "ä", whole: 5, fraction: 1.5, yes: true },
  };
  await client.createSender(name).sendMessages(sent);
  const receiver = client.createReceiver(name);
  const message = await receiveOne(receiver);
  for (const key of Object.keys(sent)) assert.deepEqual(message[key], sent[key], key);
  assert.equal(message.deliveryCount, 0);
  assert.equal(message.state, "active");
  assert.ok(message.enqueuedTimeUtc instanceof Date);
  assert.ok(message.lockedUntilUtc > new Date());
  assert.ok(message.expiresAtUtc > message.enqueuedTimeUtc);
  assert.match(message.lockToken, /^[0-9a-f-]{36}$/);
  await receiver.completeMessage(message);
  assert.ok(await isEmpty(receiver));
});

// The SDK's lock renewal, on by default, cannot settle what has no id: the service gives one.
onBothFlavours("a message sent without an id has one", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "anonymous" });
  const receiver = client.createReceiver(name);
  const message = await receiveOne(receiver);
  assert.equal(typeof message.messageId, "string");
  await receiver.completeMessage(message);
});

onBothFlavours("bodies of all AMQP kinds pass", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const receiver = client.createReceiver(name);
  for (const bodyType of ["data", "value", "sequence"]) {
    const body = bodyType === "data" ? Buffer.from([1, 2, 3]) : ["a", 1, null];
    await sender.sendMessages({ body, bodyType, properties: { messageId: bodyType } });
    const message = await receiveOne(receiver);
    assert.equal(message._rawAmqpMessage.bodyType, bodyType);
    assert.deepEqual(message.body, body);
    await receiver.completeMessage(message);
  }
});

onBothFlavours("a body larger than a frame passes", "queue", async ({ client, name }) => {
  const body = Buffer.alloc(200_000, "x");
  await client.createSender(name).sendMessages({ body });
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.deepEqual((await receiveOne(receiver)).body, body);
});

onBothFlavours("a message too large is refused as that", "queue", async ({ client, name }) => {
  const body = Buffer.alloc(300_000, "x");
  await assert.rejects(client.createSender(name).sendMessages({ body }), {
    code: "MessageSizeExceeded",
  });
});

onBothFlavours("a batch arrives whole", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 256 * 1024);
  for (let i = 0; i < 20; i++) assert.ok(batch.tryAddMessage({ body: i, partitionKey: "k" }));
  await sender.sendMessages(batch);
  const receiver = client.createReceiver(name);
  const messages = await receive(receiver, 20);
  assert.deepEqual(bodies(messages), [...Array(20).keys()]);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.ok(await isEmpty(receiver));
});

onBothFlavours("an array is sent as one batch", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages([{ body: 1 }, { body: 2 }, { body: 3 }]);
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, 3)).sort(), [1, 2, 3]);
});

onBothFlavours("receive-and-delete leaves nothing", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "gone" });
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.equal((await receiveOne(receiver)).body, "gone");
  assert.equal((await receiver.peekMessages(1)).length, 0);
});

onBothFlavours("a receive that finds too little drains", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const receiver = client.createReceiver(name);
  const started = Date.now();
  assert.equal((await receiver.receiveMessages(10, { maxWaitTimeInMs: 1_000 })).length, 0);
  assert.ok(Date.now() - started < 3_000, "the wait ends when it was asked to");
  // Credit that was not drained would fetch this one while nobody asks, and lock it.
  await sender.sendMessages({ body: "later" });
  const [peeked] = await peekAll(receiver, 1);
  assert.equal(peeked.deliveryCount, 0);
  const message = await receiveOne(receiver);
  assert.equal(message.deliveryCount, 0);
  await receiver.completeMessage(message);
  assert.ok(await isEmpty(receiver));
});

onBothFlavours("an abandoned message comes back, changed", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "again", applicationProperties: { a: 1 } });
  const receiver = client.createReceiver(name);
  await receiver.abandonMessage(await receiveOne(receiver), { tried: "yes" });
  const message = await receiveOne(receiver);
  assert.equal(message.deliveryCount, 1);
  assert.deepEqual(message.applicationProperties, { a: 1, tried: "yes" });
  await receiver.completeMessage(message);
});

onBothFlavours("too many deliveries dead-letter", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "bad" });
  const receiver = client.createReceiver(name);
  for (let i = 0; i < 3; i++) await receiver.abandonMessage(await receiveOne(receiver));
  assert.ok(await isEmpty(receiver));
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  const message = await receiveOne(dead);
  assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
  await dead.completeMessage(message);
});

onBothFlavours("a dead letter says why", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "bad", messageId: "m" });
  const receiver = client.createReceiver(name);
  await receiver.deadLetterMessage(await receiveOne(receiver), {
    deadLetterReason: "reason",
    deadLetterErrorDescription: "description",
    extra: "kept",
  });
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  const [peeked] = await peekAll(dead, 1);
  assert.equal(peeked.deadLetterReason, "reason");
  const message = await receiveOne(dead);
  assert.equal(message.messageId, "m");
  assert.equal(message.deadLetterReason, "reason");
  assert.equal(message.deadLetterErrorDescription, "description");
  assert.equal(message.applicationProperties.extra, "kept");
  await dead.completeMessage(message);
  assert.ok(await isEmpty(dead));
});

onBothFlavours("an expired message is dead-lettered", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "old", timeToLive: 500 });
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  const message = await receiveOne(dead, 20_000);
  assert.equal(message.deadLetterReason, "TTLExpiredException");
  await dead.completeMessage(message);
});

onBothFlavours("a deferred message is there for its number", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "later" });
  const receiver = client.createReceiver(name);
  const message = await receiveOne(receiver);
  await receiver.deferMessage(message, { why: "not yet" });
  assert.ok(await isEmpty(receiver));
  const [peeked] = await peekAll(receiver, 1);
  assert.equal(peeked.state, "deferred");
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "later");
  assert.equal(deferred.applicationProperties.why, "not yet");
  await receiver.completeMessage(deferred);
  await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber), {
    code: "MessageNotFound",
  });
});

onBothFlavours("deferred messages are settled all ways", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const receiver = client.createReceiver(name);
  for (let i = 0; i < 2; i++) await sender.sendMessages({ body: i, partitionKey: "k" });
  const messages = await receive(receiver, 2);
  for (const message of messages) await receiver.deferMessage(message);
  const numbers = messages.map((message) => message.sequenceNumber);
  const [first, second] = await receiver.receiveDeferredMessages(numbers);
  await receiver.abandonMessage(first);
  await receiver.deadLetterMessage(second, { deadLetterReason: "enough" });
  const [again] = await receiver.receiveDeferredMessages([first.sequenceNumber]);
  await receiver.deferMessage(again);
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  assert.equal((await receiveOne(dead)).deadLetterReason, "enough");
  const eraser = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.equal((await eraser.receiveDeferredMessages([first.sequenceNumber])).length, 1);
  assert.equal((await receiver.peekMessages(1)).length, 0);
});

onBothFlavours("peek shows and locks nothing", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  for (let i = 0; i < 5; i++) await sender.sendMessages({ body: i, partitionKey: "k" });
  const receiver = client.createReceiver(name);
  const peeked = await peekAll(receiver, 5);
  assert.deepEqual(bodies(peeked), [0, 1, 2, 3, 4]);
  assert.equal(peeked[0].lockToken, undefined);
  assert.equal((await receiver.peekMessages(5)).length, 0, "it goes on where it was");
  const [third] = await receiver.peekMessages(1, { fromSequenceNumber: peeked[2].sequenceNumber });
  assert.equal(third.body, 2);
  assert.equal((await receive(receiver, 5)).length, 5);
});

onBothFlavours("a renewed lock lasts", "short", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "slow" });
  const receiver = client.createReceiver(name);
  const message = await receiveOne(receiver);
  const locked = message.lockedUntilUtc;
  await until(() => Date.now() > locked - 3_000, "the lock is half gone");
  const renewed = await receiver.renewMessageLock(message);
  assert.ok(renewed > locked);
  assert.deepEqual(message.lockedUntilUtc, renewed);
  await until(() => Date.now() > locked.getTime() + 500, "the first lock would be over");
  await receiver.completeMessage(message);
  assert.equal((await receiver.peekMessages(1)).length, 0);
});

onBothFlavours("a lost lock is said to be lost", "short", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "slow" });
  const receiver = client.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 });
  const message = await receiveOne(receiver);
  await until(() => Date.now() > message.lockedUntilUtc.getTime() + 300, "the lock is over");
  await assert.rejects(receiver.renewMessageLock(message), { code: "MessageLockLost" });
  await assert.rejects(receiver.completeMessage(message), { code: "MessageLockLost" });
  const again = await receiveOne(receiver);
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
});

onBothFlavours("subscribe streams and completes", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  const receiver = client.createReceiver(name);
  const seen = new Set();
  const errors = [];
  const subscription = receiver.subscribe(
    {
      processMessage: async (message) => void seen.add(message.body),
      processError: async ({ error }) => void errors.push(error),
    },
    { maxConcurrentCalls: 5 },
  );
  for (let i = 0; i < 50; i += 10) {
    await sender.sendMessages([...Array(10).keys()].map((j) => ({ body: i + j })));
  }
  await until(() => seen.size === 50, "all messages were seen");
  await until(async () => (await client.createReceiver(name).peekMessages(1)).length === 0, "done");
  await subscription.close();
  await sender.sendMessages({ body: "after" });
  const message = await receiveOne(client.createReceiver(name));
  assert.equal(message.deliveryCount, 0, "a closed subscription takes nothing");
  assert.deepEqual(errors, []);
});

onBothFlavours("a handler that throws abandons", "queue", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "hard" });
  const counts = [];
  const errors = [];
  const subscription = client.createReceiver(name).subscribe({
    processMessage: async (message) => {
      counts.push(message.deliveryCount);
      if (counts.length < 2) throw new Error("not yet");
    },
    processError: async ({ error, errorSource }) => void errors.push([errorSource, error.message]),
  });
  await until(() => counts.length === 2, "it came twice");
  await subscription.close();
  assert.deepEqual(counts, [0, 1]);
  assert.deepEqual(errors, [["processMessageCallback", "not yet"]]);
});

onBothFlavours("the iterator gives one after the other", "queue", async ({ client, name }) => {
  const sender = client.createSender(name);
  for (let i = 0; i < 4; i++) await sender.sendMessages({ body: i, partitionKey: "k" });
  const receiver = client.createReceiver(name);
  const seen = [];
  for await (const message of receiver.getMessageIterator()) {
    seen.push(message.body);
    await receiver.completeMessage(message);
    if (seen.length === 4) break;
  }
  assert.deepEqual(seen, [0, 1, 2, 3]);
});

onBothFlavours("a repeated id is stored once", "unique", async ({ client, name }) => {
  const sender = client.createSender(name);
  await sender.sendMessages({ body: "first", messageId: "same" });
  await sender.sendMessages({ body: "second", messageId: "same" });
  await sender.sendMessages([
    { body: "third", messageId: "same" },
    { body: "other", messageId: "other" },
  ]);
  const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, 2)).sort(), ["first", "other"]);
  assert.ok(await isEmpty(receiver));
});

onBothFlavours("a forwarded message arrives once", "forward", async ({ client, name }) => {
  const target = client.createReceiver(name.replace("forward", "target"));
  await client.createSender(name).sendMessages({ body: "onward", partitionKey: "k" });
  const message = await receiveOne(target);
  assert.equal(message.body, "onward");
  assert.equal(message.partitionKey, "k");
  await target.completeMessage(message);
  assert.ok(await isEmpty(target));
});

onBothFlavours("dead letters are forwarded", "mourned", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "bad" });
  const receiver = client.createReceiver(name);
  await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "reason" });
  const grave = client.createReceiver(name.replace("mourned", "grave"));
  const message = await receiveOne(grave);
  assert.equal(message.deadLetterReason, "reason");
  assert.equal(message.deadLetterSource, name);
  await grave.completeMessage(message);
});
