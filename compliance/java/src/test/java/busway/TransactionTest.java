package busway;

import static busway.World.bodies;
import static busway.World.isEmpty;
import static busway.World.keyed;
import static busway.World.message;
import static busway.World.receive;
import static busway.World.receiveOne;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class TransactionTest {
    private static CompleteOptions complete(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void sendsAreSeenAfterTheCommitAndNotBefore(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var receiver = world.eraser(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(keyed("one"), transaction);
            sender.sendMessages(List.of(keyed("two"), keyed("three")), transaction);
            assertNull(receiver.peekMessage());
            sender.commitTransaction(transaction);
            assertEquals(List.of("one", "two", "three"), bodies(receive(receiver, 3)));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void whatIsRolledBackWasNeverThere(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var receiver = world.eraser(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(keyed("never"), transaction);
            sender.rollbackTransaction(transaction);
            assertTrue(isEmpty(receiver));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void completeAndSendAreOne(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var receiver = world.queueReceiver(queue);
            sender.sendMessage(keyed("request"));
            var request = receiveOne(receiver);
            var transaction = sender.createTransaction();
            receiver.complete(request, complete(transaction));
            sender.sendMessage(keyed("answer"), transaction);
            sender.commitTransaction(transaction);
            var answer = receiveOne(receiver);
            assertEquals("answer", answer.getBody().toString());
            receiver.complete(answer);
            assertNull(receiver.peekMessage(0));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aCompletionRolledBackLeavesTheMessageLocked(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            world.queueSender(queue).sendMessage(keyed("kept"));
            var receiver = world.queueReceiver(queue);
            var message = receiveOne(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(message, complete(transaction));
            receiver.rollbackTransaction(transaction);
            assertEquals("kept", receiver.peekMessage(0).getBody().toString());
            assertTrue(isEmpty(receiver), "TXN-2: it stays locked until its lock ends");
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void allSettlementsTakePart(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            for (String body : List.of("abandon", "defer", "dead")) {
                sender.sendMessage(keyed(body));
            }
            var receiver = world.queueReceiver(queue);
            var messages = receive(receiver, 3);
            var transaction = receiver.createTransaction();
            receiver.abandon(messages.get(0),
                new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(messages.get(1), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(messages.get(2), new DeadLetterOptions()
                .setDeadLetterReason("reason").setTransactionContext(transaction));
            assertTrue(isEmpty(receiver));
            receiver.commitTransaction(transaction);
            var again = receiveOne(receiver);
            assertEquals("abandon", again.getBody().toString());
            assertEquals(1, again.getDeliveryCount());
            var deferred = receiver.receiveDeferredMessage(messages.get(1).getSequenceNumber());
            assertEquals("defer", deferred.getBody().toString());
            assertEquals("reason", receiveOne(world.deadLetters(queue)).getDeadLetterReason());

            transaction = receiver.createTransaction();
            receiver.complete(deferred, complete(transaction)); // By update-disposition.
            receiver.complete(again, complete(transaction));
            receiver.commitTransaction(transaction);
            assertNull(receiver.peekMessage(0));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void scheduleTakesPart(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var receiver = world.eraser(queue);
            OffsetDateTime due = OffsetDateTime.now().plusSeconds(2);
            var transaction = sender.createTransaction();
            sender.scheduleMessage(keyed("never"), due, transaction);
            sender.rollbackTransaction(transaction);
            transaction = sender.createTransaction();
            sender.scheduleMessage(keyed("later"), due, transaction);
            assertNull(receiver.peekMessage());
            sender.commitTransaction(transaction);
            assertEquals(ServiceBusMessageState.SCHEDULED, receiver.peekMessage(0).getState());
            assertEquals("later", receiveOne(receiver).getBody().toString());
            assertTrue(isEmpty(receiver));
        }
    }

    /**
     * The SDK takes every answer to a send in a transaction for success, a refusal too, so that it
     * is the commit that must not succeed: or else part of the transaction would be lost unseen.
     */
    private static void assertRefused(Runnable commit) {
        assertThrows(RuntimeException.class, commit::run);
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aTransactionHasOneEntityOnly(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            String other = world.take("queue");
            var first = world.queueSender(queue);
            var transaction = first.createTransaction();
            first.sendMessage(keyed("one"), transaction);
            world.queueSender(other).sendMessage(keyed("two"), transaction);
            assertRefused(() -> first.commitTransaction(transaction));
            assertNull(world.eraser(queue).peekMessage());
            assertNull(world.eraser(other).peekMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(value = Flavour.class, names = "PARTITIONED")
    void onAPartitionedQueueAKeyIsNeeded(Flavour flavour) throws Exception { // P-33
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(keyed("a key"), transaction);
            sender.sendMessage(message("no key"), transaction);
            assertRefused(() -> sender.commitTransaction(transaction));
            assertNull(world.eraser(queue).peekMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(value = Flavour.class, names = "PARTITIONED")
    void onAPartitionedQueueKeysAreEqual(Flavour flavour) throws Exception { // P-34
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(message("a").setPartitionKey("a"), transaction);
            sender.sendMessage(message("b").setPartitionKey("b"), transaction);
            assertRefused(() -> sender.commitTransaction(transaction));
            assertNull(world.eraser(queue).peekMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void sessionsTakePart(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("session");
            var sender = world.queueSender(queue);
            sender.sendMessage(message("request").setSessionId("s"));
            var sessions = world.kept(world.builder.sessionReceiver().queueName(queue)
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
            var receiver = world.kept(sessions.acceptSession("s"));
            var request = receiveOne(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(request, complete(transaction));
            sender.sendMessage(message("answer").setSessionId("s"), transaction);
            receiver.commitTransaction(transaction);
            assertEquals("answer", receiveOne(receiver).getBody().toString());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void acrossEntitiesAllOrNothingHappens(Flavour flavour) throws Exception {
        try (World world = new World(flavour, true); World outside = new World(flavour)) {
            String from = world.take("queue");
            String to = world.take("queue");
            outside.queueSender(from).sendMessages(List.of(keyed("one"), keyed("two")));
            var receiver = world.queueReceiver(from);
            var sender = world.queueSender(to);
            var target = outside.eraser(to);

            var first = receiveOne(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(first, complete(transaction));
            sender.sendMessage(keyed("first answer"), transaction);
            receiver.commitTransaction(transaction);
            assertEquals("first answer", receiveOne(target).getBody().toString());

            var second = receiveOne(receiver);
            assertEquals("two", second.getBody().toString());
            transaction = receiver.createTransaction();
            receiver.complete(second, complete(transaction));
            sender.sendMessage(keyed("never"), transaction);
            receiver.rollbackTransaction(transaction);
            assertTrue(isEmpty(target));
            assertEquals("two", receiver.peekMessage(0).getBody().toString());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void fromASubscriptionToAQueue(Flavour flavour) throws Exception {
        try (World world = new World(flavour, true); World outside = new World(flavour)) {
            String topic = world.take("topic");
            String queue = world.take("queue");
            outside.topicSender(topic).sendMessage(keyed("news"));
            var receiver = world.subscription(topic, "all");
            var sender = world.queueSender(queue);
            var news = receiveOne(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(news, complete(transaction));
            sender.sendMessage(keyed("copy"), transaction);
            receiver.commitTransaction(transaction);
            assertEquals("copy", receiveOne(outside.eraser(queue)).getBody().toString());
            assertNull(receiver.peekMessage(0));
        }
    }
}
