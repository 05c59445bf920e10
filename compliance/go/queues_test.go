package compliance

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestAMessageComesAsItWasSent(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		at := time.UnixMilli(1_700_000_000_123).UTC()
		sent := &azservicebus.Message{
			Body: []byte{0, 1, 254, 255},
			ApplicationProperties: map[string]any{
				"text": "Grüße", "true": true, "long": int64(1) << 60, "int": int32(-7), "double": 2.5, "at": at,
			},
			ContentType:      to("application/octet-stream"),
			CorrelationID:    to("correlation"),
			MessageID:        to("id"),
			PartitionKey:     to("key"),
			ReplyTo:          to("answers"),
			ReplyToSessionID: to("session of answers"),
			Subject:          to("subject"),
			TimeToLive:       to(time.Hour),
			To:               to("somebody"),
		}
		w.send(name, sent)
		receiver := w.receiver(name)
		message := w.receiveOne(receiver)
		got := message.Message()
		got.ApplicationProperties["at"] = got.ApplicationProperties["at"].(time.Time).UTC()
		equal(w, got, sent)
		equal(w, message.DeliveryCount, 1) // The SDK counts this delivery, too.
		equal(w, message.State, azservicebus.MessageStateActive)
		equal(w, message.ExpiresAt.Sub(*message.EnqueuedTime), time.Hour)
		holds(w, *message.SequenceNumber > 0, "a message has a number")
		holds(w, message.LockedUntil.After(*message.EnqueuedTime), "a message is locked")
		w.complete(receiver, message)
		w.isEmpty(receiver)
	})
}

func TestBodiesOfEveryKind(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		sender, receiver := w.sender(name), w.receiver(name)
		for _, body := range []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("one"), []byte("two")}},
			{Value: "text"},
			{Value: int64(-5)},
			{Sequence: [][]any{{"one", int64(2)}, {true}}},
		} {
			sent := &azservicebus.AMQPAnnotatedMessage{
				Body:               body,
				MessageAnnotations: map[any]any{"x-opt-mine": "kept"},
				Footer:             map[any]any{"signed": "by me"},
			}
			w.check(sender.SendAMQPAnnotatedMessage(w.ctx, sent, nil))
			message := w.receiveOne(receiver)
			equal(w, message.RawAMQPMessage.Body, body)
			equal(w, message.RawAMQPMessage.MessageAnnotations["x-opt-mine"], "kept")
			equal(w, message.RawAMQPMessage.Footer, sent.Footer)
			w.complete(receiver, message)
		}
	})
}

func TestABatchIsSent(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		sender := w.sender(name)
		batch := must(sender.NewMessageBatch(w.ctx, nil))(w)
		var expected []string
		for number := range 100 {
			message := text(fmt.Sprintf("message %02d", number))
			expected = append(expected, string(message.Body))
			w.check(batch.AddMessage(message, nil))
		}
		w.check(sender.SendMessageBatch(w.ctx, batch, nil))
		receiver := w.receiver(name)
		messages := w.receive(receiver, 100)
		equal(w, sorted(bodies(messages)), expected)
		w.complete(receiver, messages...)
		w.isEmpty(receiver)
	})
}

func TestAFullBatchIsSent(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		sender := w.sender(name)
		batch := must(sender.NewMessageBatch(w.ctx, nil))(w)
		large := text(strings.Repeat("x", 20_000))
		for {
			err := batch.AddMessage(large, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			}
			w.check(err)
		}
		holds(w, batch.NumMessages() > 10, "a batch holds more than ten messages of 20 kB")
		w.check(sender.SendMessageBatch(w.ctx, batch, nil))
		receiver := w.receiver(name, azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		w.receive(receiver, int(batch.NumMessages()))
		w.isEmpty(receiver)
	})
}

func TestAMessageThatIsTooLargeIsRefused(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		sender := w.sender(name)
		huge := &azservicebus.Message{Body: bytes.Repeat([]byte("x"), 101<<20)}
		holds(w, errors.Is(sender.SendMessage(w.ctx, huge, nil), azservicebus.ErrMessageTooLarge), "101 MB are refused")
		w.check(sender.SendMessage(w.ctx, text("small"), nil))
		equal(w, bodies(w.receive(w.receiver(name), 1)), []string{"small"})
	})
}

func TestReceivingDeletes(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, texts("message", 3)...)
		receiver := w.receiver(name, azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		equal(w, sorted(bodies(w.receive(receiver, 3))), []string{"message 0", "message 1", "message 2"})
		w.isEmpty(receiver)
	})
}

func TestAnAbandonedMessageComesAgainAndThenDies(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, text("stubborn"))
		receiver := w.receiver(name)
		for count := uint32(1); count <= 3; count++ {
			message := w.receiveOne(receiver)
			equal(w, message.DeliveryCount, count)
			if count > 1 {
				equal(w, message.ApplicationProperties["tries"], any(int64(count-1)))
			}
			w.check(receiver.AbandonMessage(w.ctx, message, &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"tries": int64(count)},
			}))
		}
		dead := w.receiveOne(w.deadLetters(name))
		equal(w, *dead.DeadLetterReason, "MaxDeliveryCountExceeded")
		equal(w, dead.ApplicationProperties["tries"], any(int64(3)))
	})
}

func TestADeferredMessageIsReceivedByItsNumber(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, text("later"))
		receiver := w.receiver(name)
		message := w.receiveOne(receiver)
		w.check(receiver.DeferMessage(w.ctx, message, &azservicebus.DeferMessageOptions{
			PropertiesToModify: map[string]any{"why": "not now"},
		}))
		peeked := w.peekAll(receiver)
		equal(w, len(peeked), 1)
		equal(w, peeked[0].State, azservicebus.MessageStateDeferred)
		numbers := []int64{*message.SequenceNumber}
		deferred := must(receiver.ReceiveDeferredMessages(w.ctx, numbers, nil))(w)
		equal(w, bodies(deferred), []string{"later"})
		equal(w, deferred[0].ApplicationProperties["why"], any("not now"))
		w.complete(receiver, deferred...)
		w.isEmpty(receiver)
	})
}

func TestDeadLettersSayWhy(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, text("bad"))
		receiver := w.receiver(name)
		w.check(receiver.DeadLetterMessage(w.ctx, w.receiveOne(receiver), &azservicebus.DeadLetterOptions{
			Reason:             to("reason"),
			ErrorDescription:   to("description"),
			PropertiesToModify: map[string]any{"seen": true},
		}))
		w.isEmpty(receiver)
		deadLetters := w.deadLetters(name)
		dead := w.receiveOne(deadLetters)
		equal(w, *dead.DeadLetterReason, "reason")
		equal(w, *dead.DeadLetterErrorDescription, "description")
		equal(w, dead.ApplicationProperties["seen"], any(true))
		w.complete(deadLetters, dead)
		w.isEmpty(deadLetters)
	})
}

func TestPeekingLocksNothing(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		messages := texts("message", 5)
		for _, message := range messages {
			message.PartitionKey = to("one") // In one partition, so that they are in order.
		}
		w.send(name, messages...)
		receiver := w.receiver(name)
		peeked := w.peekAll(receiver)
		expected := []string{"message 0", "message 1", "message 2", "message 3", "message 4"}
		equal(w, bodies(peeked), expected)
		from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: peeked[3].SequenceNumber}
		equal(w, bodies(must(receiver.PeekMessages(w.ctx, 1, from))(w)), expected[3:4])
		equal(w, bodies(must(receiver.PeekMessages(w.ctx, 2, nil))(w)), expected[:2])
		equal(w, bodies(must(receiver.PeekMessages(w.ctx, 5, nil))(w)), expected[2:])
		received := w.receive(receiver, 5)
		equal(w, bodies(received), expected)
		equal(w, received[0].DeliveryCount, 1)
	})
}

func TestAMessageLockIsRenewed(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, text("long work"))
		receiver := w.receiver(name)
		message := w.receiveOne(receiver)
		before := *message.LockedUntil
		for !message.LockedUntil.After(before) { // The first may be in the millisecond of the lock.
			w.check(receiver.RenewMessageLock(w.ctx, message, nil))
		}
		w.complete(receiver, message)
	})
}

func TestALostLockIsTold(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("short")
		w.send(name, text("slow"))
		slow := w.receiver(name)
		message := w.receiveOne(slow)
		other := w.receiver(name)
		again := w.receiveOne(other) // Comes when the lock of five seconds has run out.
		equal(w, again.DeliveryCount, 2)
		refused(w, slow.CompleteMessage(w.ctx, message, nil), azservicebus.CodeLockLost)
		w.complete(other, again)
	})
}

func TestAMessageIsSettledByItsLockTokenAlone(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, text("handed over"))
		message := w.receiveOne(w.receiver(name))
		other := w.receiver(name)
		token := &azservicebus.ReceivedMessage{LockToken: message.LockToken}
		w.check(other.RenewMessageLock(w.ctx, token, nil))
		w.complete(other, token)
		w.isEmpty(other)
	})
}

func TestScheduledMessagesComeUnlessCancelled(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		sender, receiver := w.sender(name), w.receiver(name)
		tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond).UTC()
		numbers := must(sender.ScheduleMessages(w.ctx, texts("tomorrow", 2), tomorrow, nil))(w)
		equal(w, len(numbers), 2)
		soon := time.Now().Add(time.Second)
		must(sender.ScheduleMessages(w.ctx, texts("soon", 2), soon, nil))(w)
		w.check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte("soon 2"), ScheduledEnqueueTime: &soon}, nil))

		messages := w.receive(receiver, 3)
		equal(w, sorted(bodies(messages)), []string{"soon 0", "soon 1", "soon 2"})
		for _, message := range messages {
			holds(w, !message.EnqueuedTime.Before(soon.Truncate(time.Millisecond)), "a message is enqueued when it is due")
		}
		w.complete(receiver, messages...)

		peeked := w.peekAll(receiver)
		equal(w, sorted(bodies(peeked)), []string{"tomorrow 0", "tomorrow 1"})
		equal(w, peeked[0].State, azservicebus.MessageStateScheduled)
		equal(w, peeked[0].ScheduledEnqueueTime.UTC(), tomorrow)
		w.check(sender.CancelScheduledMessages(w.ctx, numbers, nil))
		w.isEmpty(receiver)
	})
}

func TestAMessageExpires(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("queue")
		w.send(name, &azservicebus.Message{Body: []byte("short-lived"), TimeToLive: to(time.Second)}, text("lasting"))
		dead := w.receiveOne(w.deadLetters(name))
		equal(w, string(dead.Body), "short-lived")
		equal(w, *dead.DeadLetterReason, "TTLExpiredException")
		equal(w, bodies(w.receive(w.receiver(name), 1)), []string{"lasting"})
	})
}

func TestADuplicateIsDropped(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("unique")
		for _, id := range []string{"a", "a", "b"} {
			w.send(name, &azservicebus.Message{Body: []byte(id), MessageID: to(id)})
		}
		equal(w, sorted(bodies(w.peekAll(w.receiver(name)))), []string{"a", "b"})
	})
}
