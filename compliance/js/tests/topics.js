// Topics: what subscriptions get, and rules that are made and removed while they are used.

import assert from "node:assert/strict";
import { onBothFlavours, bodies, isEmpty, peekAll, receive, receiveOne } from "./world.js";

async function ruleNames(rules) {
  const names = [];
  // The iterator of SDK 7.9.5 gives one undefined for a list without rules.
  for await (const rule of rules.listRules()) if (rule) names.push(rule.name);
  return names.sort();
}

onBothFlavours("every subscription has its copy", "topic", async ({ client, name }) => {
  await client.createSender(name).sendMessages([
    { body: 1, partitionKey: "k" },
    { body: 2, partitionKey: "k" },
  ]);
  for (const subscription of ["all", "rules"]) {
    const receiver = client.createReceiver(name, subscription);
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), [1, 2]);
    for (const message of messages) await receiver.completeMessage(message);
    assert.ok(await isEmpty(receiver));
  }
});

onBothFlavours("declared rules choose and act", "topic", async ({ client, name }) => {
  const sender = client.createSender(name);
  await sender.sendMessages({ body: "red", applicationProperties: { colour: "red" } });
  await sender.sendMessages({ body: "blue", applicationProperties: { colour: "blue" } });
  await sender.sendMessages({
    body: "now",
    subject: "urgent",
    applicationProperties: { level: "high" },
  });
  await sender.sendMessages({ body: "soon", subject: "urgent" });
  const red = client.createReceiver(name, "red", { receiveMode: "receiveAndDelete" });
  const message = await receiveOne(red);
  assert.equal(message.body, "red");
  assert.equal(message.applicationProperties.painted, "yes");
  assert.ok(await isEmpty(red));
  const urgent = client.createReceiver(name, "urgent", { receiveMode: "receiveAndDelete" });
  assert.equal((await receiveOne(urgent)).body, "now");
  assert.ok(await isEmpty(urgent));
  const all = client.createReceiver(name, "all", { receiveMode: "receiveAndDelete" });
  for (const copy of await receive(all, 4)) {
    assert.equal(copy.applicationProperties?.painted, undefined, "the action changes one copy");
  }
});

onBothFlavours("rules are listed as they are", "topic", async ({ client, name }) => {
  const rules = client.createRuleManager(name, "rules");
  assert.deepEqual(await ruleNames(rules), ["$Default"]);
  await rules.createRule("sql", { sqlExpression: "size > 3" }, { sqlExpression: "SET big = 1" });
  await rules.createRule("correlation", {
    correlationId: "c",
    messageId: "m",
    to: "t",
    replyTo: "r",
    subject: "l",
    sessionId: "s",
    replyToSessionId: "rs",
    contentType: "ct",
    applicationProperties: { a: "b" },
  });
  const listed = new Map();
  for await (const rule of rules.listRules()) listed.set(rule.name, rule);
  assert.equal(listed.get("$Default").filter.sqlExpression, "1=1");
  assert.equal(listed.get("sql").filter.sqlExpression, "size > 3");
  assert.equal(listed.get("sql").action.sqlExpression, "SET big = 1");
  const { filter } = listed.get("correlation");
  assert.equal(filter.correlationId, "c");
  assert.equal(filter.subject, "l");
  assert.equal(filter.contentType, "ct");
  assert.deepEqual(filter.applicationProperties, { a: "b" });
  const declared = client.createRuleManager(name, "urgent");
  assert.deepEqual(await ruleNames(declared), ["urgent"]);
});

onBothFlavours("rules come and go", "topic", async ({ client, name }) => {
  const sender = client.createSender(name);
  const rules = client.createRuleManager(name, "rules");
  const receiver = client.createReceiver(name, "rules", { receiveMode: "receiveAndDelete" });
  await rules.deleteRule("$Default");
  await sender.sendMessages({ body: "for nobody" });
  await rules.createRule("small", { sqlExpression: "size < 10 AND sys.Label LIKE 'a%'" });
  await sender.sendMessages({ body: 5, subject: "abc", applicationProperties: { size: 5 } });
  await sender.sendMessages({ body: 50, subject: "abc", applicationProperties: { size: 50 } });
  await sender.sendMessages({ body: 6, subject: "xyz", applicationProperties: { size: 6 } });
  assert.equal((await receiveOne(receiver)).body, 5);
  await rules.deleteRule("small");
  assert.deepEqual(await ruleNames(rules), []);
  await sender.sendMessages({ body: 7, subject: "abc", applicationProperties: { size: 7 } });
  assert.ok(await isEmpty(receiver));
});

onBothFlavours("rules that cannot be are refused", "topic", async ({ client, name }) => {
  const rules = client.createRuleManager(name, "rules");
  await assert.rejects(rules.createRule("$Default", { sqlExpression: "1=1" }), {
    code: "MessagingEntityAlreadyExists",
  });
  await assert.rejects(rules.createRule("bad", { sqlExpression: "size = = 3" }));
  await assert.rejects(rules.deleteRule("missing"), { code: "MessagingEntityNotFound" });
  assert.deepEqual(await ruleNames(rules), ["$Default"]);
});

onBothFlavours("a subscription has dead letters", "topic", async ({ client, name }) => {
  await client.createSender(name).sendMessages({ body: "bad" });
  const receiver = client.createReceiver(name, "all");
  await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "reason" });
  const dead = client.createReceiver(name, "all", { subQueueType: "deadLetter" });
  const message = await receiveOne(dead);
  assert.equal(message.deadLetterReason, "reason");
  await dead.completeMessage(message);
  const other = client.createReceiver(name, "rules");
  assert.equal((await peekAll(other, 1))[0].body, "bad", "the other copy is as it was");
});

onBothFlavours("a subscription has sessions", "topic", async ({ client, name }) => {
  const sender = client.createSender(name);
  for (let i = 0; i < 3; i++) await sender.sendMessages({ body: i, sessionId: "s" });
  const receiver = await client.acceptNextSession(name, "sessions");
  assert.equal(receiver.sessionId, "s");
  const messages = await receive(receiver, 3);
  assert.deepEqual(bodies(messages), [0, 1, 2]);
  await receiver.setSessionState("half");
  assert.equal(await receiver.getSessionState(), "half");
  for (const message of messages) await receiver.completeMessage(message);
  await receiver.close();
});

onBothFlavours("a scheduled message reaches them", "topic", async ({ client, name }) => {
  const sender = client.createSender(name);
  const [cancelled] = await sender.scheduleMessages(
    { body: "never" },
    new Date(Date.now() + 60_000),
  );
  await sender.cancelScheduledMessages(cancelled);
  await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 1_000));
  const receiver = client.createReceiver(name, "all");
  const message = await receiveOne(receiver);
  assert.equal(message.body, "soon");
  await receiver.completeMessage(message);
});
