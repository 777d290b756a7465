package mq_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/mqrun/mqrun/mq"
)

// identity is a key pair with its public half.
type identity struct {
	nkeys.KeyPair
	public string
}

func newIdentity(t *testing.T, create func() (nkeys.KeyPair, error)) identity {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return identity{pair, public}
}

// operated is a server in operator mode: it knows an operator, and accounts by
// what that has signed. credentials signs a user of the account and writes the
// file that says who that is.
func operated(t *testing.T) (url string, credentials func(*jwt.UserClaims) string) {
	t.Helper()
	must := func(token string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	operator := newIdentity(t, nkeys.CreateOperator)
	system, account := newIdentity(t, nkeys.CreateAccount), newIdentity(t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(account.public)
	claims.Name = "orders"
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: 64 << 20, DiskStorage: 1 << 30, Streams: -1, Consumer: -1}
	accounts := &natsserver.MemAccResolver{}
	for public, token := range map[string]string{
		system.public:  must(jwt.NewAccountClaims(system.public).Encode(operator)),
		account.public: must(claims.Encode(operator)),
	} {
		if err := accounts.Store(public, token); err != nil {
			t.Fatal(err)
		}
	}
	oc := jwt.NewOperatorClaims(operator.public)
	oc.SystemAccount = system.public
	trusted, err := jwt.DecodeOperatorClaims(must(oc.Encode(operator)))
	if err != nil {
		t.Fatal(err)
	}
	c := remote(t, 1, func(o *natsserver.Options) {
		o.TrustedOperators, o.SystemAccount, o.AccountResolver = []*jwt.OperatorClaims{trusted}, system.public, accounts
	})
	return c.URL(), func(u *jwt.UserClaims) string {
		user := newIdentity(t, nkeys.CreateUser)
		u.Subject = user.public
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.FormatUserConfig(must(u.Encode(account)), seed)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "user.creds")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// TestCredentials: a credentials file is who we are to a server in operator
// mode, with the rights that its account has given.
func TestCredentials(t *testing.T) {
	url, credentials := operated(t)
	whole := jwt.NewUserClaims("x")
	whole.Name = "mqrun"
	q := open(t, mq.Options{URL: url, Creds: credentials(whole)})
	if err := q.Publish(deadline(t), "ingest.a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		err := m.DoubleAck(m.Ctx)
		got <- string(m.Data)
		return err
	})
	if d := await(t, got, "message"); d != "x" {
		t.Errorf("got %q", d)
	}

	narrow := jwt.NewUserClaims("x")
	narrow.Pub.Deny.Add("dlq.>")
	r, err := open(t, mq.Options{URL: url, Creds: credentials(narrow), Bare: true}).Rights(deadline(t))
	if err != nil || r == nil || r.MayPublish("dlq.x") || !r.MayPublish("ingest.a") {
		t.Errorf("rights %+v: %v", r, err)
	}
	expired := jwt.NewUserClaims("x")
	expired.Expires = 1
	for name, tt := range map[string]struct{ creds, want string }{
		"nobody":       {"", "uthorization"},
		"out of date":  {credentials(expired), "uthorization"},
		"no such file": {filepath.Join(t.TempDir(), "none.creds"), "no such file"},
	} {
		_, err := mq.Open(deadline(t), mq.Options{URL: url, Creds: tt.creds, Bare: true})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}
