// The ways to the one port other than plain AMQP: in TLS, and over WebSocket, which the SDK speaks in
// TLS only. Node trusts the server by NODE_EXTRA_CA_CERTS.

import assert from "node:assert/strict";
import WebSocket from "ws";
import { onBothFlavours, TLS_CONNECTION_STRING, bodies, isEmpty, receive } from "./world.js";

const WAYS = {
  "AMQP in TLS": [TLS_CONNECTION_STRING],
  "AMQP over WebSocket": [TLS_CONNECTION_STRING, { webSocketOptions: { webSocket: WebSocket } }],
};

for (const [name, way] of Object.entries(WAYS)) {
  onBothFlavours(
    `${name}: messages are sent, received and completed`,
    "queue",
    async ({ client, name }) => {
      const large = "x".repeat(200_000);
      const sender = client.createSender(name);
      await sender.sendMessages({ body: "small" });
      await sender.sendMessages({ body: large });
      const receiver = client.createReceiver(name);
      const messages = await receive(receiver, 2);
      assert.deepEqual(bodies(messages).sort(), ["small", large].sort());
      for (const message of messages) await receiver.completeMessage(message);
      assert.ok(await isEmpty(receiver));
    },
    way,
  );

  onBothFlavours(
    `${name}: a session is accepted and its state kept`,
    "session",
    async ({ client, name }) => {
      await client.createSender(name).sendMessages({ body: "one", sessionId: "s" });
      const receiver = await client.acceptNextSession(name);
      const [message] = await receive(receiver, 1);
      await receiver.setSessionState(Buffer.from("seen"));
      await receiver.completeMessage(message);
      assert.equal(String(await receiver.getSessionState()), "seen");
      await receiver.close();
    },
    way,
  );
}
