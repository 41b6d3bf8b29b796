// Request makes one GET and one small CREATE over a fresh TLS connection, with
// the standard library alone: the least that a program needs which reads a pool
// and records an address.
//
// Usage: request FILE NAME, where FILE is JSON (see settings) and NAME is for the
// object to create.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// settings say where the API server is and what to ask for.
type settings struct {
	Server, Token string
	CA            []byte
	Get           string // path of an object
	Create        string // path of a collection of reservations
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "request:", err)
		os.Exit(1)
	}
}

func run(file, name string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s settings
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	if err := s.do(client, http.MethodGet, s.Get, ""); err != nil {
		return err
	}
	return s.do(client, http.MethodPost, s.Create, reservation(name))
}

func reservation(name string) string {
	return fmt.Sprintf(`{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"OverlappingRangeIPReservation",`+
		`"metadata":{"name":%q},"spec":{"podref":"bench/%s","ifname":"net1","containerid":%q}}`, name, name, name)
}

func (s settings) do(client *http.Client, method, path, body string) error {
	request, err := http.NewRequest(method, s.Server+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return nil
}
