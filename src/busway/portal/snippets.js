// How a program reaches an entity, in the languages of the official SDKs.

export const LANGUAGES = ["Python", "JavaScript", "Java", "Go", ".NET"];
export const VARIABLE = "BUSWAY_CONNECTION_STRING";

export function snippet(language, entity) {
  const [name, subscription = null] = entity.path.split("/Subscriptions/");
  const about = {
    name,
    subscription,
    kind: subscription ? "subscription" : entity.type,
    hasSessions: entity.requires_session,
  };
  const parts = SNIPPETS[language];
  return [
    parts.begin(about),
    about.kind !== "subscription" && parts.send(about),
    about.kind !== "topic" && parts.receive(about),
    parts.end,
  ]
    .filter(Boolean)
    .join("\n");
}

const quoted = (...names) =>
  names
    .filter(Boolean)
    .map((name) => `"${name}"`)
    .join(", ");

const SNIPPETS = {
  Python: {
    begin: ({ hasSessions }) => `import os
from azure.servicebus import ${hasSessions ? "NEXT_AVAILABLE_SESSION, " : ""}ServiceBusClient, ServiceBusMessage

client = ServiceBusClient.from_connection_string(os.environ["${VARIABLE}"])`,
    send: ({ kind, name, hasSessions }) => `with client.get_${kind}_sender("${name}") as sender:
    sender.send_messages(ServiceBusMessage("hello"${hasSessions ? ', session_id="one"' : ""}))`,
    receive: ({ kind, name, subscription, hasSessions }) =>
      `with client.get_${kind}_receiver(${quoted(name, subscription)}${hasSessions ? ", session_id=NEXT_AVAILABLE_SESSION" : ""}) as receiver:
    for message in receiver.receive_messages(max_wait_time=5):
        print(message)
        receiver.complete_message(message)`,
    end: "client.close()\n",
  },
  JavaScript: {
    begin: () => `import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.${VARIABLE});`,
    send: ({ name, hasSessions }) =>
      `await client.createSender("${name}").sendMessages({ body: "hello"${hasSessions ? ', sessionId: "one"' : ""} });`,
    receive: ({ name, subscription, hasSessions }) =>
      `const receiver = ${hasSessions ? "await client.acceptNextSession" : "client.createReceiver"}(${quoted(name, subscription)});
for (const message of await receiver.receiveMessages(1)) {
  console.log(message.body);
  await receiver.completeMessage(message);
}`,
    end: "await client.close();\n",
  },
  Java: {
    begin: () => `import com.azure.messaging.servicebus.*;

var builder = new ServiceBusClientBuilder().connectionString(System.getenv("${VARIABLE}"));`,
    send: ({
      kind,
      name,
      hasSessions,
    }) => `try (var sender = builder.sender().${kind}Name("${name}").buildClient()) {
    sender.sendMessage(new ServiceBusMessage("hello")${hasSessions ? '.setSessionId("one")' : ""});
}`,
    receive: ({ name, subscription, hasSessions }) => {
      const place = subscription
        ? `topicName("${name}").subscriptionName("${subscription}")`
        : `queueName("${name}")`;
      const opened = hasSessions
        ? `try (var sessions = builder.sessionReceiver().${place}.buildClient();
     var receiver = sessions.acceptNextSession()) {`
        : `try (var receiver = builder.receiver().${place}.buildClient()) {`;
      return `${opened}
    receiver.receiveMessages(1).forEach(message -> {
        System.out.println(message.getBody());
        receiver.complete(message);
    });
}`;
    },
    end: "",
  },
  Go: {
    begin: () => `client, err := azservicebus.NewClientFromConnectionString(os.Getenv("${VARIABLE}"), nil)
if err != nil { log.Fatal(err) }`,
    send: ({ name, hasSessions }) => `sender, err := client.NewSender("${name}", nil)
if err != nil { log.Fatal(err) }
message := &azservicebus.Message{Body: []byte("hello")${hasSessions ? ', SessionID: to.Ptr("one")' : ""}}
if err = sender.SendMessage(ctx, message, nil); err != nil { log.Fatal(err) }`,
    receive: ({ name, subscription, hasSessions }) => {
      const place = subscription ? "Subscription" : "Queue";
      const call = hasSessions ? `AcceptNextSessionFor${place}(ctx, ` : `NewReceiverFor${place}(`;
      return `receiver, err := client.${call}${quoted(name, subscription)}, nil)
if err != nil { log.Fatal(err) }
messages, err := receiver.ReceiveMessages(ctx, 1, nil)
if err != nil { log.Fatal(err) }
for _, message := range messages {
    fmt.Println(string(message.Body))
    if err = receiver.CompleteMessage(ctx, message, nil); err != nil { log.Fatal(err) }
}`;
    },
    end: "client.Close(ctx)\n",
  },
  ".NET": {
    begin: () => `using Azure.Messaging.ServiceBus;

await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("${VARIABLE}"));`,
    send: ({ name, hasSessions }) =>
      `await client.CreateSender("${name}").SendMessageAsync(new ServiceBusMessage("hello")${hasSessions ? ' { SessionId = "one" }' : ""});`,
    receive: ({ name, subscription, hasSessions }) =>
      `var receiver = ${hasSessions ? "await client.AcceptNextSessionAsync" : "client.CreateReceiver"}(${quoted(name, subscription)});
var message = await receiver.ReceiveMessageAsync();
Console.WriteLine(message.Body);
await receiver.CompleteMessageAsync(message);`,
    end: "",
  },
};
