package busway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.net.URI;
import java.util.UUID;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The administration client: making, finding and not finding. */
class AdministrationTest {
    private static ServiceBusAdministrationClient client;

    /** The SDK drops the port of a connection string, and asks 443: a policy puts it back. */
    @BeforeAll
    static void connect() {
        System.setProperty("javax.net.ssl.trustStore", System.getenv("BUSWAY_TRUST_STORE"));
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        String connectionString = System.getenv("BUSWAY_TLS_CONNECTION_STRING");
        String authority = connectionString.split("[/;]")[2];
        client = new ServiceBusAdministrationClientBuilder()
            .connectionString(connectionString)
            .addPolicy((context, next) -> {
                var request = context.getHttpRequest();
                URI asked = URI.create(request.getUrl().toString());
                request.setUrl(asked.toString().replace(asked.getAuthority(), authority));
                return next.process();
            })
            .buildClient();
    }

    @Test
    void aQueueIsMadeAsAskedAndDeleted() {
        String name = "made-" + UUID.randomUUID();
        client.createQueue(
            name, new CreateQueueOptions().setMaxDeliveryCount(7).setPartitioningEnabled(true));
        assertEquals(7, client.getQueue(name).getMaxDeliveryCount());
        assertTrue(client.getQueue(name).isPartitioningEnabled());
        assertTrue(client.getQueueExists(name));
        assertThrows(ResourceExistsException.class, () -> client.createQueue(name));
        client.deleteQueue(name);
        assertFalse(client.getQueueExists(name));
    }

    /** The service answers the first two with a feed without an entry, the others with 404 (N-15). */
    @Test
    void whatIsMissingIsNotFound() {
        String topic = "topic-" + UUID.randomUUID();
        client.createTopic(topic);
        assertThrows(ResourceNotFoundException.class, () -> client.getQueue("missing"));
        assertThrows(ResourceNotFoundException.class, () -> client.getTopic("missing"));
        assertThrows(ResourceNotFoundException.class, () -> client.getSubscription(topic, "missing"));
        assertThrows(ResourceNotFoundException.class, () -> client.deleteQueue("missing"));
        assertFalse(client.getQueueExists("missing"));
        assertFalse(client.getTopicExists("missing"));
        assertFalse(client.getSubscriptionExists(topic, "missing"));
        client.deleteTopic(topic);
    }
}
