// Partitioned queues and topics from C#: the examples of Microsoft's article on partitioned entities, with
// today's library. compliance/dotnet/test_article.py does the same, step by step, from Python; test_csharp.py compiles and runs this.
//
//     busway serve                                       # prints a connection string
//     dotnet run --project examples/dotnet "Endpoint=sb://localhost:5672;..."

using System.Transactions;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

string connectionString = args[0];
var administration = new ServiceBusAdministrationClient(connectionString);
await using var client = new ServiceBusClient(connectionString);

// --- A partitioned queue and a partitioned topic ------------------------------------------------------------

if (!await administration.QueueExistsAsync("orders"))
    await administration.CreateQueueAsync(new CreateQueueOptions("orders") { EnablePartitioning = true });
if (!await administration.QueueExistsAsync("baskets"))
    await administration.CreateQueueAsync(
        new CreateQueueOptions("baskets") { EnablePartitioning = true, RequiresSession = true });
if (!await administration.TopicExistsAsync("news"))
{
    await administration.CreateTopicAsync(new CreateTopicOptions("news") { EnablePartitioning = true });
    await administration.CreateSubscriptionAsync(new CreateSubscriptionOptions("news", "all"));
}

// --- Keys: without one a message goes to any partition, with one always to the same ------------------------

ServiceBusSender orders = client.CreateSender("orders");
await orders.SendMessageAsync(new ServiceBusMessage("wherever there is room"));
await orders.SendMessageAsync(new ServiceBusMessage("first") { PartitionKey = "customer 7" });
await orders.SendMessageAsync(new ServiceBusMessage("second") { PartitionKey = "customer 7" });
await client.CreateSender("news").SendMessageAsync(new ServiceBusMessage("news of the day"));

ServiceBusReceiver receiver = client.CreateReceiver("orders");
for (int received = 0; received < 3; received++)
{
    ServiceBusReceivedMessage message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(10));
    Console.WriteLine($"partition {message.SequenceNumber >> 48}: {message.Body}");
    await receiver.CompleteMessageAsync(message);
}

// --- A transaction: all messages have one key ---------------------------------------------------------------
// AsyncFlowOption.Enabled makes what is awaited take part. Without it a send takes part by chance.

using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
{
    await orders.SendMessageAsync(new ServiceBusMessage("debit") { PartitionKey = "account 1" });
    await orders.SendMessageAsync(new ServiceBusMessage("credit") { PartitionKey = "account 1" });
    scope.Complete();
}

try
{
    using var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled);
    await orders.SendMessageAsync(new ServiceBusMessage("no key, so no partition to be in"));
    scope.Complete();
}
catch (InvalidOperationException refused)
{
    Console.WriteLine($"refused: {refused.Message}");
}

// --- A session: its id is the key ---------------------------------------------------------------------------

ServiceBusSender baskets = client.CreateSender("baskets");
using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
{
    await baskets.SendMessageAsync(new ServiceBusMessage("bread") { SessionId = "basket 1" });
    await baskets.SendMessageAsync(new ServiceBusMessage("milk") { SessionId = "basket 1" });
    scope.Complete();
}

await using ServiceBusSessionReceiver basket = await client.AcceptSessionAsync("baskets", "basket 1");
foreach (ServiceBusReceivedMessage item in await basket.ReceiveMessagesAsync(2, TimeSpan.FromSeconds(10)))
{
    Console.WriteLine($"{basket.SessionId}: {item.Body}");
    await basket.CompleteMessageAsync(item);
}
await basket.SetSessionStateAsync(BinaryData.FromString("paid"));
