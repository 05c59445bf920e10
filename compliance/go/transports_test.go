// The ways to the one port: plain TCP is what the other tests use; here are TLS and WebSocket, and what
// is said to who may not come in or looks for what is not there.

package compliance

import (
	"context"
	"crypto/tls"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

func conversation(w world) {
	name, session := w.take("queue"), w.take("session")
	large := strings.Repeat("x", 200_000)
	w.send(name, text("small"), text(large))
	receiver := w.receiver(name)
	messages := w.receive(receiver, 2)
	equal(w, sorted(bodies(messages)), []string{"small", large})
	w.complete(receiver, messages...)
	w.isEmpty(receiver)

	w.send(session, ofSession("s", 1)...)
	accepted := must(w.client.AcceptNextSessionForQueue(w.ctx, session, nil))(w)
	w.complete(accepted, w.receiveOne(accepted))
	w.check(accepted.SetSessionState(w.ctx, []byte("seen"), nil))
	equal(w, string(must(accepted.GetSessionState(w.ctx, nil))(w)), "seen")
}

// The SDK takes host and port for the name in the certificate, unless it is told the name ...
func TestAMQPInTLS(t *testing.T) {
	onBothFlavoursBy(t, inTLS, &azservicebus.ClientOptions{
		RetryOptions: noRetries,
		TLSConfig:    &tls.Config{ServerName: "localhost"},
	}, conversation)
}

// ... or has the port apart from the name.
func TestAMQPInTLSToACustomEndpoint(t *testing.T) {
	address := regexp.MustCompile(`localhost:\d+`).FindString(inTLS)
	withoutPort := strings.Replace(inTLS, address, "localhost", 1)
	onBothFlavoursBy(t, withoutPort, &azservicebus.ClientOptions{
		RetryOptions:   noRetries,
		CustomEndpoint: address,
	}, conversation)
}

func byWebSocket() *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		RetryOptions: noRetries,
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			options := &websocket.DialOptions{Subprotocols: []string{"amqp"}}
			connection, _, err := websocket.Dial(ctx, args.Host, options)
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
		},
	}
}

func TestAMQPOverWebSocket(t *testing.T) {
	onBothFlavoursBy(t, inTLS, byWebSocket(), conversation)
}

// In TLS as well: the SDK asks for wss:// whatever the connection string says.
func TestAMQPOverWebSocketWithUseDevelopmentEmulator(t *testing.T) {
	onBothFlavoursBy(t, plain, byWebSocket(), conversation)
}

func TestAMissingQueueIsNotFound(t *testing.T) {
	onBothFlavours(t, func(w world) {
		err := w.sender("missing").SendMessage(w.ctx, text("lost"), nil)
		refused(w, err, azservicebus.CodeNotFound)
		_, err = w.receiver("missing").ReceiveMessages(w.ctx, 1, nil)
		refused(w, err, azservicebus.CodeNotFound)
	})
}

func TestAWrongKeyIsUnauthorized(t *testing.T) {
	wrong := regexp.MustCompile(`SharedAccessKey=[^;]*`).ReplaceAllString(plain, "SharedAccessKey=wrong")
	onBothFlavoursBy(t, wrong, nil, func(w world) {
		err := w.sender(w.take("queue")).SendMessage(w.ctx, text("lost"), nil)
		refused(w, err, azservicebus.CodeUnauthorizedAccess)
	})
}
