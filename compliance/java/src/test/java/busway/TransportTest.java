package busway;

import static busway.World.bodies;
import static busway.World.isEmpty;
import static busway.World.message;
import static busway.World.receive;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import com.azure.core.amqp.AmqpTransportType;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The ways to the one port other than plain AMQP: in TLS, and over WebSocket in TLS. */
class TransportTest {
    /** As JAVA_TOOL_OPTIONS would, which Maven would see, too. */
    @BeforeAll
    static void trustTheServer() {
        System.setProperty("javax.net.ssl.trustStore", System.getenv("BUSWAY_TRUST_STORE"));
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    @ParameterizedTest
    @EnumSource(AmqpTransportType.class)
    void messagesAreSentReceivedAndCompleted(AmqpTransportType transport) throws Exception {
        try (World world =
            new World(Flavour.PARTITIONED, "BUSWAY_TLS_CONNECTION_STRING", transport)) {
            String queue = world.take("queue");
            String large = "x".repeat(200_000);
            var sender = world.queueSender(queue);
            sender.sendMessage(message("small"));
            sender.sendMessage(message(large));
            var receiver = world.queueReceiver(queue);
            var messages = receive(receiver, 2);
            assertEquals(
                List.of("small", large), bodies(messages).stream().sorted().toList());
            messages.forEach(receiver::complete);
            assertTrue(isEmpty(receiver));
        }
    }
}
