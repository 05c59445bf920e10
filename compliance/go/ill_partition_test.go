package compliance

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// One partition that is unavailable, seen by a sender that has other keys to send, too (N-14, P-41). The
// broker is another one than that of the other tests, and has a switch: see ../partly_ill.py. Tests here
// do not run beside others, because there is one switch.

var (
	illKey      = os.Getenv("BUSWAY_ILL_KEY")
	healthyKeys = strings.Split(os.Getenv("BUSWAY_HEALTHY_KEYS"), ",")
)

func turn(t *testing.T, mode string) {
	t.Helper()
	reply := must(http.Get(os.Getenv("BUSWAY_ILL_SWITCH") + "/" + mode))(t)
	equal(t, reply.StatusCode, http.StatusNoContent)
	_ = reply.Body.Close()
}

func besideAnIllPartition(t *testing.T, retries azservicebus.RetryOptions, test func(ctx context.Context, sender *azservicebus.Sender)) {
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	defer cancel()
	options := &azservicebus.ClientOptions{RetryOptions: retries}
	client := must(azservicebus.NewClientFromConnectionString(os.Getenv("BUSWAY_ILL_CONNECTION_STRING"), options))(t)
	defer func() { _ = client.Close(ctx) }()
	sender := must(client.NewSender("partly-ill", nil))(t)
	turn(t, "gone")
	defer turn(t, "none")
	test(ctx, sender)
}

func keyed(key string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte("x"), PartitionKey: &key}
}

func TestARefusalOfOnePartitionKeepsNoOtherSendBack(t *testing.T) {
	besideAnIllPartition(t, noRetries, func(ctx context.Context, sender *azservicebus.Sender) {
		for _, key := range healthyKeys {
			err := sender.SendMessage(ctx, keyed(illKey), nil)
			holds(t, err != nil && strings.Contains(err.Error(), "is temporarily unavailable"), "the key is refused")
			if err := sender.SendMessage(ctx, keyed(key), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestASendThatIsTriedAgainIsTakenWhenThePartitionIsBack(t *testing.T) {
	pause := 250 * time.Millisecond
	patient := azservicebus.RetryOptions{MaxRetries: 200, RetryDelay: pause, MaxRetryDelay: pause}
	besideAnIllPartition(t, patient, func(ctx context.Context, sender *azservicebus.Sender) {
		waiting := make(chan error, 1)
		go func() { waiting <- sender.SendMessage(ctx, keyed(illKey), nil) }()
		for _, key := range healthyKeys {
			if err := sender.SendMessage(ctx, keyed(key), nil); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-waiting:
			t.Fatalf("the send to the partition that is gone is done: %v", err)
		default:
		}
		turn(t, "none")
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
	})
}
