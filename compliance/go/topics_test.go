package compliance

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func coloured(body, colour string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), ApplicationProperties: map[string]any{"colour": colour}}
}

func TestEverySubscriptionThatMatchesGetsACopy(t *testing.T) {
	onBothFlavours(t, func(w world) {
		topic := w.take("topic")
		urgent := &azservicebus.Message{
			Body: []byte("now"), Subject: to("urgent"), ApplicationProperties: map[string]any{"level": "high"},
		}
		w.send(topic, coloured("rose", "red"), coloured("sky", "blue"), urgent)

		all := w.subscriber(topic, "all")
		messages := w.receive(all, 3)
		equal(w, sorted(bodies(messages)), []string{"now", "rose", "sky"})
		w.complete(all, messages...)
		w.isEmpty(all)

		red := w.subscriber(topic, "red")
		equal(w, bodies(w.peekAll(red)), []string{"rose"})
		equal(w, w.receiveOne(red).ApplicationProperties["painted"], any("yes"))
		equal(w, bodies(w.peekAll(w.subscriber(topic, "urgent"))), []string{"now"})
	})
}

func TestRulesAreMadeChangedAndDeleted(t *testing.T) {
	onBothFlavours(t, func(w world) {
		topic := w.take("topic")
		client := administer(w)
		rules := func() []admin.RuleProperties {
			var all []admin.RuleProperties
			pager := client.NewListRulesPager(topic, "rules", nil)
			for pager.More() {
				all = append(all, must(pager.NextPage(w.ctx))(w).Rules...)
			}
			return all
		}
		equal(w, rules(), []admin.RuleProperties{{Name: "$Default", Filter: &admin.TrueFilter{}}})
		must(client.DeleteRule(w.ctx, topic, "rules", "$Default", nil))(w)

		sql := admin.RuleProperties{
			Name:   "cheap",
			Filter: &admin.SQLFilter{Expression: "price < @most", Parameters: map[string]any{"@most": int64(10)}},
			Action: &admin.SQLAction{Expression: "SET cheap = TRUE; SET sys.Label = 'cheap'"},
		}
		correlation := admin.RuleProperties{
			Name: "fruit",
			Filter: &admin.CorrelationFilter{
				Subject: to("fruit"), ApplicationProperties: map[string]any{"ripe": true},
			},
		}
		for _, rule := range []admin.RuleProperties{sql, correlation} {
			made := must(client.CreateRule(w.ctx, topic, "rules", &admin.CreateRuleOptions{
				Name: &rule.Name, Filter: rule.Filter, Action: rule.Action,
			}))(w)
			equal(w, made.RuleProperties, rule)
		}
		equal(w, rules(), []admin.RuleProperties{sql, correlation})

		priced := func(body string, price int64) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), ApplicationProperties: map[string]any{"price": price}}
		}
		ripe := &azservicebus.Message{
			Body: []byte("pear"), Subject: to("fruit"), ApplicationProperties: map[string]any{"ripe": true},
		}
		w.send(topic, priced("pen", 2), priced("car", 20_000), ripe)
		receiver := w.subscriber(topic, "rules")
		for _, message := range w.receive(receiver, 2) {
			if string(message.Body) == "pen" {
				equal(w, message.ApplicationProperties["cheap"], any(true))
				equal(w, *message.Subject, "cheap")
			}
			w.complete(receiver, message)
		}
		w.isEmpty(receiver)

		correlation.Filter = &admin.FalseFilter{}
		must(client.UpdateRule(w.ctx, topic, "rules", correlation))(w)
		equal(w, must(client.GetRule(w.ctx, topic, "rules", "fruit", nil))(w).RuleProperties, correlation)
		must(client.DeleteRule(w.ctx, topic, "rules", "cheap", nil))(w)
		w.send(topic, priced("pencil", 1), ripe)
		w.isEmpty(receiver)
		equal(w, len(w.peekAll(w.subscriber(topic, "all"))), 5)
	})
}

func TestASubscriptionHasDeadLettersOfItsOwn(t *testing.T) {
	onBothFlavours(t, func(w world) {
		topic := w.take("topic")
		w.send(topic, text("bad"))
		receiver := w.subscriber(topic, "all")
		w.check(receiver.DeadLetterMessage(w.ctx, w.receiveOne(receiver), &azservicebus.DeadLetterOptions{Reason: to("bad")}))
		dead := azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
		equal(w, *w.receiveOne(w.subscriber(topic, "all", dead)).DeadLetterReason, "bad")
		w.isEmpty(w.subscriber(topic, "rules", dead))
	})
}

func TestSessionsOfASubscription(t *testing.T) {
	onBothFlavours(t, func(w world) {
		topic := w.take("topic")
		w.send(topic, append(ofSession("a", 2), ofSession("b", 2)...)...)
		pager := w.client.NewListSessionsForSubscriptionPager(topic, "sessions", nil)
		var ids []string
		for pager.More() {
			ids = append(ids, must(pager.NextPage(w.ctx))(w).Sessions...)
		}
		equal(w, sorted(ids), []string{"a", "b"})
		receiver := must(w.client.AcceptSessionForSubscription(w.ctx, topic, "sessions", "b", nil))(w)
		messages := w.receive(receiver, 2)
		equal(w, bodies(messages), []string{"b 0", "b 1"})
		w.complete(receiver, messages...)
		next := must(w.client.AcceptNextSessionForSubscription(w.ctx, topic, "sessions", nil))(w)
		equal(w, next.SessionID(), "a")
	})
}
