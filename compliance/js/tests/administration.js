// The administration client: HTTP in TLS, with nothing set but NODE_EXTRA_CA_CERTS. What is made is
// read back as it was said; the names come out of ids and links.

import assert from "node:assert/strict";
import test from "node:test";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { CONNECTION_STRING, TLS_CONNECTION_STRING, receiveOne } from "./world.js";

const TEST_MS = 60_000;
const UNLIMITED = "P10675199DT2H48M5.4775807S";

const administer = (options = {}) =>
  new ServiceBusAdministrationClient(TLS_CONNECTION_STRING, {
    retryOptions: { maxRetries: 0 },
    ...options,
  });

let number = 0;

// A test with a client and a name that no other test has.
function administration(sentence, body, options) {
  test(`administration: ${sentence}`, { timeout: TEST_MS }, async () => {
    number += 1;
    await body(administer(options), `Administration-${number}`);
  });
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

const code = (expected, statusCode) => (error) => {
  assert.equal(error.code, expected);
  if (statusCode) assert.equal(error.statusCode, statusCode);
  return true;
};

// --- Queues ---------------------------------------------------------------------------------------

administration("a queue has the defaults of the service", async (client, name) => {
  const { _response, ...made } = await client.createQueue(name);
  assert.deepEqual(made, {
    name,
    forwardTo: undefined,
    userMetadata: undefined,
    lockDuration: "PT1M",
    maxSizeInMegabytes: 1024,
    maxDeliveryCount: 10,
    enablePartitioning: false,
    requiresSession: false,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: UNLIMITED,
    autoDeleteOnIdle: UNLIMITED,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    deadLetteringOnMessageExpiration: false,
    forwardDeadLetteredMessagesTo: undefined,
    authorizationRules: undefined,
    status: "Active",
    enableExpress: false,
    availabilityStatus: "Available",
    maxMessageSizeInKilobytes: 256,
  });
  assert.equal(_response.status, 201);
});

administration("a queue is created, changed, listed and deleted", async (client, name) => {
  await client.createQueue(`${name}-target`);
  const said = {
    lockDuration: "PT30S",
    maxSizeInMegabytes: 2048,
    enablePartitioning: true,
    requiresSession: true,
    defaultMessageTimeToLive: "PT7M",
    autoDeleteOnIdle: "PT10M",
    deadLetteringOnMessageExpiration: true,
    maxDeliveryCount: 5,
    enableBatchedOperations: false,
    userMetadata: "<mine> & 'yours'",
    status: "ReceiveDisabled",
    authorizationRules: [
      {
        accessRights: ["Manage", "Send", "Listen"],
        keyName: "all",
        primaryKey: "cHJpbWFyeQ==",
        secondaryKey: "c2Vjb25kYXJ5",
        claimType: "SharedAccessKey",
      },
      {
        accessRights: ["Send"],
        keyName: "send",
        primaryKey: "c2VuZA==",
        secondaryKey: "c2VuZDI=",
        claimType: "SharedAccessKey",
      },
    ],
  };
  await client.createQueue(name, { ...said, forwardDeadLetteredMessagesTo: `${name}-target` });
  const queue = await client.getQueue(name);
  for (const [key, value] of Object.entries({ ...said, maxSizeInMegabytes: 16 * 2048 })) {
    assert.deepEqual(queue[key], value, key);
  }
  assert.ok(queue.forwardDeadLetteredMessagesTo.endsWith(`/${name}-target`));
  assert.ok((await all(client.listQueues())).some((each) => each.name === name));

  queue.maxDeliveryCount = 6;
  queue.forwardDeadLetteredMessagesTo = undefined;
  const changed = await client.updateQueue(queue);
  assert.equal(changed._response.status, 200);
  assert.equal(changed.maxDeliveryCount, 6);
  assert.equal(changed.maxSizeInMegabytes, 16 * 2048);
  assert.equal(changed.forwardDeadLetteredMessagesTo, undefined);

  assert.equal(await client.queueExists(name), true);
  await client.deleteQueue(name);
  assert.equal(await client.queueExists(name), false);
});

administration("names have slashes and keep their case", async (client, name) => {
  const long = `${name}/with.a-slash_1`;
  await client.createQueue(long);
  assert.equal((await client.getQueue(long)).name, long);
  assert.ok((await all(client.listQueues())).some((each) => each.name === long));
  await client.deleteQueue(long);
});

administration("mistakes have the codes of the service", async (client, name) => {
  const queue = await client.createQueue(name);
  await assert.rejects(client.createQueue(name), code("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(client.createTopic(name), code("MessageEntityAlreadyExistsError", 409));
  // The service answers with an empty feed. The client finds out, and keeps the status (N-15).
  await assert.rejects(client.getQueue(`${name}-2`), code("MessageEntityNotFoundError", 200));
  await assert.rejects(client.deleteQueue(`${name}-2`), code("MessageEntityNotFoundError", 404));
  await assert.rejects(
    client.updateQueue({ ...queue, requiresSession: true }),
    code("ServiceError", 400),
  );
  await assert.rejects(
    client.createQueue(`${name}-2`, { lockDuration: "PT6M" }),
    (error) => code("ServiceError", 400)(error) && /LockDuration=PT6M/.test(error.message),
  );
  await assert.rejects(client.getSubscription(name, "s"), code("MessageEntityNotFoundError", 404));
  await client.deleteQueue(name);
  await assert.rejects(client.updateQueue(queue), code("MessageEntityNotFoundError", 404));
});

test("administration: a key that nobody knows is refused", { timeout: TEST_MS }, async () => {
  const wrong = TLS_CONNECTION_STRING.replace("SharedAccessKey=", "SharedAccessKey=x");
  const stranger = new ServiceBusAdministrationClient(wrong);
  await assert.rejects(
    stranger.getNamespaceProperties(),
    code("UnauthorizedRequestError", 401),
  );
});

administration("lists come in pages", async (client, name) => {
  await client.createTopic(name);
  const names = [];
  for (let each = 0; each < 7; each++) {
    names.push(`s${each}`);
    await client.createSubscription(name, `s${each}`);
  }
  assert.deepEqual(
    (await all(client.listSubscriptions(name))).map((each) => each.subscriptionName),
    names,
  );
  const pages = await all(client.listSubscriptions(name).byPage({ maxPageSize: 3 }));
  assert.deepEqual(pages.map((page) => page.length), [3, 3, 1]);
  assert.ok(pages.flat().every((each) => each.topicName === name));
  await client.deleteTopic(name);
});

// --- Topics and subscriptions ---------------------------------------------------------------------

administration("a topic is created, changed, listed and deleted", async (client, name) => {
  await client.createTopic(name, {
    maxSizeInMegabytes: 1024,
    enablePartitioning: true,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M",
    userMetadata: "mine",
  });
  const topic = await client.getTopic(name);
  assert.equal(topic.maxSizeInMegabytes, 16 * 1024);
  assert.equal(topic.supportOrdering, false);
  assert.equal(topic.requiresDuplicateDetection, true);
  assert.equal(topic.duplicateDetectionHistoryTimeWindow, "PT1M");
  assert.ok((await all(client.listTopics())).some((each) => each.name === name));
  topic.status = "SendDisabled";
  assert.equal((await client.updateTopic(topic)).status, "SendDisabled");
  assert.equal((await client.getTopic(name)).userMetadata, "mine");
  await client.deleteTopic(name);
  assert.equal(await client.topicExists(name), false);
});

administration("a subscription is created, changed, listed and deleted", async (client, name) => {
  await client.createTopic(name);
  await client.createQueue(`${name}-target`);
  await client.createSubscription(name, "s", {
    lockDuration: "PT20S",
    maxDeliveryCount: 3,
    requiresSession: false,
    deadLetteringOnMessageExpiration: true,
    deadLetteringOnFilterEvaluationExceptions: false,
    forwardTo: `${name}-target`,
    forwardDeadLetteredMessagesTo: `${name}-target`,
    userMetadata: "mine",
    defaultRuleOptions: {
      name: "first",
      filter: { sqlExpression: "colour = @c", sqlParameters: { "@c": "red" } },
      action: { sqlExpression: "SET seen = @n", sqlParameters: { "@n": 1 } },
    },
  });
  const subscription = await client.getSubscription(name, "s");
  assert.equal(subscription.topicName, name);
  assert.equal(subscription.subscriptionName, "s");
  assert.equal(subscription.lockDuration, "PT20S");
  assert.equal(subscription.deadLetteringOnFilterEvaluationExceptions, false);
  assert.ok(subscription.forwardTo.endsWith(`/${name}-target`));
  const [rule] = await all(client.listRules(name, "s"));
  assert.equal(rule.name, "first");
  assert.deepEqual(rule.filter, { sqlExpression: "colour = @c", sqlParameters: { "@c": "red" } });
  assert.deepEqual(rule.action, { sqlExpression: "SET seen = @n", sqlParameters: { "@n": 1 } });

  subscription.forwardTo = undefined;
  subscription.maxDeliveryCount = 4;
  const changed = await client.updateSubscription(subscription);
  assert.equal(changed.maxDeliveryCount, 4);
  assert.equal(changed.forwardTo, undefined);
  assert.equal(await client.subscriptionExists(name, "s"), true);
  await client.deleteSubscription(name, "s");
  assert.equal(await client.subscriptionExists(name, "s"), false);
  await client.deleteTopic(name);
});

// --- Rules ----------------------------------------------------------------------------------------

administration("rules are created, changed, listed and deleted", async (client, name) => {
  await client.createTopic(name);
  await client.createSubscription(name, "s");
  const moment = new Date("2020-07-05T11:12:13.250Z");
  const values = { text: "a < b", number: 2.5, whole: 3, yes: true, no: false, moment };
  const correlation = {
    correlationId: "c",
    subject: "label",
    to: "to",
    replyTo: "reply",
    replyToSessionId: "rs",
    sessionId: "session",
    messageId: "m",
    contentType: "text",
    applicationProperties: values,
  };
  await client.createRule(name, "s", "correlation", correlation);
  const first = await client.getRule(name, "s", "correlation");
  assert.equal(first.name, "correlation");
  assert.deepEqual(first.filter, correlation);
  assert.equal(first.action.sqlExpression, undefined);

  const sqlParameters = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [`@${key}`, value]),
  );
  const filter = { sqlExpression: "a = @text AND b > @number", sqlParameters };
  const action = { sqlExpression: "SET a = @whole; REMOVE b", sqlParameters };
  await client.createRule(name, "s", "sql", filter, action);
  const second = await client.getRule(name, "s", "sql");
  assert.deepEqual(second.filter, filter);
  assert.deepEqual(second.action, action);

  second.filter = { sqlExpression: "x = 1", sqlParameters: undefined };
  second.action = undefined;
  const changed = await client.updateRule(name, "s", second);
  assert.equal(changed.filter.sqlExpression, "x = 1");
  assert.equal(changed.action.sqlExpression, undefined);

  const rules = await all(client.listRules(name, "s"));
  assert.deepEqual(rules.map((each) => each.name), ["$Default", "correlation", "sql"]);
  assert.equal(rules[0].filter.sqlExpression, "1=1");
  assert.equal(await client.ruleExists(name, "s", "sql"), true);
  await client.deleteRule(name, "s", "sql");
  assert.equal(await client.ruleExists(name, "s", "sql"), false);
  await assert.rejects(
    client.createRule(name, "s", "bad", { sqlExpression: "a =" }),
    code("ServiceError", 400),
  );
  await client.deleteTopic(name);
});

// --- What is there just now -----------------------------------------------------------------------

administration("runtime properties count messages", async (client, name) => {
  const messaging = new ServiceBusClient(CONNECTION_STRING);
  await client.createQueue(name, { enablePartitioning: true });
  await client.createTopic(`${name}-t`);
  await client.createSubscription(`${name}-t`, "s");
  const sender = messaging.createSender(name);
  const later = new Date(Date.now() + 3_600_000);
  for (const body of ["a", "b", "c"]) await sender.sendMessages({ body });
  await sender.scheduleMessages({ body: "later" }, later);
  const receiver = messaging.createReceiver(name);
  await receiver.deadLetterMessage(await receiveOne(receiver));
  await messaging.createSender(`${name}-t`).sendMessages({ body: "x" });
  await messaging.createSender(`${name}-t`).scheduleMessages({ body: "later" }, later);

  const queue = await client.getQueueRuntimeProperties(name);
  assert.equal(queue.totalMessageCount, 4);
  assert.equal(queue.activeMessageCount, 2);
  assert.equal(queue.deadLetterMessageCount, 1);
  assert.equal(queue.scheduledMessageCount, 1);
  assert.equal(queue.transferMessageCount, 0);
  assert.equal(queue.transferDeadLetterMessageCount, 0);
  assert.ok(queue.sizeInBytes > 0);
  assert.ok(queue.createdAt <= queue.modifiedAt && queue.modifiedAt <= queue.accessedAt);
  const topic = await client.getTopicRuntimeProperties(`${name}-t`);
  assert.equal(topic.subscriptionCount, 1);
  assert.equal(topic.scheduledMessageCount, 1);
  const subscription = await client.getSubscriptionRuntimeProperties(`${name}-t`, "s");
  assert.equal(subscription.totalMessageCount, 1);
  assert.equal(subscription.activeMessageCount, 1);

  const listed = await all(client.listQueuesRuntimeProperties());
  assert.equal(listed.find((each) => each.name === name).totalMessageCount, 4);
  assert.ok((await all(client.listTopicsRuntimeProperties())).length > 0);
  const subscriptions = await all(client.listSubscriptionsRuntimeProperties(`${name}-t`));
  assert.equal(subscriptions[0].activeMessageCount, 1);
  await messaging.close();
  await client.deleteQueue(name);
  await client.deleteTopic(`${name}-t`);
});

administration("the namespace tells of itself", async (client) => {
  const namespace = await client.getNamespaceProperties();
  assert.equal(namespace.name, "busway");
  assert.equal(namespace.messagingSku, "Standard");
  assert.ok(namespace.createdAt <= namespace.modifiedAt);
});

administration(
  "an older version of the interface is served",
  async (client, name) => {
    const queue = await client.createQueue(name);
    assert.equal(queue.maxMessageSizeInKilobytes, undefined);
    assert.equal((await client.updateQueue(queue)).name, name);
    await client.deleteQueue(name);
  },
  { serviceVersion: "2017-04" },
);
