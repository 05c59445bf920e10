// How a program reaches an entity, in the languages of the official SDKs.

export const LANGUAGES = ["Python", "JavaScript", "Java", "Go", ".NET"];

const VARIABLE = "BUSWAY_CONNECTION_STRING";

export function snippet(language, entity) {
  const [name, subscription] = entity.path.split("/Subscriptions/");
  const kind = subscription ? "subscription" : entity.type;
  return SNIPPETS[language](kind, name, subscription);
}

const SNIPPETS = {
  Python: (kind, name, subscription) => `import os
from azure.servicebus import ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["${VARIABLE}"]) as client:
${
  kind !== "subscription"
    ? `    with client.get_${kind}_sender("${name}") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
`
    : ""
}${
    kind !== "topic"
      ? `    with client.${kind === "queue" ? `get_queue_receiver("${name}")` : `get_subscription_receiver("${name}", "${subscription}")`} as receiver:
        for message in receiver.receive_messages(max_wait_time=5):
            print(message)
            receiver.complete_message(message)
`
      : ""
  }`,
  JavaScript: (kind, name, subscription) => `import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.${VARIABLE});
${
  kind !== "subscription"
    ? `await client.createSender("${name}").sendMessages({ body: "hello" });
`
    : ""
}${
    kind !== "topic"
      ? `const receiver = client.createReceiver("${name}"${subscription ? `, "${subscription}"` : ""});
for (const message of await receiver.receiveMessages(1)) {
  console.log(message.body);
  await receiver.completeMessage(message);
}
`
      : ""
  }await client.close();
`,
  Java: (
    kind,
    name,
    subscription,
  ) => `var builder = new ServiceBusClientBuilder().connectionString(System.getenv("${VARIABLE}"));
${
  kind !== "subscription"
    ? `try (var sender = builder.sender().${kind}Name("${name}").buildClient()) {
    sender.sendMessage(new ServiceBusMessage("hello"));
}
`
    : ""
}${
    kind !== "topic"
      ? `try (var receiver = builder.receiver().${kind === "queue" ? `queueName("${name}")` : `topicName("${name}").subscriptionName("${subscription}")`}.buildClient()) {
    receiver.receiveMessages(1).forEach(message -> {
        System.out.println(message.getBody());
        receiver.complete(message);
    });
}
`
      : ""
  }`,
  Go: (
    kind,
    name,
    subscription,
  ) => `client, err := azservicebus.NewClientFromConnectionString(os.Getenv("${VARIABLE}"), nil)
if err != nil { log.Fatal(err) }
${
  kind !== "subscription"
    ? `sender, err := client.NewSender("${name}", nil)
if err != nil { log.Fatal(err) }
err = sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil)
`
    : ""
}${
    kind !== "topic"
      ? `receiver, err := client.${kind === "queue" ? `NewReceiverForQueue("${name}", nil)` : `NewReceiverForSubscription("${name}", "${subscription}", nil)`}
if err != nil { log.Fatal(err) }
messages, err := receiver.ReceiveMessages(ctx, 1, nil)
for _, message := range messages { err = receiver.CompleteMessage(ctx, message, nil) }
`
      : ""
  }`,
  ".NET": (
    kind,
    name,
    subscription,
  ) => `await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("${VARIABLE}"));
${
  kind !== "subscription"
    ? `await client.CreateSender("${name}").SendMessageAsync(new ServiceBusMessage("hello"));
`
    : ""
}${
    kind !== "topic"
      ? `var receiver = client.CreateReceiver("${name}"${subscription ? `, "${subscription}"` : ""});
var message = await receiver.ReceiveMessageAsync();
Console.WriteLine(message.Body);
await receiver.CompleteMessageAsync(message);
`
      : ""
  }`,
};
