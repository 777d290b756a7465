package mq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/test/natscluster"
)

// remote runs n servers, which the test's options may change.
func remote(t *testing.T, n int, configure func(*natsserver.Options)) *natscluster.Cluster {
	t.Helper()
	c, err := natscluster.Start(t.TempDir(), n, configure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func withUser(url, user string) string { return strings.Replace(url, "nats://", "nats://"+user+"@", 1) }

func TestSEC01_NoPasswordInLogsAndErrors(t *testing.T) {
	const secret = "s3cret"
	c := remote(t, 1, func(o *natsserver.Options) { o.Username, o.Password = "u", secret })
	for name, url := range map[string]string{
		"wrong":    withUser(c.URL(), "u:not-"+secret),
		"no url":   "nats://u:" + secret + "@ho st:4222",
		"nobody":   "nats://u:" + secret + "@127.0.0.1:1",
		"one of 2": "nats://u:" + secret + "@127.0.0.1:1,nats://u:" + secret + "@::1::",
	} {
		_, err := mq.Open(t.Context(), mq.Options{URL: url})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	log := &logs{}
	q := open(t, mq.Options{URL: withUser(c.URL(), "u:"+secret), Logger: log.logger()})
	c.Stop(0)
	until(t, "the connection's end", func() bool { return !q.NatsConn().IsConnected() })
	if err := q.Ping(t.Context()); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("ping: %v", err)
	}
	if err := c.Restart(0); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection", q.NatsConn().IsConnected)
	if err := q.Publish(deadline(t), "ingest.a", nil); err != nil {
		t.Error(err)
	}
	until(t, "the log", func() bool { return strings.Contains(log.String(), "connected again") })
	if strings.Contains(log.String(), secret) {
		t.Errorf("the password is in:\n%s", log)
	}
}

func TestSEC06_AMissingRightIsNamed(t *testing.T) {
	c := remote(t, 1, func(o *natsserver.Options) {
		o.Users = []*natsserver.User{
			{Username: "most", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Deny: []string{"dlq.>"}},
			}},
			{Username: "none", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Allow: []string{"ingest.>"}},
			}},
		}
	})
	_, err := mq.Open(t.Context(), mq.Options{URL: withUser(c.URL(), "none:p"), Bare: true})
	if err == nil || !strings.Contains(err.Error(), `permissions violation for publish to "$JS.API.INFO"`) {
		t.Errorf("no API: %v", err)
	}
	log := &logs{}
	q := open(t, mq.Options{URL: withUser(c.URL(), "most:p"), Logger: log.logger()})
	for range 3 {
		if err := q.NatsConn().Publish("dlq.x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.NatsConn().Flush(); err != nil {
		t.Fatal(err)
	}
	until(t, "the violation", func() bool { return strings.Contains(log.String(), "ermissions Violation for Publish to") })
	if n := strings.Count(log.String(), "dlq.x"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	r, err := q.Rights(t.Context())
	if err != nil || r == nil {
		t.Fatalf("rights %v: %v", r, err)
	}
	if r.User != "most" || r.MayPublish("dlq.x") || r.MayPublish("dlq.>") || !r.MayPublish("x") || !r.MayPublish(">") || !r.MaySubscribe("dlq.>") {
		t.Errorf("rights %+v", r)
	}
}

func TestReplicas(t *testing.T) {
	one := remote(t, 1, nil)
	_, err := mq.Open(t.Context(), mq.Options{URL: one.URL(), Replicas: 3})
	if err == nil || !strings.Contains(err.Error(), "the server is no cluster, so it keeps 1 replica and not 3 (nats.replicas)") {
		t.Errorf("one server: %v", err)
	}
	three := remote(t, 3, nil)
	q := open(t, mq.Options{URL: three.URL(), Replicas: 3})
	st, err := q.JetStream().Stream(deadline(t), mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().Config.Replicas; n != 3 {
		t.Errorf("%d replicas", n)
	}
	_, err = mq.EnsureStream(deadline(t), q.JetStream(), mq.StreamSpec{Name: "X", Subjects: []string{"x"}, Replicas: 5})
	if err == nil || !strings.Contains(err.Error(), "5 replicas need as many servers") {
		t.Errorf("too many: %v", err)
	}
}

func TestNKeyAndTLS(t *testing.T) {
	dir := t.TempDir()
	ca, cert, key := certificates(t, dir)
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	nk := filepath.Join(dir, "user.nk")
	if err := os.WriteFile(nk, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := natsserver.GenTLSConfig(&natsserver.TLSConfigOpts{CertFile: cert, KeyFile: key, CaFile: ca, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	c := remote(t, 1, func(o *natsserver.Options) {
		o.TLSConfig, o.TLS = conf, true
		o.Nkeys = []*natsserver.NkeyUser{{Nkey: public}}
	})
	for name, tt := range map[string]struct {
		o    mq.Options
		want string // "" = it works
	}{
		"all":     {mq.Options{CA: ca, Cert: cert, Key: key, NKey: nk}, ""},
		"no cert": {mq.Options{CA: ca, NKey: nk}, "tls"},
		"no ca":   {mq.Options{Cert: cert, Key: key, NKey: nk}, "certificate signed by unknown authority"},
		"no nkey": {mq.Options{CA: ca, Cert: cert, Key: key}, "uthorization"},
		"no file": {mq.Options{CA: ca, Cert: cert, Key: key, NKey: nk + "x"}, "user.nkx"},
		"no pem":  {mq.Options{CA: nk, NKey: nk}, "user.nk"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.URL, tt.o.Bare = c.URL(), true
			q, err := mq.Open(t.Context(), tt.o)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
				nc, err := mq.Dial(deadline(t), tt.o)
				if err != nil {
					t.Fatal(err)
				}
				nc.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q in it", err, tt.want)
			}
		})
	}
}

// certificates makes an authority and one certificate of it, for both sides.
func certificates(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	make := func(name string, tmpl, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, string) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = k
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &k.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name+".pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return k, path
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	signer, ca := make("ca", authority, authority, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	k, cert := make("node", leaf, authority, signer)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	key = filepath.Join(dir, "node.key")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return ca, cert, key
}
