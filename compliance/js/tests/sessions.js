// Sessions: accepting them, their order, locks and state.

import assert from "node:assert/strict";
import { onBothFlavours, bodies, isEmpty, peekAll, receive, receiveOne, until } from "./world.js";

const messages = (sessionId, count) =>
  [...Array(count).keys()].map((i) => ({ body: `${sessionId} ${i}`, sessionId }));

onBothFlavours("a session is accepted by its id", "session", async ({ client, name }) => {
  const sender = client.createSender(name);
  await sender.sendMessages(messages("a", 2));
  await sender.sendMessages(messages("b", 2));
  const receiver = await client.acceptSession(name, "b");
  assert.equal(receiver.sessionId, "b");
  assert.ok(receiver.sessionLockedUntilUtc > new Date());
  const received = await receive(receiver, 2);
  assert.deepEqual(bodies(received), ["b 0", "b 1"]);
  assert.equal(received[0].sessionId, "b");
  for (const message of received) await receiver.completeMessage(message);
  assert.ok(await isEmpty(receiver), "nothing of another session comes");
  await receiver.close();
});

onBothFlavours("the next session is one with messages", "session", async ({ client, name }) => {
  const sender = client.createSender(name);
  const ids = ["a", "b", "c"];
  for (const id of ids) await sender.sendMessages(messages(id, 1));
  const accepted = [];
  for (const _ of ids) accepted.push(await client.acceptNextSession(name));
  assert.deepEqual(accepted.map((receiver) => receiver.sessionId).sort(), ids);
  for (const receiver of accepted) {
    await receiver.completeMessage(await receiveOne(receiver));
    await receiver.close();
  }
});

onBothFlavours("who waits is given a new session", "session", async ({ client, name }) => {
  const waiting = client.acceptNextSession(name);
  await client.createSender(name).sendMessages(messages("new", 1));
  const receiver = await waiting;
  assert.equal(receiver.sessionId, "new");
  assert.equal((await receiveOne(receiver)).body, "new 0");
  await receiver.close();
});

onBothFlavours("without a session the wait ends", "session", async ({ client, name }) => {
  const impatient = new client.constructor(process.env.BUSWAY_CONNECTION_STRING, {
    retryOptions: { maxRetries: 0, timeoutInMs: 2_000 },
  });
  try {
    await assert.rejects(impatient.acceptNextSession(name), { code: "ServiceTimeout" });
  } finally {
    await impatient.close();
  }
});

onBothFlavours("a locked session is refused to others", "session", async ({ client, name }) => {
  const first = await client.acceptSession(name, "one");
  await assert.rejects(client.acceptSession(name, "one"), { code: "SessionCannotBeLocked" });
  await first.close();
  const second = await client.acceptSession(name, "one");
  await second.close();
});

onBothFlavours("order survives abandon and reconnect", "session", async ({ client, name }) => {
  await client.createSender(name).sendMessages(messages("s", 6));
  const seen = [];
  let receiver = await client.acceptSession(name, "s");
  await receiver.abandonMessage(await receiveOne(receiver));
  const again = await receiveOne(receiver);
  assert.equal(again.deliveryCount, 1);
  seen.push(again.body);
  await receiver.completeMessage(again);
  await receive(receiver, 2); // Not settled: closing gives them back.
  await receiver.close();
  receiver = await client.acceptSession(name, "s");
  for (const message of await receive(receiver, 5)) {
    seen.push(message.body);
    await receiver.completeMessage(message);
  }
  assert.deepEqual(seen, bodies(messages("s", 6)));
  await receiver.close();
});

onBothFlavours("state is kept with the session", "session", async ({ client, name }) => {
  let receiver = await client.acceptSession(name, "s");
  assert.equal(await receiver.getSessionState(), null);
  await receiver.setSessionState({ step: 3, done: ["a"] });
  await receiver.close();
  receiver = await client.acceptSession(name, "s");
  assert.deepEqual(await receiver.getSessionState(), { step: 3, done: ["a"] });
  await receiver.setSessionState(null);
  assert.equal(await receiver.getSessionState(), null);
  await receiver.close();
});

onBothFlavours("a session lock is renewed", "session", async ({ client, name }) => {
  const receiver = await client.acceptSession(name, "s");
  const locked = receiver.sessionLockedUntilUtc;
  await until(() => Date.now() > locked - 59_000, "a second has passed");
  const renewed = await receiver.renewSessionLock();
  assert.ok(renewed > locked);
  assert.deepEqual(receiver.sessionLockedUntilUtc, renewed);
  await receiver.close();
});

onBothFlavours("peek stays in the session", "session", async ({ client, name }) => {
  const sender = client.createSender(name);
  await sender.sendMessages(messages("a", 2));
  await sender.sendMessages(messages("b", 2));
  const receiver = await client.acceptSession(name, "b");
  assert.deepEqual(bodies(await peekAll(receiver, 2)), ["b 0", "b 1"]);
  assert.equal((await receiver.peekMessages(1)).length, 0);
  await receiver.close();
});

onBothFlavours("deferred and dead in a session", "session", async ({ client, name }) => {
  await client.createSender(name).sendMessages(messages("s", 2));
  const receiver = await client.acceptSession(name, "s");
  const [first, second] = await receive(receiver, 2);
  await receiver.deferMessage(first);
  await receiver.deadLetterMessage(second, { deadLetterReason: "reason" });
  const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
  assert.equal(deferred.body, "s 0");
  await receiver.completeMessage(deferred);
  await receiver.close();
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  const message = await receiveOne(dead);
  assert.equal(message.sessionId, "s");
  assert.equal(message.deadLetterReason, "reason");
  await dead.completeMessage(message);
});

onBothFlavours("subscribe streams a session in order", "session", async ({ client, name }) => {
  await client.createSender(name).sendMessages(messages("s", 10));
  const receiver = await client.acceptSession(name, "s");
  const seen = [];
  const errors = [];
  receiver.subscribe(
    {
      processMessage: async (message) => void seen.push(message),
      processError: async ({ error }) => void errors.push(error),
    },
    { maxConcurrentCalls: 1 },
  );
  await until(() => seen.length === 10, "all were seen");
  assert.deepEqual(bodies(seen), bodies(messages("s", 10)));
  // The SDK completes a message after its handler has returned; who closes before that is told that
  // the lock is lost.
  const left = () => receiver.peekMessages(1, { fromSequenceNumber: seen[0].sequenceNumber });
  await until(async () => (await left()).length === 0, "all are completed");
  await receiver.close();
  assert.deepEqual(errors, []);
});

onBothFlavours("a message needs a session", "session", async ({ client, name }) => {
  await assert.rejects(client.createSender(name).sendMessages({ body: "lonely" }), {
    message: /SessionId/i,
  });
});

onBothFlavours("who asks for no session is told", "session", async ({ client, name }) => {
  await assert.rejects(client.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), {
    message: /requires? sessions?/i,
  });
});
