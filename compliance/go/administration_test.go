// The administration client: HTTP in TLS, whatever the connection string says of an emulator.

package compliance

import (
	"errors"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func administer(t testing.TB) *admin.Client {
	t.Helper()
	options := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
	return must(admin.NewClientFromConnectionString(plain, options))(t)
}

// fresh is a name that no other test has.
func (w world) fresh(kind string) string { return w.take("made-in-go-" + kind) }

func status(t testing.TB, err error, expected int) {
	t.Helper()
	var failure *azcore.ResponseError
	if !errors.As(err, &failure) || failure.StatusCode != expected {
		t.Fatalf("got %v, expected status %d", err, expected)
	}
}

func TestAQueueIsMadeChangedListedAndDeleted(t *testing.T) {
	onBothFlavours(t, func(w world) {
		client, name := administer(w), w.fresh("queue")
		holds(w, must(client.GetQueue(w.ctx, name, nil))(w) == nil, "the queue is not there")
		properties := &admin.QueueProperties{
			EnablePartitioning: &w.partitioned,
			LockDuration:       to("PT30S"),
			MaxDeliveryCount:   to(int32(4)),
			RequiresSession:    to(true),
			UserMetadata:       to("<mine> & yours"),
		}
		made := must(client.CreateQueue(w.ctx, name, &admin.CreateQueueOptions{Properties: properties}))(w)
		equal(w, made.QueueName, name)
		equal(w, *made.EnablePartitioning, w.partitioned)
		_, err := client.CreateQueue(w.ctx, name, nil)
		status(w, err, 409)

		got := must(client.GetQueue(w.ctx, name, nil))(w)
		equal(w, *got.LockDuration, "PT30S")
		equal(w, *got.MaxDeliveryCount, 4)
		equal(w, *got.RequiresSession, true)
		equal(w, *got.UserMetadata, "<mine> & yours")
		equal(w, *got.Status, admin.EntityStatusActive)
		changed := got.QueueProperties
		changed.MaxDeliveryCount = to(int32(7))
		equal(w, *must(client.UpdateQueue(w.ctx, name, changed, nil))(w).MaxDeliveryCount, 7)
		changed.LockDuration = to("PT6M")
		_, err = client.UpdateQueue(w.ctx, name, changed, nil)
		status(w, err, 400)

		found := 0
		pager := client.NewListQueuesPager(nil) // There are more queues than a page of a hundred holds.
		for pager.More() {
			for _, queue := range must(pager.NextPage(w.ctx))(w).Queues {
				if queue.QueueName == name {
					found++
					equal(w, *queue.MaxDeliveryCount, 7)
				}
			}
		}
		equal(w, found, 1)
		must(client.DeleteQueue(w.ctx, name, nil))(w)
		holds(w, must(client.GetQueue(w.ctx, name, nil))(w) == nil, "the queue is gone")
		_, err = client.DeleteQueue(w.ctx, name, nil)
		status(w, err, 404)
	})
}

func TestMessagesAreCounted(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, texts("message", 3)...)
		receiver := w.receiver(name)
		w.check(receiver.DeadLetterMessage(w.ctx, w.receiveOne(receiver), nil))
		told := must(administer(w).GetQueueRuntimeProperties(w.ctx, name, nil))(w)
		equal(w, told.TotalMessageCount, 3)
		equal(w, told.ActiveMessageCount, 2)
		equal(w, told.DeadLetterMessageCount, 1)
		holds(w, told.SizeInBytes > 0, "messages have a size")
	})
}

func TestATopicIsMadeWithSubscriptions(t *testing.T) {
	onBothFlavours(t, func(w world) {
		client, name := administer(w), w.fresh("topic")
		must(client.CreateTopic(w.ctx, name, &admin.CreateTopicOptions{
			Properties: &admin.TopicProperties{EnablePartitioning: &w.partitioned},
		}))(w)
		must(client.CreateSubscription(w.ctx, name, "red", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{
				LockDuration: to("PT45S"),
				DefaultRule: &admin.RuleProperties{
					Name: "red", Filter: &admin.SQLFilter{Expression: "colour = 'red'"},
				},
			},
		}))(w)
		must(client.CreateSubscription(w.ctx, name, "urgent", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{
				DefaultRule: &admin.RuleProperties{
					Name: "urgent", Filter: &admin.CorrelationFilter{Subject: to("urgent")},
				},
			},
		}))(w)
		equal(w, *must(client.GetSubscription(w.ctx, name, "red", nil))(w).LockDuration, "PT45S")
		w.send(name, coloured("rose", "red"), coloured("sky", "blue"))
		equal(w, bodies(w.receive(w.subscriber(name, "red"), 1)), []string{"rose"})
		equal(w, must(client.GetSubscriptionRuntimeProperties(w.ctx, name, "red", nil))(w).ActiveMessageCount, 1)
		told := must(client.GetTopicRuntimeProperties(w.ctx, name, nil))(w)
		equal(w, told.SubscriptionCount, 2)
		equal(w, told.SQLFilterCount, 1)
		equal(w, told.CorrelationFilterCount, 1)

		var names []string
		pager := client.NewListSubscriptionsPager(name, nil)
		for pager.More() {
			for _, subscription := range must(pager.NextPage(w.ctx))(w).Subscriptions {
				names = append(names, subscription.SubscriptionName)
			}
		}
		equal(w, names, []string{"red", "urgent"})
		must(client.DeleteSubscription(w.ctx, name, "red", nil))(w)
		holds(w, must(client.GetSubscription(w.ctx, name, "red", nil))(w) == nil, "the subscription is gone")
		must(client.DeleteTopic(w.ctx, name, nil))(w)
		holds(w, must(client.GetTopic(w.ctx, name, nil))(w) == nil, "the topic is gone")
	})
}

func TestTheNamespaceIsDescribed(t *testing.T) {
	t.Parallel()
	told := must(administer(t).GetNamespaceProperties(t.Context(), nil))(t)
	holds(t, told.Name != "" && told.SKU != "", "the namespace has a name and a tier")
}
