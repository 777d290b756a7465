package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard refuses what a browser could be made to send, before any handler sees it.
func guard(address string, next http.Handler) http.Handler {
	own, _, err := net.SplitHostPort(address)
	if err != nil {
		own = address
	}
	next = http.MaxBytesHandler(next, maxBody)
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if !knownHost(r.Host, own) {
			http.Error(w, fmt.Sprintf("host %q is not this server; use %s or localhost", r.Host, own), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knownHost reports whether a Host header names loopback or the address that
// is listened on. A page of a rebound name sends that name.
func knownHost(header, own string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || host == strings.ToLower(own) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
