// Package compliance drives Busway with the Azure SDK for Go.
//
// This file has what the tests share: the two flavours of entities, a client for each test, entities
// from the pools of compliance/entities.py, and ways to receive that end when what was asked for is
// there.
package compliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A test takes far less; one that takes this long hangs.
const testLimit = 60 * time.Second

var (
	plain = os.Getenv("BUSWAY_CONNECTION_STRING")
	// Go trusts the server by SSL_CERT_FILE.
	inTLS = os.Getenv("BUSWAY_TLS_CONNECTION_STRING")

	noRetries = azservicebus.RetryOptions{MaxRetries: -1}
)

func TestMain(m *testing.M) {
	if plain == "" || inTLS == "" {
		fmt.Println("BUSWAY_CONNECTION_STRING and BUSWAY_TLS_CONNECTION_STRING are needed: see compliance/README.md")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A world is what one test has on one flavour of entities.
type world struct {
	*testing.T
	ctx         context.Context
	client      *azservicebus.Client
	partitioned bool
}

// onBothFlavours runs a test on conventional and on partitioned entities, beside other tests.
func onBothFlavours(t *testing.T, test func(w world)) {
	onBothFlavoursBy(t, plain, nil, test)
}

func onBothFlavoursBy(t *testing.T, connectionString string, options *azservicebus.ClientOptions, test func(w world)) {
	t.Parallel()
	if options == nil {
		options = &azservicebus.ClientOptions{RetryOptions: noRetries}
	}
	for _, flavour := range []string{"conventional", "partitioned"} {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), testLimit)
			t.Cleanup(cancel)
			w := world{T: t, ctx: ctx, partitioned: flavour == "partitioned"}
			w.client = must(azservicebus.NewClientFromConnectionString(connectionString, options))(t)
			t.Cleanup(func() { _ = w.client.Close(ctx) })
			test(w)
		})
	}
}

var (
	takenLock sync.Mutex
	taken     = map[string]int{}
)

// take gives the test an entity of a kind of its own.
func (w world) take(kind string) string {
	if w.partitioned {
		kind += "-partitioned"
	}
	takenLock.Lock()
	defer takenLock.Unlock()
	taken[kind]++
	return fmt.Sprintf("%s-%d", kind, taken[kind])
}

// --- Sending and receiving -------------------------------------------------------------------------

// A receiver is what receivers of queues, of subscriptions and of sessions have in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
}

func (w world) sender(name string) *azservicebus.Sender {
	w.Helper()
	return must(w.client.NewSender(name, nil))(w)
}

func (w world) receiver(name string, options ...azservicebus.ReceiverOptions) *azservicebus.Receiver {
	w.Helper()
	return must(w.client.NewReceiverForQueue(name, first(options)))(w)
}

func (w world) deadLetters(name string) *azservicebus.Receiver {
	w.Helper()
	return w.receiver(name, azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (w world) subscriber(topic, subscription string, options ...azservicebus.ReceiverOptions) *azservicebus.Receiver {
	w.Helper()
	return must(w.client.NewReceiverForSubscription(topic, subscription, first(options)))(w)
}

func (w world) accept(name, id string) *azservicebus.SessionReceiver {
	w.Helper()
	return must(w.client.AcceptSessionForQueue(w.ctx, name, id, nil))(w)
}

func (w world) send(name string, messages ...*azservicebus.Message) {
	w.Helper()
	sender := w.sender(name)
	for _, message := range messages {
		w.check(sender.SendMessage(w.ctx, message, nil))
	}
	w.check(sender.Close(w.ctx))
}

// receive waits for so many messages; one call may bring fewer than there are.
func (w world) receive(from receiver, count int) []*azservicebus.ReceivedMessage {
	w.Helper()
	var messages []*azservicebus.ReceivedMessage
	for len(messages) < count {
		some, err := from.ReceiveMessages(w.ctx, count-len(messages), nil)
		if err != nil {
			w.Fatalf("%d of %d messages came: %v", len(messages), count, err)
		}
		messages = append(messages, some...)
	}
	return messages
}

func (w world) receiveOne(from receiver) *azservicebus.ReceivedMessage {
	w.Helper()
	return w.receive(from, 1)[0]
}

func (w world) complete(from receiver, messages ...*azservicebus.ReceivedMessage) {
	w.Helper()
	for _, message := range messages {
		w.check(from.CompleteMessage(w.ctx, message, nil))
	}
}

// peekAll peeks from the beginning until there is no more. A peek from a number does not move the place
// that the SDK remembers, so each says from where.
func (w world) peekAll(at receiver) []*azservicebus.ReceivedMessage {
	w.Helper()
	var messages []*azservicebus.ReceivedMessage
	from := int64(0)
	for {
		some := must(at.PeekMessages(w.ctx, 100, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from}))(w)
		if len(some) == 0 {
			return messages
		}
		messages = append(messages, some...)
		from = *some[len(some)-1].SequenceNumber + 1
	}
}

// isEmpty is about locked, deferred and scheduled messages, too: peeking shows them all.
func (w world) isEmpty(at receiver) {
	w.Helper()
	equal(w, bodies(w.peekAll(at)), nil)
}

func text(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func texts(prefix string, count int) []*azservicebus.Message {
	var messages []*azservicebus.Message
	for number := range count {
		messages = append(messages, text(fmt.Sprintf("%s %d", prefix, number)))
	}
	return messages
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	var all []string
	for _, message := range messages {
		all = append(all, string(message.Body))
	}
	return all
}

// sorted is for messages without a key, whose order a partitioned entity does not keep.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}

// --- Saying what is expected -----------------------------------------------------------------------

func to[T any](value T) *T { return &value }

func first[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// must takes the result of a call that is not expected to fail.
func must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (w world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func equal[T any](t testing.TB, got, expected T) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("got %#v, expected %#v", got, expected)
	}
}

func holds(t testing.TB, condition bool, sentence string) {
	t.Helper()
	if !condition {
		t.Fatalf("it does not hold that %s", sentence)
	}
}

func refused(t testing.TB, err error, code azservicebus.Code) {
	t.Helper()
	var failure *azservicebus.Error
	if !errors.As(err, &failure) || failure.Code != code {
		t.Fatalf("got %v, expected an error with code %s", err, code)
	}
}
