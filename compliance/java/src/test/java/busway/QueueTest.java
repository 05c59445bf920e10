package busway;

import static busway.World.bodies;
import static busway.World.isEmpty;
import static busway.World.keyed;
import static busway.World.message;
import static busway.World.receive;
import static busway.World.receiveOne;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class QueueTest {
    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aMessageArrivesAsItWasSent(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            ServiceBusMessage sent = message("body")
                .setMessageId("id").setCorrelationId("correlation").setSubject("subject")
                .setContentType("text/plain").setReplyTo("reply").setTo("to")
                .setTimeToLive(Duration.ofMinutes(10));
            sent.getApplicationProperties().put("number", 5L);
            sent.getApplicationProperties().put("when", OffsetDateTime.parse("2026-01-02T03:04:05Z"));
            sent.getApplicationProperties().put("span", Duration.ofSeconds(90));
            world.queueSender(queue).sendMessage(sent);
            var receiver = world.queueReceiver(queue);
            var message = receiveOne(receiver);
            assertEquals("body", message.getBody().toString());
            assertEquals("id", message.getMessageId());
            assertEquals("correlation", message.getCorrelationId());
            assertEquals("subject", message.getSubject());
            var properties = message.getApplicationProperties();
            assertEquals(5L, properties.get("number"));
            assertEquals(OffsetDateTime.parse("2026-01-02T03:04:05Z"), properties.get("when"));
            assertEquals(Duration.ofSeconds(90), properties.get("span"));
            assertEquals(0, message.getDeliveryCount());
            assertNotNull(message.getEnqueuedTime());
            assertTrue(message.getLockedUntil().isAfter(OffsetDateTime.now()));
            receiver.complete(message);
            assertTrue(isEmpty(receiver));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aBatchArrivesWhole(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            assertEquals(256 * 1024, batch.getMaxSizeInBytes());
            for (int i = 0; i < 10; i++) {
                assertTrue(batch.tryAddMessage(keyed("m" + i)));
            }
            sender.sendMessages(batch);
            var messages = receive(world.eraser(queue), 10);
            assertEquals(
                List.of("m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"),
                bodies(messages));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void anAbandonedMessageComesBackChanged(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            world.queueSender(queue).sendMessage(message("again"));
            var receiver = world.queueReceiver(queue);
            receiver.abandon(receiveOne(receiver),
                new AbandonOptions().setPropertiesToModify(Map.of("tried", "yes")));
            var again = receiveOne(receiver);
            assertEquals(1, again.getDeliveryCount());
            assertEquals("yes", again.getApplicationProperties().get("tried"));
            receiver.complete(again);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aDeadLetterSaysWhy(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            world.queueSender(queue).sendMessage(message("bad"));
            var receiver = world.queueReceiver(queue);
            receiver.deadLetter(receiveOne(receiver), new DeadLetterOptions()
                .setDeadLetterReason("reason").setDeadLetterErrorDescription("description"));
            var dead = world.deadLetters(queue);
            var message = receiveOne(dead);
            assertEquals("reason", message.getDeadLetterReason());
            assertEquals("description", message.getDeadLetterErrorDescription());
            dead.complete(message);
            assertTrue(isEmpty(dead));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aDeferredMessageIsThereForItsNumber(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            world.queueSender(queue).sendMessage(message("later"));
            var receiver = world.queueReceiver(queue);
            var message = receiveOne(receiver);
            receiver.defer(message);
            assertEquals(ServiceBusMessageState.DEFERRED, receiver.peekMessage().getState());
            var deferred = receiver.receiveDeferredMessage(message.getSequenceNumber());
            assertEquals("later", deferred.getBody().toString());
            receiver.complete(deferred);
            assertNull(receiver.peekMessage(0));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void peekShowsAndLocksNothing(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            for (int i = 0; i < 3; i++) {
                sender.sendMessage(keyed("m" + i));
            }
            var receiver = world.queueReceiver(queue);
            assertEquals(List.of("m0", "m1", "m2"), bodies(receiver.peekMessages(3)));
            assertEquals(3, receive(receiver, 3).size());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aLockIsRenewed(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            world.queueSender(queue).sendMessage(message("slow"));
            var receiver = world.queueReceiver(queue);
            var message = receiveOne(receiver);
            OffsetDateTime before = message.getLockedUntil();
            Thread.sleep(20); // The clock of the lock must have moved, by a millisecond at least.
            assertTrue(receiver.renewMessageLock(message).isAfter(before));
            receiver.complete(message);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aMessageTooLargeIsRefusedAsThat(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            var sender = world.queueSender(world.take("queue"));
            var error = assertThrows(ServiceBusException.class,
                () -> sender.sendMessage(message("x".repeat(300_000))));
            assertEquals(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, error.getReason());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void anUnknownQueueIsNotFound(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            var sender = world.queueSender("no-such-queue");
            var error = assertThrows(ServiceBusException.class,
                () -> sender.sendMessage(message("lost")));
            assertEquals(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, error.getReason());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aRepeatedIdIsStoredOnce(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("unique");
            var sender = world.queueSender(queue);
            sender.sendMessage(message("first").setMessageId("same"));
            sender.sendMessage(message("second").setMessageId("same"));
            var receiver = world.eraser(queue);
            assertEquals("first", receiveOne(receiver).getBody().toString());
            assertTrue(isEmpty(receiver));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aForwardedMessageArrives(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("forward");
            world.queueSender(queue).sendMessage(keyed("onward"));
            var target = world.eraser(queue.replace("forward", "target"));
            assertEquals("onward", receiveOne(target).getBody().toString());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aScheduledMessageWaitsAndACancelledOneNeverComes(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("queue");
            var sender = world.queueSender(queue);
            var receiver = world.eraser(queue);
            OffsetDateTime due = OffsetDateTime.now().plusSeconds(2);
            long cancelled = sender.scheduleMessage(keyed("never"), due);
            long number = sender.scheduleMessage(keyed("later"), due);
            sender.cancelScheduledMessage(cancelled);
            var peeked = receiver.peekMessage();
            assertEquals(number, peeked.getSequenceNumber());
            assertEquals(ServiceBusMessageState.SCHEDULED, peeked.getState());
            assertEquals("later", receiveOne(receiver).getBody().toString());
            assertTrue(!OffsetDateTime.now().isBefore(due));
            assertTrue(isEmpty(receiver));
        }
    }
}
