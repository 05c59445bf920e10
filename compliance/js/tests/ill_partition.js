// One partition that is unavailable, seen by a sender that has other keys to send, too (N-14, P-41).
// The broker is another one than that of the other tests, and has a switch: see ../../partly_ill.py.

import assert from "node:assert/strict";
import test from "node:test";
import { ServiceBusClient } from "@azure/service-bus";

const QUEUE = "partly-ill";
const ILL_KEY = process.env.BUSWAY_ILL_KEY;
const HEALTHY_KEYS = process.env.BUSWAY_HEALTHY_KEYS.split(",");

const turn = async (mode) =>
  assert.equal((await fetch(`${process.env.BUSWAY_ILL_SWITCH}/${mode}`)).status, 204);
const to = (partitionKey) => ({ body: "x", partitionKey });

function besideAnIllPartition(sentence, retryOptions, body) {
  test(`${sentence} (partitioned)`, { timeout: 60_000 }, async () => {
    const client = new ServiceBusClient(process.env.BUSWAY_ILL_CONNECTION_STRING, { retryOptions });
    await turn("gone");
    try {
      await body(client.createSender(QUEUE));
    } finally {
      await turn("none");
      await client.close();
    }
  });
}

besideAnIllPartition(
  "a refusal of one partition keeps no other send back",
  { maxRetries: 0 },
  async (sender) => {
    for (const key of HEALTHY_KEYS) {
      await assert.rejects(sender.sendMessages(to(ILL_KEY)), (error) => {
        assert.equal(error.code, "ServiceTimeout");
        assert.equal(error.retryable, true);
        return /is temporarily unavailable/.test(error.message);
      });
      await sender.sendMessages(to(key));
    }
  },
);

besideAnIllPartition(
  "a send that is tried again is taken when the partition is back",
  { maxRetries: 200, retryDelayInMs: 250 },
  async (sender) => {
    let isDone = false;
    const waiting = sender.sendMessages(to(ILL_KEY)).then(() => (isDone = true));
    for (const key of HEALTHY_KEYS) await sender.sendMessages(to(key));
    assert.equal(isDone, false);
    await turn("none");
    await waiting;
  },
);
