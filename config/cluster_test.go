package config_test

import (
	"slices"
	"testing"

	"github.com/mqrun/mqrun/config"
)

func TestCluster(t *testing.T) {
	golden(t, "cluster")
	for _, tt := range []struct {
		cluster string
		nodes   int
		routes  []string
	}{
		{`{ name: c, listen: "10.0.0.1:6222", routes: ["10.0.0.3:6222", "nats://10.0.0.2:6222"] }`, 3, []string{"10.0.0.2:6222", "10.0.0.3:6222", "10.0.0.1:6222"}},
		{`{ name: c, listen: "10.0.0.1:6222", routes: ["10.0.0.1:6222", "10.0.0.2:6222", "10.0.0.3:6222"] }`, 3, []string{"10.0.0.1:6222", "10.0.0.2:6222", "10.0.0.3:6222"}},
		{`{ name: c, listen: "0.0.0.0:6222", routes: ["b:6222", "c:6222"] }`, 3, []string{"b:6222", "c:6222", "127.0.0.1:6222"}},
	} {
		c := good(t, "server: { auth: 0123456789abcdef, cluster: "+tt.cluster+" }\n"+small, config.LoadOptions{})
		k := c.Server.Cluster
		if k.Nodes() != tt.nodes || !slices.Equal(k.All(), tt.routes) || c.Replicas() != 3 {
			t.Errorf("%s: %d nodes, routes %q, %d replicas", tt.cluster, k.Nodes(), k.All(), c.Replicas())
		}
	}
}
