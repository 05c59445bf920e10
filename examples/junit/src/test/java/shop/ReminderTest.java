package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ReminderTest {
    private static Busway busway;
    private static ServiceBusClientBuilder client;

    @BeforeAll
    static void start() throws IOException {
        busway = Busway.start();
        client = new ServiceBusClientBuilder().connectionString(busway.connectionString);
    }

    @AfterAll
    static void stop() throws InterruptedException {
        busway.close();
    }

    @AfterEach
    void clean() {
        busway.reset();
    }

    @Test
    void aReminderComesAWeekLater() {
        String queue = busway.createQueue("reminders", "");
        try (var sender = client.sender().queueName(queue).buildClient();
             var receiver = receiver(queue)) {
            Instant due = busway.now().plus(Duration.ofDays(7));
            sender.scheduleMessage(new ServiceBusMessage("buy a book"), due.atOffset(ZoneOffset.UTC));
            busway.advance(Duration.ofDays(7));
            ServiceBusReceivedMessage message = one(receiver);
            assertEquals("buy a book", message.getBody().toString());
            receiver.complete(message);
        }
    }

    @Test
    void aWorkerThatIsTooSlowLosesItsOrder() {
        String queue = busway.createQueue("orders", "<LockDuration>PT5M</LockDuration>");
        try (var sender = client.sender().queueName(queue).buildClient();
             var receiver = receiver(queue)) {
            sender.sendMessage(new ServiceBusMessage("book"));
            ServiceBusReceivedMessage first = one(receiver);
            busway.advance(Duration.ofMinutes(5));
            var lost = assertThrows(ServiceBusException.class, () -> receiver.complete(first));
            assertEquals(ServiceBusFailureReason.MESSAGE_LOCK_LOST, lost.getReason());
            ServiceBusReceivedMessage again = one(receiver);
            assertEquals(1, again.getDeliveryCount());
            receiver.complete(again);
        }
    }

    @Test
    void anOrderThatNobodyHandlesIsDeadLettered() {
        String queue = busway.createQueue("orders",
            "<DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>");
        try (var sender = client.sender().queueName(queue).buildClient();
             var receiver = client.receiver().queueName(queue)
                 .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("book").setTimeToLive(Duration.ofHours(1)));
            busway.advance(Duration.ofHours(1));
            assertEquals("TTLExpiredException", one(receiver).getDeadLetterReason());
        }
    }

    @Test
    void eachTestHasTheRealTimeAgain() {
        Duration off = Duration.between(Instant.now(), busway.now()).abs();
        assertTrue(off.compareTo(Duration.ofMinutes(10)) < 0, off.toString());
    }

    private ServiceBusReceiverClient receiver(String queue) {
        // The SDK renews locks by itself, by its own clock; here the test says what time it is.
        return client.receiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient();
    }

    private static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, Duration.ofSeconds(20)).iterator().next();
    }
}
