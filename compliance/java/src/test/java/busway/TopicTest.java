package busway;

import static busway.World.bodies;
import static busway.World.isEmpty;
import static busway.World.keyed;
import static busway.World.message;
import static busway.World.receive;
import static busway.World.receiveOne;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import busway.World.Flavour;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class TopicTest {
    @ParameterizedTest
    @EnumSource(Flavour.class)
    void everySubscriptionHasItsCopy(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String topic = world.take("topic");
            world.topicSender(topic).sendMessages(List.of(keyed("one"), keyed("two")));
            for (String name : List.of("all", "rules")) {
                var receiver = world.subscription(topic, name);
                var messages = receive(receiver, 2);
                assertEquals(List.of("one", "two"), bodies(messages));
                messages.forEach(receiver::complete);
                assertTrue(isEmpty(receiver));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void declaredRulesChooseAndAct(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String topic = world.take("topic");
            var sender = world.topicSender(topic);
            for (String colour : List.of("blue", "red")) {
                ServiceBusMessage message = message(colour);
                message.getApplicationProperties().put("colour", colour);
                sender.sendMessage(message);
            }
            var receiver = world.subscription(topic, "red");
            var message = receiveOne(receiver);
            assertEquals("red", message.getBody().toString());
            assertEquals("yes", message.getApplicationProperties().get("painted"));
            receiver.complete(message);
            assertTrue(isEmpty(receiver));
        }
    }

    @ParameterizedTest
    @EnumSource(Flavour.class)
    void rulesAreMadeListedAndRemoved(Flavour flavour) throws Exception {
        try (World world = new World(flavour)) {
            String topic = world.take("topic");
            var rules = world.kept(
                world.builder.ruleManager().topicName(topic).subscriptionName("rules").buildClient());
            rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("size > 3"))
                .setAction(new SqlRuleAction("SET big = 1")));
            var correlation = new CorrelationRuleFilter().setLabel("l").setContentType("ct");
            correlation.getProperties().put("a", "b");
            rules.createRule("correlation", new CreateRuleOptions(correlation));
            Map<String, RuleProperties> listed = rules.listRules().stream()
                .collect(Collectors.toMap(RuleProperties::getName, Function.identity()));
            assertEquals(3, listed.size());
            assertInstanceOf(TrueRuleFilter.class, listed.get("$Default").getFilter());
            var sql = assertInstanceOf(SqlRuleFilter.class, listed.get("sql").getFilter());
            assertEquals("size > 3", sql.getSqlExpression());
            var action = assertInstanceOf(SqlRuleAction.class, listed.get("sql").getAction());
            assertEquals("SET big = 1", action.getSqlExpression());
            var found = assertInstanceOf(
                CorrelationRuleFilter.class, listed.get("correlation").getFilter());
            assertEquals("l", found.getLabel());
            assertEquals(Map.of("a", "b"), found.getProperties());
            for (String name : listed.keySet()) {
                rules.deleteRule(name);
            }
            assertEquals(0, rules.listRules().stream().count());
        }
    }
}
