package busway;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A connection for one test, and entities for it from the pools of compliance/entities.py. */
final class World implements AutoCloseable {
    enum Flavour { CONVENTIONAL, PARTITIONED }

    static final long PATIENCE_MS = 20_000;
    private static final Map<String, Integer> TAKEN = new HashMap<>();

    final Flavour flavour;
    final Connection connection;

    World(Flavour flavour) throws JMSException {
        this(flavour, "amqp", "BUSWAY_CONNECTION_STRING", "");
    }

    World(Flavour flavour, String scheme, String variable, String options) throws JMSException {
        this.flavour = flavour;
        Map<String, String> parts = parts(System.getenv(variable));
        String host = parts.get("Endpoint").replaceFirst("^sb://", "").replaceFirst("/$", "");
        var factory = new JmsConnectionFactory(
            parts.get("SharedAccessKeyName"), parts.get("SharedAccessKey"),
            scheme + "://" + host + "?jms.redeliveryPolicy.maxRedeliveries=-1" + options);
        connection = factory.createConnection();
        connection.start();
    }

    private static Map<String, String> parts(String connectionString) {
        Map<String, String> parts = new HashMap<>();
        for (String part : connectionString.split(";")) {
            int equals = part.indexOf('=');
            if (equals > 0) {
                parts.put(part.substring(0, equals), part.substring(equals + 1));
            }
        }
        return parts;
    }

    String take(String kind) {
        String prefix = flavour == Flavour.PARTITIONED ? kind + "-partitioned" : kind;
        return prefix + "-" + TAKEN.merge(prefix, 1, Integer::sum);
    }

    Session session() throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    void send(String path, String... texts) throws JMSException {
        try (Session session = session(); var producer = session.createProducer(session.createQueue(path))) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    /** Exactly so many, sorted: there is no order over partitions. */
    static List<String> receive(MessageConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            var message = (TextMessage) consumer.receive(PATIENCE_MS);
            if (message == null) {
                throw new AssertionError(texts + " came, and not " + count);
            }
            texts.add(message.getText());
        }
        Collections.sort(texts);
        return texts;
    }

    static List<String> browse(Session session, Queue queue, String selector) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue, selector)) {
            var found = browser.getEnumeration();
            while (found.hasMoreElements()) {
                texts.add(((TextMessage) found.nextElement()).getText());
            }
        }
        Collections.sort(texts);
        return texts;
    }

    @Override
    public void close() throws JMSException {
        connection.close();
    }
}
