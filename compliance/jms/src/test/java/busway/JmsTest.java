package busway;

import static busway.World.browse;
import static busway.World.receive;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What docs/how-to/use-jms.md says of Qpid JMS. */
class JmsTest {
    private static String[] texts(int count) {
        return IntStream.range(0, count).mapToObj(n -> String.format("m%03d", n)).toArray(String[]::new);
    }

    private static void assertEmpty(MessageConsumer consumer) throws JMSException {
        assertNull(consumer.receive(500));
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void whatIsSentIsReceivedWithItsHeadersAndProperties(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            TextMessage sent = session.createTextMessage("hello");
            sent.setJMSCorrelationID("correlated");
            sent.setJMSType("kind");
            sent.setJMSReplyTo(session.createQueue("answers"));
            sent.setStringProperty("colour", "red");
            sent.setIntProperty("size", 7);
            sent.setBooleanProperty("urgent", true);
            session.createProducer(queue).send(sent);
            var received = (TextMessage) session.createConsumer(queue).receive(World.PATIENCE_MS);
            assertEquals("hello", received.getText());
            assertEquals(sent.getJMSMessageID(), received.getJMSMessageID());
            assertEquals("correlated", received.getJMSCorrelationID());
            assertEquals("kind", received.getJMSType());
            assertEquals("answers", ((jakarta.jms.Queue) received.getJMSReplyTo()).getQueueName());
            assertEquals("red", received.getStringProperty("colour"));
            assertEquals(7, received.getIntProperty("size"));
            assertTrue(received.getBooleanProperty("urgent"));
            assertFalse(received.getJMSRedelivered());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void everyKindOfMessageComesBack(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            var bytes = session.createBytesMessage();
            bytes.writeBytes(new byte[] {0, 1, (byte) 0xff});
            var map = session.createMapMessage();
            map.setLong("n", 1L << 40);
            var producer = session.createProducer(queue);
            List<Message> kinds = List.of(bytes, map, session.createObjectMessage("object"), session.createMessage());
            for (Message each : kinds) {
                producer.send(each);
            }
            var consumer = session.createConsumer(queue);
            List<String> sent = new ArrayList<>();
            List<String> received = new ArrayList<>();
            for (Message each : kinds) {
                sent.add(each.getClass().getSimpleName());
                received.add(consumer.receive(World.PATIENCE_MS).getClass().getSimpleName());
            }
            Collections.sort(sent);
            Collections.sort(received);
            assertEquals(sent, received);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void whatIsNotAcknowledgedIsRecovered(Flavour flavour) throws Exception {
        try (World world = new World(flavour);
             Session session = world.connection.createSession(false, Session.CLIENT_ACKNOWLEDGE)) {
            var queue = session.createQueue(world.take("queue"));
            world.send(queue.getQueueName(), "again");
            var consumer = session.createConsumer(queue);
            assertFalse(consumer.receive(World.PATIENCE_MS).getJMSRedelivered());
            session.recover();
            Message again = consumer.receive(World.PATIENCE_MS);
            assertNotNull(again);
            assertTrue(again.getJMSRedelivered());
            again.acknowledge();
            assertEmpty(consumer);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aBrowserShowsEveryMessageOnceAndTakesNone(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            world.send(queue.getQueueName(), texts(150));
            for (int turn = 0; turn < 2; turn++) {
                assertEquals(List.of(texts(150)), browse(session, queue, null));
            }
            var consumer = session.createConsumer(queue);
            assertEquals(List.of(texts(150)), receive(consumer, 150));
            assertEmpty(consumer);
            assertEquals(List.of(), browse(session, queue, null));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aBrowserMayHaveASelector(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            var producer = session.createProducer(queue);
            for (int n = 0; n < 20; n++) {
                TextMessage message = session.createTextMessage(String.format("m%03d", n));
                message.setIntProperty("n", n);
                message.setBooleanProperty("even", n % 2 == 0);
                message.setJMSType(n < 10 ? "low" : "high");
                message.setJMSCorrelationID("c" + n);
                producer.send(message, jakarta.jms.DeliveryMode.PERSISTENT, n < 5 ? 9 : 4, 0);
            }
            assertEquals(List.of("m006", "m008"), browse(session, queue, "even AND n BETWEEN 5 AND 9"));
            assertEquals(List.of("m000", "m004"), browse(session, queue, "JMSPriority > 5 AND n <> 1 AND n <> 2 AND n <> 3"));
            assertEquals(List.of("m011"), browse(session, queue, "JMSCorrelationID = 'c11' AND JMSType = 'high'"));
            assertEquals(20, browse(session, queue, "JMSDeliveryMode = 'PERSISTENT' AND JMSTimestamp > 0").size());
            assertEquals(List.of(), browse(session, queue, "missing = 1"));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aConsumerWithASelectorIsRefused(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            var error = assertThrows(JMSException.class, () -> session.createConsumer(queue, "colour = 'red'"));
            assertTrue(error.getMessage().contains("cannot have a selector"), error.getMessage());
        }
    }

    /** After a rollback a received message comes again when its lock has run out (TXN-2). */
    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aTransactedSessionCommitsAndRollsBack(Flavour flavour) throws Exception {
        try (World world = new World(flavour);
             Session session = world.connection.createSession(true, Session.SESSION_TRANSACTED)) {
            var queue = session.createQueue(world.take("short"));
            var producer = session.createProducer(queue);
            var consumer = session.createConsumer(queue);
            producer.send(keyed(session, "committed"));
            session.commit();
            producer.send(keyed(session, "rolled back"));
            session.rollback();
            assertEquals(List.of("committed"), receive(consumer, 1));
            session.rollback();
            assertEquals(List.of("committed"), receive(consumer, 1));
            session.commit();
            assertEmpty(consumer);
        }
    }

    /** In a transaction a message to a partitioned entity needs a key (P-33): here the session id. */
    private static TextMessage keyed(Session session, String text) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("JMSXGroupID", "key");
        return message;
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aSubscriptionIsReceivedFromAsAQueue(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            String topic = world.take("topic");
            var red = session.createTextMessage("red");
            red.setStringProperty("colour", "red");
            session.createProducer(session.createTopic(topic)).send(red);
            world.send(topic, "plain");
            var all = session.createQueue(topic + "/Subscriptions/all");
            assertEquals(List.of("plain", "red"), browse(session, all, null));
            assertEquals(List.of("plain", "red"), receive(session.createConsumer(all), 2));
            var filtered = session.createConsumer(session.createQueue(topic + "/Subscriptions/red"));
            assertEquals(List.of("red"), receive(filtered, 1));
            assertEmpty(filtered);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void twoConsumersShareASubscription(Flavour flavour) throws Exception {
        try (World world = new World(flavour); World other = new World(flavour);
             Session session = world.session(); Session second = other.session()) {
            String topic = world.take("topic");
            String path = topic + "/Subscriptions/all";
            var here = session.createConsumer(session.createQueue(path));
            var there = second.createConsumer(second.createQueue(path));
            world.send(topic, texts(40));
            List<String> received = new ArrayList<>();
            while (received.size() < 40) {
                for (var consumer : List.of(here, there)) {
                    var message = (TextMessage) consumer.receive(200);
                    if (message != null) {
                        received.add(message.getText());
                    }
                }
            }
            Collections.sort(received);
            assertEquals(List.of(texts(40)), received);
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aConsumerOfATopicIsRefused(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var topic = session.createTopic(world.take("topic"));
            var error = assertThrows(JMSException.class, () -> session.createConsumer(topic));
            assertTrue(error.getMessage().contains("Receive from one of its subscriptions"), error.getMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aTemporaryQueueIsRefused(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var error = assertThrows(JMSException.class, session::createTemporaryQueue);
            assertTrue(error.getMessage().contains("not supported"), error.getMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void aRequestIsAnsweredByWayOfAQueue(Flavour flavour) throws Exception {
        try (World world = new World(flavour); Session session = world.session()) {
            var requests = session.createQueue(world.take("queue"));
            var answers = session.createQueue(world.take("queue"));
            var request = session.createTextMessage("ping");
            request.setJMSReplyTo(answers);
            session.createProducer(requests).send(request);
            Message asked = session.createConsumer(requests).receive(World.PATIENCE_MS);
            var answer = session.createTextMessage("pong");
            answer.setJMSCorrelationID(asked.getJMSMessageID());
            session.createProducer(null).send(asked.getJMSReplyTo(), answer);
            var received = (TextMessage) session.createConsumer(answers).receive(World.PATIENCE_MS);
            assertEquals("pong", received.getText());
            assertEquals(request.getJMSMessageID(), received.getJMSCorrelationID());
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void itIsTheSameInTls(Flavour flavour) throws Exception {
        String trust = "&transport.trustStoreLocation=" + System.getenv("BUSWAY_TRUST_STORE")
            + "&transport.trustStorePassword=changeit&transport.verifyHost=true";
        try (World world = new World(flavour, "amqps", "BUSWAY_TLS_CONNECTION_STRING", trust);
             Session session = world.session()) {
            var queue = session.createQueue(world.take("queue"));
            world.send(queue.getQueueName(), "secret");
            assertEquals(List.of("secret"), browse(session, queue, null));
            assertEquals(List.of("secret"), receive(session.createConsumer(queue), 1));
        }
    }
}
