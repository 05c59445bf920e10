package busway;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A client for one test, and entities for it from the pools of compliance/entities.py. Clients of
 * one world share a connection, as those of one builder do.
 */
final class World implements AutoCloseable {
    enum Flavour { CONVENTIONAL, PARTITIONED }

    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final Map<String, Integer> TAKEN = new HashMap<>();

    final ServiceBusClientBuilder builder;
    final Flavour flavour;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    World(Flavour flavour) {
        this(flavour, false);
    }

    World(Flavour flavour, boolean crossEntity) {
        this(flavour, "BUSWAY_CONNECTION_STRING", AmqpTransportType.AMQP);
        if (crossEntity) {
            builder.enableCrossEntityTransactions();
        }
    }

    World(Flavour flavour, String connectionStringVariable, AmqpTransportType transport) {
        this.flavour = flavour;
        AmqpRetryOptions retries =
            new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(20));
        builder = new ServiceBusClientBuilder()
            .connectionString(System.getenv(connectionStringVariable))
            .transportType(transport)
            .retryOptions(retries);
    }

    boolean partitioned() {
        return flavour == Flavour.PARTITIONED;
    }

    String take(String kind) {
        String prefix = partitioned() ? kind + "-partitioned" : kind;
        return prefix + "-" + TAKEN.merge(prefix, 1, Integer::sum);
    }

    /** The entity of that kind that was taken last. */
    String again(String kind) {
        String prefix = partitioned() ? kind + "-partitioned" : kind;
        return prefix + "-" + TAKEN.get(prefix);
    }

    ServiceBusSenderClient queueSender(String queue) {
        return kept(builder.sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient topicSender(String topic) {
        return kept(builder.sender().topicName(topic).buildClient());
    }

    ServiceBusReceiverClient queueReceiver(String queue) {
        return kept(unrenewed().queueName(queue).buildClient());
    }

    ServiceBusReceiverClient eraser(String queue) {
        return kept(unrenewed().queueName(queue)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return kept(
            unrenewed().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    ServiceBusReceiverClient subscription(String topic, String name) {
        return kept(unrenewed().topicName(topic).subscriptionName(name).buildClient());
    }

    private ServiceBusClientBuilder.ServiceBusReceiverClientBuilder unrenewed() {
        return builder.receiver().maxAutoLockRenewDuration(Duration.ZERO);
    }

    /** It is closed at the end of the test, the last one first. */
    <T extends AutoCloseable> T kept(T client) {
        open.push(client);
        return client;
    }

    @Override
    public void close() throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
    }

    static ServiceBusMessage message(String body) {
        return new ServiceBusMessage(body);
    }

    /** With a key, so that a transaction may send it to a partitioned entity too (P-33). */
    static ServiceBusMessage keyed(String body) {
        return new ServiceBusMessage(body).setPartitionKey("key");
    }

    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> messages = new ArrayList<>();
        while (messages.size() < count) {
            int before = messages.size();
            receiver.receiveMessages(count - before, PATIENCE).forEach(messages::add);
            if (messages.size() == before) {
                throw new AssertionError(before + " of " + count + " messages came");
            }
        }
        return messages;
    }

    static ServiceBusReceivedMessage receiveOne(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static boolean isEmpty(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, Duration.ofMillis(800)).stream().findAny().isEmpty();
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> bodies = new ArrayList<>();
        messages.forEach(message -> bodies.add(message.getBody().toString()));
        return bodies;
    }
}
