package busway;

import static busway.World.bodies;
import static busway.World.isEmpty;
import static busway.World.message;
import static busway.World.receive;
import static busway.World.receiveOne;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A link to a session is named after it, and a connection of this SDK hands out one that it has
 * under that name: who accepts a session again does it on another connection.
 */
class SessionTest {
    private static final int TURNS = 20;
    /** A hundred take over a minute; BUSWAY_ROUNDS=5 is for the impatient. */
    private static final int ROUNDS =
        Integer.parseInt(System.getenv().getOrDefault("BUSWAY_ROUNDS", "100"));

    private static ServiceBusSessionReceiverClient sessions(World world, String queue) {
        return world.kept(world.builder.sessionReceiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    private static void send(ServiceBusSenderClient sender, String session, int count) {
        for (int i = 0; i < count; i++) {
            sender.sendMessage(message(session + i).setSessionId(session));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aSessionIsAcceptedByItsIdAndKeepsItsOrder(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("session");
            var sender = world.queueSender(queue);
            send(sender, "a", 2);
            send(sender, "b", 4);
            var receiver = world.kept(sessions(world, queue).acceptSession("b"));
            assertEquals("b", receiver.getSessionId());
            receiver.abandon(receiveOne(receiver));
            var messages = receive(receiver, 4);
            assertEquals(List.of("b0", "b1", "b2", "b3"), bodies(messages));
            assertEquals(1, messages.get(0).getDeliveryCount());
            messages.forEach(receiver::complete);
            assertTrue(isEmpty(receiver));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void theNextSessionIsOneWithMessages(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String queue = world.take("session");
            var sender = world.queueSender(queue);
            send(sender, "a", 1);
            send(sender, "b", 1);
            var sessions = sessions(world, queue);
            var first = world.kept(sessions.acceptNextSession());
            var second = world.kept(sessions.acceptNextSession());
            assertEquals(Set.of("a", "b"), Set.of(first.getSessionId(), second.getSessionId()));
            first.complete(receiveOne(first));
            second.complete(receiveOne(second));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aLockedSessionIsRefusedToOthers(Flavour flavour) throws Exception {
        try (World world = new World(flavour); World other = new World(flavour)) {
            String queue = world.take("session");
            world.kept(sessions(world, queue).acceptSession("one"));
            var sessions = sessions(other, queue);
            var error = assertThrows(AmqpException.class, () -> sessions.acceptSession("one"));
            assertEquals(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void stateIsKeptAndTheLockRenewed(Flavour flavour) throws Exception {
        try (World world = new World(flavour); World later = new World(flavour)) {
            String queue = world.take("session");
            try (var receiver = sessions(world, queue).acceptSession("s")) {
                assertNull(receiver.getSessionState());
                receiver.setSessionState(new byte[] {1, 2, 3});
                assertTrue(receiver.renewSessionLock().isAfter(OffsetDateTime.now()));
            }
            world.close();
            try (var receiver = sessions(later, queue).acceptSession("s")) {
                assertArrayEquals(new byte[] {1, 2, 3}, receiver.getSessionState());
                receiver.setSessionState(null);
                assertNull(receiver.getSessionState());
            }
        }
    }

    /**
     * The SDK names a session's link after the session. It forgets a link a moment after its detach
     * was answered, and until then hands out the closed one: no attach is sent then, and the first
     * request is answered that the lock is lost. Who asks again has a link, and all must be well.
     */
    @ParameterizedTest
    @EnumSource(Flavour.class)
    @Timeout(600)
    void aSessionIsAcceptedAgainAtOnce(Flavour flavour) throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            try (World world = new World(flavour)) {
                String session = "round-" + round;
                String queue = round == 0 ? world.take("session") : world.again("session");
                send(world.queueSender(queue), session, TURNS);
                var sessions = sessions(world, queue);
                for (int turn = 0; turn < TURNS; turn++) {
                    byte[] before = null;
                    ServiceBusReceiverClient held = null;
                    for (int attempt = 0; held == null; attempt++) {
                        held = sessions.acceptSession(session);
                        try {
                            before = held.getSessionState();
                        } catch (ServiceBusException error) {
                            assertEquals(ServiceBusFailureReason.SESSION_LOCK_LOST, error.getReason());
                            assertTrue(attempt < 20, "the session could not be accepted again");
                            held.close();
                            held = null;
                            Thread.sleep(10);
                        }
                    }
                    try (var receiver = held) {
                        assertEquals(turn, before == null ? 0 : before[0]);
                        receiver.setSessionState(new byte[] {(byte) (turn + 1)});
                        assertTrue(receiver.renewSessionLock().isAfter(OffsetDateTime.now()));
                        var message = receiveOne(receiver);
                        assertEquals(session + turn, message.getBody().toString());
                        receiver.complete(message);
                    }
                }
            }
        }
    }
}
