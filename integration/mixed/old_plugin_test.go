package mixed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	// oldVariable makes the test's own binary the older plugin.
	oldVariable = "MIXED_OLD_PLUGIN"

	// rightVariable has its DELs leave the reservations of others alone, as no older
	// plugin does.
	rightVariable = "MIXED_OLD_PLUGIN_DELETES_ITS_OWN"

	// patience is how long the older plugin tries to write a pool.
	oldPatience = 10 * time.Second

	// oldCallTime bounds a whole call, with its wait for the lease.
	oldCallTime = time.Minute
)

// oldPlugin is one call of the older plugin.
type oldPlugin struct {
	api       *oldClient
	namespace string

	container, ifName, podRef string

	span        span   // what the network hands out
	space       string // network_name
	unprotected bool   // without overlap protection
	deletesOwn  bool   // see rightVariable
}

// span is a part of a range.
type span struct {
	pool        netip.Prefix
	first, last netip.Addr
}

// oldMain is the process: it answers its exit code.
func oldMain() int {
	result, err := oldCall()
	if err != nil {
		result = Object{"cniVersion": "1.0.0", "code": 999, "msg": err.Error()}
	}
	if result != nil {
		_ = json.NewEncoder(os.Stdout).Encode(result) // nobody is left to be told of a failure
	}
	if err != nil {
		return 1
	}
	return 0
}

func oldCall() (Object, error) {
	o, err := newOldPlugin(os.Getenv, os.Stdin)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), oldCallTime)
	defer cancel()
	release, err := o.lease(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	switch verb := os.Getenv("CNI_COMMAND"); verb {
	case "ADD":
		return o.add(ctx)
	case "DEL":
		return nil, o.del(ctx)
	default:
		return nil, fmt.Errorf("the simulation knows no %q", verb)
	}
}

func newOldPlugin(getenv func(string) string, stdin io.Reader) (*oldPlugin, error) {
	var config struct {
		IPAM struct {
			Range         netip.Prefix
			RangeStart    netip.Addr                  `json:"range_start"`
			RangeEnd      netip.Addr                  `json:"range_end"`
			NetworkName   string                      `json:"network_name"`
			Overlapping   *bool                       `json:"enable_overlapping_ranges"`
			KubernetesRef struct{ Kubeconfig string } `json:"kubernetes"`
		}
	}
	if err := json.NewDecoder(stdin).Decode(&config); err != nil {
		return nil, fmt.Errorf("the older plugin's configuration: %w", err)
	}
	args := map[string]string{}
	for pair := range strings.SplitSeq(getenv("CNI_ARGS"), ";") {
		key, value, _ := strings.Cut(pair, "=")
		args[key] = value
	}
	o := &oldPlugin{
		container: getenv("CNI_CONTAINERID"), ifName: getenv("CNI_IFNAME"),
		podRef:     args["K8S_POD_NAMESPACE"] + "/" + args["K8S_POD_NAME"],
		span:       span{config.IPAM.Range.Masked(), config.IPAM.RangeStart, config.IPAM.RangeEnd},
		space:      config.IPAM.NetworkName,
		deletesOwn: getenv(rightVariable) != "",
	}
	o.unprotected = config.IPAM.Overlapping != nil && !*config.IPAM.Overlapping
	var err error
	o.api, o.namespace, err = newOldClient(config.IPAM.KubernetesRef.Kubeconfig, o.podRef)
	return o, err
}

// add gives an address. What it has written stays when it fails.
func (o *oldPlugin) add(ctx context.Context) (Object, error) {
	var given netip.Addr
	var mine bool // the reservation is there already
	taken := map[netip.Addr]bool{}
	err := o.untilWritten(ctx, func(ctx context.Context, pool Object) (patch []Object, err error) {
		for {
			address, adopted := o.choose(pool, taken)
			if !address.IsValid() {
				return nil, errors.New("no free address")
			}
			var others bool
			if others, mine, err = o.reserved(ctx, address); err != nil {
				return nil, err
			}
			if !others {
				given = address
				return o.entryPatch(address, adopted), nil
			}
			taken[address] = true
		}
	})
	if err != nil {
		return nil, err
	}
	if !mine && !o.unprotected {
		if err := o.reserve(ctx, given); err != nil {
			return nil, fmt.Errorf("reserving %s: %w", given, err)
		}
	}
	address := netip.PrefixFrom(given, o.span.pool.Bits())
	return Object{"cniVersion": "1.0.0", "ips": []Object{{"address": address.String()}}}, nil
}

// del removes the entry of the container's interface, and then the reservation of its
// address. Where there is no entry, nothing is done.
func (o *oldPlugin) del(ctx context.Context) error {
	var freed netip.Addr
	err := o.untilWritten(ctx, func(_ context.Context, pool Object) ([]Object, error) {
		freed = o.held(pool)
		if !freed.IsValid() {
			return nil, nil
		}
		return []Object{{"op": "remove", "path": o.entryPath(freed)}}, nil
	})
	if err != nil || !freed.IsValid() || o.unprotected {
		return err
	}
	return o.unreserve(ctx, freed)
}

// untilWritten reads the pool and patches it as change says, under a test of the
// resource version, until that is not refused, for ten seconds. **Only a 422 counts as
// a failure.** Without a patch there is nothing to do.
func (o *oldPlugin) untilWritten(ctx context.Context, change func(context.Context, Object) ([]Object, error)) error {
	// A request under way at the end is still answered: one that is broken off would pass
	// for a success.
	for end := time.Now().Add(oldPatience); ; {
		pool, err := o.readPool(ctx)
		if err != nil {
			return fmt.Errorf("reading the pool: %w", err)
		}
		patch, err := change(ctx, pool)
		if err != nil || patch == nil {
			return err
		}
		version := Object{"op": "test", "path": "/metadata/resourceVersion", "value": pool.String("metadata", "resourceVersion")}
		code, _ := o.api.do(ctx, http.MethodPatch, o.path(pools)+"/"+o.poolName(), append([]Object{version}, patch...), nil)
		if code != http.StatusUnprocessableEntity {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the pool could not be written within ten seconds")
		}
	}
}

// readPool gets the pool, which is made if there is none.
func (o *oldPlugin) readPool(ctx context.Context) (pool Object, err error) {
	code, err := o.api.do(ctx, http.MethodGet, o.path(pools)+"/"+o.poolName(), nil, &pool)
	if code != http.StatusNotFound {
		return pool, err
	}
	_, err = o.api.do(ctx, http.MethodPost, o.path(pools), Object{
		"apiVersion": groupVersion, "kind": "IPPool", "metadata": Object{"name": o.poolName()},
		"spec": Object{"range": o.span.pool.String(), "allocations": Object{}},
	}, &pool)
	return pool, err
}

// choose answers the address that an entry gives to its pod and interface already, or
// the lowest one without an entry that is not known to be taken.
func (o *oldPlugin) choose(pool Object, taken map[netip.Addr]bool) (address netip.Addr, adopted bool) {
	for a := o.span.first; a.Compare(o.span.last) <= 0; a = a.Next() {
		entry := entryOf(pool, o.key(a))
		if entry.String("podref") == o.podRef && entry.String("ifname") == o.ifName && !taken[a] {
			return a, true
		}
	}
	for a := o.span.first; a.Compare(o.span.last) <= 0; a = a.Next() {
		if entryOf(pool, o.key(a)) == nil && !taken[a] {
			return a, false
		}
	}
	return netip.Addr{}, false
}

// entryPatch writes a new entry, or the container's id alone into one that is there.
func (o *oldPlugin) entryPatch(a netip.Addr, adopted bool) []Object {
	if adopted {
		return []Object{{"op": "replace", "path": o.entryPath(a) + "/id", "value": o.container}}
	}
	entry := Object{"id": o.container, "podref": o.podRef, "ifname": o.ifName}
	return []Object{{"op": "add", "path": o.entryPath(a), "value": entry}}
}

// held is the address of the entry of the container's interface.
func (o *oldPlugin) held(pool Object) netip.Addr {
	for a := o.span.first; a.Compare(o.span.last) <= 0; a = a.Next() {
		entry := entryOf(pool, o.key(a))
		if entry.String("id") == o.container && entry.String("ifname") == o.ifName {
			return a
		}
	}
	return netip.Addr{}
}

// reserved asks for the reservation of an address: there is none, or it is another
// pod's, or it names this pod, and then it counts as its own.
func (o *oldPlugin) reserved(ctx context.Context, a netip.Addr) (others, mine bool, err error) {
	if o.unprotected {
		return false, false, nil
	}
	var found Object
	code, err := o.api.do(ctx, http.MethodGet, o.reservationPath(a), nil, &found)
	switch {
	case code == http.StatusNotFound:
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("reading the reservation of %s: %w", a, err)
	}
	mine = found.String("spec", "podref") == o.podRef
	return !mine, mine, nil
}

func (o *oldPlugin) reserve(ctx context.Context, a netip.Addr) error {
	_, err := o.api.do(ctx, http.MethodPost, o.path(reservations),
		reservationObject(kube.ReservationName(o.space, a), Object{"podref": o.podRef, "ifname": o.ifName}), nil)
	return err
}

// unreserve deletes the reservation of an address, **whoever's it is**.
func (o *oldPlugin) unreserve(ctx context.Context, a netip.Addr) error {
	var options any
	if o.deletesOwn {
		var found Object
		_, err := o.api.do(ctx, http.MethodGet, o.reservationPath(a), nil, &found)
		if err != nil || found.String("spec", "podref") != o.podRef {
			return ignore404(err)
		}
		options = Object{"preconditions": Object{"uid": found.String("metadata", "uid")}}
	}
	_, err := o.api.do(ctx, http.MethodDelete, o.reservationPath(a), options, nil)
	return ignore404(err)
}

func (o *oldPlugin) poolName() string {
	return kube.PoolName(ipam.PoolID{Network: o.space, Range: o.span.pool})
}

func (o *oldPlugin) path(plural string) string { return recordPath(o.namespace, plural) }

func (o *oldPlugin) reservationPath(a netip.Addr) string {
	return o.path(reservations) + "/" + kube.ReservationName(o.space, a)
}

func (o *oldPlugin) entryPath(a netip.Addr) string { return "/spec/allocations/" + o.key(a) }

func (o *oldPlugin) key(a netip.Addr) string { return keyIn(o.span.pool, a) }
