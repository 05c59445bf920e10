package busway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * One partition that is unavailable, seen by a sender that has other keys to send, too (N-14, P-41).
 * The broker is another one than that of the other tests, and has a switch: see ../partly_ill.py.
 */
class IllPartitionTest {
    private static final String ILL_KEY = System.getenv("BUSWAY_ILL_KEY");
    private static final List<String> HEALTHY_KEYS =
        List.of(System.getenv("BUSWAY_HEALTHY_KEYS").split(","));

    @BeforeEach
    void takeTheStoreAway() throws Exception {
        turn("gone");
    }

    @AfterEach
    void giveItBack() throws Exception {
        turn("none");
    }

    @Test
    void aRefusalOfOnePartitionKeepsNoOtherSendBack() {
        try (var sender = sender(new AmqpRetryOptions().setMaxRetries(0))) {
            for (String key : HEALTHY_KEYS) {
                var refusal = assertThrows(
                    ServiceBusException.class, () -> sender.sendMessage(to(ILL_KEY)));
                // "Retries exhausted: 0/0", because it would have tried again.
                var cause = (AmqpException) refusal.getCause().getCause();
                assertTrue(cause.isTransient());
                assertEquals(AmqpErrorCondition.TIMEOUT_ERROR, cause.getErrorCondition());
                assertTrue(cause.getMessage().contains("is temporarily unavailable"));
                sender.sendMessage(to(key));
            }
        }
    }

    @Test
    void aSendThatIsTriedAgainIsTakenWhenThePartitionIsBack() throws Exception {
        var patient = new AmqpRetryOptions()
            .setMode(AmqpRetryMode.FIXED).setMaxRetries(200).setDelay(Duration.ofMillis(250));
        try (var sender = sender(patient)) {
            var waiting = CompletableFuture.runAsync(() -> sender.sendMessage(to(ILL_KEY)));
            HEALTHY_KEYS.forEach(key -> sender.sendMessage(to(key)));
            assertFalse(waiting.isDone());
            turn("none");
            waiting.get(50, TimeUnit.SECONDS);
        }
    }

    private static ServiceBusSenderClient sender(AmqpRetryOptions retries) {
        return new ServiceBusClientBuilder()
            .connectionString(System.getenv("BUSWAY_ILL_CONNECTION_STRING"))
            .retryOptions(retries).sender().queueName("partly-ill").buildClient();
    }

    private static ServiceBusMessage to(String key) {
        return new ServiceBusMessage("x").setPartitionKey(key);
    }

    private static void turn(String mode) throws Exception {
        var asked = URI.create(System.getenv("BUSWAY_ILL_SWITCH") + "/" + mode);
        var reply = HttpClient.newHttpClient()
            .send(HttpRequest.newBuilder(asked).build(), BodyHandlers.discarding());
        assertEquals(204, reply.statusCode());
    }
}
