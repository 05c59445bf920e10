package compliance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func ofSession(id string, count int) []*azservicebus.Message {
	messages := texts(id, count)
	for _, message := range messages {
		message.SessionID = &id
	}
	return messages
}

func TestASessionIsAcceptedByItsID(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		w.send(name, append(ofSession("a", 2), ofSession("b", 2)...)...)
		receiver := w.accept(name, "b")
		equal(w, receiver.SessionID(), "b")
		equal(w, bodies(w.peekAll(receiver)), []string{"b 0", "b 1"})
		messages := w.receive(receiver, 2)
		equal(w, bodies(messages), []string{"b 0", "b 1"})
		equal(w, *messages[0].SessionID, "b")
		w.complete(receiver, messages...)
		w.isEmpty(receiver)
	})
}

func TestTheNextSessionIsOneWithMessages(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			w.send(name, ofSession(id, 1)...)
		}
		var accepted []string
		for range ids {
			receiver := must(w.client.AcceptNextSessionForQueue(w.ctx, name, nil))(w)
			accepted = append(accepted, receiver.SessionID())
			w.complete(receiver, w.receiveOne(receiver))
		}
		equal(w, sorted(accepted), ids)
	})
}

func TestWhoWaitsIsGivenANewSession(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		type result struct {
			receiver *azservicebus.SessionReceiver
			err      error
		}
		results := make(chan result)
		go func() {
			receiver, err := w.client.AcceptNextSessionForQueue(w.ctx, name, nil)
			results <- result{receiver, err}
		}()
		w.send(name, ofSession("new", 1)...)
		accepted := <-results
		w.check(accepted.err)
		equal(w, bodies(w.receive(accepted.receiver, 1)), []string{"new 0"})
	})
}

func TestWithoutASessionTheWaitEnds(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := w.client.AcceptNextSessionForQueue(ctx, name, nil)
		// The SDK asks the broker to answer at most 10 ms before its own deadline: either may be first.
		if !errors.Is(err, context.DeadlineExceeded) {
			refused(w, err, azservicebus.CodeTimeout)
		}
		// Nobody waits any more who would be given this session.
		w.send(name, ofSession("s", 1)...)
		receiver := must(w.client.AcceptNextSessionForQueue(w.ctx, name, nil))(w)
		equal(w, bodies(w.receive(receiver, 1)), []string{"s 0"})
	})
}

func TestALockedSessionIsRefusedToOthers(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		holder := w.accept(name, "s")
		other := must(azservicebus.NewClientFromConnectionString(plain, &azservicebus.ClientOptions{RetryOptions: noRetries}))(w)
		_, err := other.AcceptSessionForQueue(w.ctx, name, "s", nil)
		holds(w, err != nil, "a locked session is refused")
		w.check(holder.Close(w.ctx))
		accepted := must(other.AcceptSessionForQueue(w.ctx, name, "s", nil))(w)
		equal(w, accepted.SessionID(), "s")
		w.check(other.Close(w.ctx))
	})
}

func TestStateIsKeptWithTheSession(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		receiver := w.accept(name, "s")
		equal(w, must(receiver.GetSessionState(w.ctx, nil))(w), nil)
		state := []byte{0, 1, 255}
		w.check(receiver.SetSessionState(w.ctx, state, nil))
		w.check(receiver.Close(w.ctx))
		receiver = w.accept(name, "s")
		equal(w, must(receiver.GetSessionState(w.ctx, nil))(w), state)
		w.check(receiver.SetSessionState(w.ctx, nil, nil))
		equal(w, len(must(receiver.GetSessionState(w.ctx, nil))(w)), 0) // The SDK sends no bytes instead of null.
	})
}

func TestASessionLockIsRenewed(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		w.send(name, ofSession("s", 1)...)
		receiver := w.accept(name, "s")
		before := receiver.LockedUntil()
		holds(w, before.After(time.Now()), "a session is locked")
		for !receiver.LockedUntil().After(before) { // The first may be in the millisecond of the lock.
			w.check(receiver.RenewSessionLock(w.ctx, nil))
		}
		w.complete(receiver, w.receiveOne(receiver))
	})
}

func TestOrderSurvivesAbandonAndANewReceiver(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		w.send(name, ofSession("s", 4)...)
		receiver := w.accept(name, "s")
		w.check(receiver.AbandonMessage(w.ctx, w.receiveOne(receiver), nil))
		again := w.receiveOne(receiver)
		equal(w, again.DeliveryCount, 2)
		equal(w, string(again.Body), "s 0")
		w.complete(receiver, again)
		w.receive(receiver, 2) // Not settled: closing gives them back.
		w.check(receiver.Close(w.ctx))
		receiver = w.accept(name, "s")
		messages := w.receive(receiver, 3)
		equal(w, bodies(messages), []string{"s 1", "s 2", "s 3"})
		w.complete(receiver, messages...)
	})
}

func TestDeferredAndDeadInASession(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		w.send(name, ofSession("s", 2)...)
		receiver := w.accept(name, "s")
		messages := w.receive(receiver, 2)
		w.check(receiver.DeferMessage(w.ctx, messages[0], nil))
		w.check(receiver.DeadLetterMessage(w.ctx, messages[1], &azservicebus.DeadLetterOptions{Reason: to("bad")}))
		deferred := must(receiver.ReceiveDeferredMessages(w.ctx, []int64{*messages[0].SequenceNumber}, nil))(w)
		equal(w, bodies(deferred), []string{"s 0"})
		w.complete(receiver, deferred...)
		dead := w.receiveOne(w.deadLetters(name))
		equal(w, string(dead.Body), "s 1")
		equal(w, *dead.SessionID, "s")
	})
}

func TestSessionsAreReceivedAndDeleted(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		w.send(name, ofSession("s", 3)...)
		receiver := must(w.client.AcceptSessionForQueue(w.ctx, name, "s", &azservicebus.SessionReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		}))(w)
		equal(w, bodies(w.receive(receiver, 3)), []string{"s 0", "s 1", "s 2"})
		w.isEmpty(receiver)
	})
}

func TestSessionsAreListed(t *testing.T) {
	onBothFlavours(t, func(w world) {
		name := w.take("session")
		list := func(options *azservicebus.ListSessionsOptions) []string {
			var ids []string
			pager := w.client.NewListSessionsForQueuePager(name, options)
			for pager.More() {
				ids = append(ids, must(pager.NextPage(w.ctx))(w).Sessions...)
			}
			return sorted(ids)
		}
		equal(w, list(nil), nil)
		var expected []string
		sender := w.sender(name)
		for number := range 120 { // More than a page of a hundred.
			id := fmt.Sprintf("session-%03d", number)
			expected = append(expected, id)
			w.check(sender.SendMessage(w.ctx, ofSession(id, 1)[0], nil))
		}
		started := time.Now().Add(-time.Minute)
		receiver := w.accept(name, "state only")
		w.check(receiver.SetSessionState(w.ctx, []byte("kept"), nil))
		equal(w, list(nil), slices.Concat(expected, []string{"state only"}))
		equal(w, list(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &started}), []string{"state only"})
	})
}
