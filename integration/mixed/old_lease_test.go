package mixed

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	leaseName     = "whereabouts"
	leaseDuration = 2 * time.Second // of one that is not renewed
	leasePause    = 50 * time.Millisecond

	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

func leasePath(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

// lease waits for the one lease of the cluster, which the calls of older plugins hold
// one after the other, keeps it fresh and answers how to give it back. One whose holder
// died is taken when it has run out.
func (o *oldPlugin) lease(ctx context.Context) (release func(), err error) {
	for {
		held, err := o.tryLease(ctx)
		if held {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lease (last answer %w): %w", err, ctx.Err())
		case <-time.After(leasePause):
		}
	}
	renewing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.renewLease(renewing)
	}()
	return func() {
		stop()
		<-ended
		o.writeLease(ctx, o.getLease(ctx), "")
	}, nil
}

// tryLease reports whether the lease is ours now.
func (o *oldPlugin) tryLease(ctx context.Context) (bool, error) {
	var lease Object
	code, err := o.api.do(ctx, http.MethodGet, leasePath(o.namespace)+"/"+leaseName, nil, &lease)
	if code == http.StatusNotFound {
		_, err = o.api.do(ctx, http.MethodPost, leasePath(o.namespace), Object{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": Object{"name": leaseName}, "spec": o.leaseSpec(o.holder()),
		}, nil)
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	renewed, _ := time.Parse(microTime, lease.String("spec", "renewTime"))
	if lease.String("spec", "holderIdentity") != "" && time.Since(renewed) < leaseDuration {
		return false, nil
	}
	return o.writeLease(ctx, lease, o.holder()), nil
}

func (o *oldPlugin) renewLease(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaseDuration / 4):
		}
		if lease := o.getLease(ctx); lease.String("spec", "holderIdentity") == o.holder() {
			o.writeLease(ctx, lease, o.holder())
		}
	}
}

func (o *oldPlugin) getLease(ctx context.Context) (lease Object) {
	_, _ = o.api.do(ctx, http.MethodGet, leasePath(o.namespace)+"/"+leaseName, nil, &lease) // it runs out
	return lease
}

// writeLease reports whether it could be written.
func (o *oldPlugin) writeLease(ctx context.Context, lease Object, holder string) bool {
	if lease == nil {
		return false
	}
	lease["spec"] = o.leaseSpec(holder)
	_, err := o.api.do(ctx, http.MethodPut, leasePath(o.namespace)+"/"+leaseName, lease, nil)
	return err == nil
}

func (o *oldPlugin) leaseSpec(holder string) Object {
	return Object{
		"holderIdentity": holder, "leaseDurationSeconds": int(leaseDuration / time.Second),
		"renewTime": time.Now().UTC().Format(microTime),
	}
}

func (o *oldPlugin) holder() string { return fmt.Sprintf("%s-%d", o.container, os.Getpid()) }
