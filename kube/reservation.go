package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// undoTimeout is for taking back a reservation when the caller's own time is
// over.
const undoTimeout = 3 * time.Second

// claim is a reservation that is a change's: the one it has just written, or of
// a release the one it found.
type claim struct {
	reservation
	created bool // there was none before
}

// reserve makes the reservation of an address the change's: creates it, or
// rewrites one of the same owner.
func (s *Store) reserve(ctx context.Context, c ipam.Change) (*claim, error) {
	name := ReservationName(c.Pool.Network, c.Address)
	var err error
	if c.Before == nil {
		err = &statusError{code: http.StatusNotFound, name: name}
	} else {
		var got *claim
		if got, err = s.takeOver(ctx, name, c); err == nil {
			return got, nil
		}
	}
	var pause backoff
	for refused := 0; ; {
		var got *claim
		if isMissing(err, name) {
			untried := refused == 0 && pause.bound == 0 // no try of ours may have made it
			got, err = s.createReservation(ctx, name, c)
			if c.Hasty && untried && isStatus(err, http.StatusConflict) {
				return nil, &ipam.ConflictError{Address: c.Address, Reserved: true, Range: c.Pool.Range.String()}
			}
		} else {
			// Somebody has it, perhaps we ourselves by a try whose answer was lost.
			got, err = s.continueReservation(ctx, name, c)
		}
		if err == nil || errors.Is(err, ipam.ErrConflict) {
			return got, err
		}
		if isStatus(err, http.StatusUnprocessableEntity) {
			refused++
		}
		retry := transient(err) || isStatus(err, http.StatusConflict) || isMissing(err, name) || refused == 1
		if !retry {
			return nil, s.client.explain("write reservation "+name, err)
		}
		if isStatus(err, http.StatusConflict) || isMissing(err, name) {
			continue
		}
		if waitErr := pause.wait(ctx, err); waitErr != nil {
			return nil, s.client.explain("write reservation "+name, waitErr)
		}
	}
}

// continueReservation makes a reservation that is there the change's own, if it
// may be.
func (s *Store) continueReservation(ctx context.Context, name string, c ipam.Change) (*claim, error) {
	var there reservation
	err := s.client.do(ctx, request{method: http.MethodGet, path: s.path(reservationResource, name)}, &there)
	if err != nil {
		return nil, err
	}
	if !mayContinue(there.Spec, c) {
		return nil, &ipam.ConflictError{Address: c.Address, Holder: there.Spec.record(), Reserved: true, Range: there.Spec.Range}
	}
	got, err := s.rewriteReservation(ctx, there, newReservationSpec(*c.After, c.Pool), c.After.Gen)
	if err != nil {
		return nil, err
	}
	return &claim{*got, c.Before == nil && there.Spec.ContainerID == c.After.ContainerID}, nil
}

// mayContinue reports whether the owner of a change may make a reservation that
// is already there its own: one it left behind at a crash, or the one beside the
// record it rewrites.
func mayContinue(there reservationSpec, c ipam.Change) bool {
	r := there.record()
	switch {
	case there.Range != "" && there.Range != c.Pool.Range.String():
		return false
	case r.ContainerID == c.After.ContainerID && r.IfName == c.After.IfName:
		return true
	case anotherPod(r, *c.After):
		return false
	case r.PodRef != "" && r.PodRef == c.After.PodRef && r.IfName == c.After.IfName:
		return true
	default:
		return c.Before != nil && standsBeside(r, *c.Before)
	}
}

// anotherPod reports two pods of one name: their known UIDs differ.
func anotherPod(a, b ipam.Record) bool {
	return a.PodRef == b.PodRef && a.UID != "" && b.UID != "" && a.UID != b.UID
}

// standsBeside reports whether a reservation is the other half of a record that
// exists at its address. Old ones lack the container id; one that differs from the
// record's is stale, since an older plugin that adopts a record rewrites just the
// record's, so that pod and interface decide.
func standsBeside(r, record ipam.Record) bool {
	sameInterface := r.IfName == record.IfName || r.IfName == "" || record.IfName == ""
	if r.ContainerID == record.ContainerID {
		return sameInterface
	}
	// Owners without a pod have their container id alone.
	known := r.PodRef != "" || r.ContainerID == ""
	return known && r.PodRef == record.PodRef && sameInterface
}

func (s *Store) createReservation(ctx context.Context, name string, c ipam.Change) (*claim, error) {
	object := reservation{
		APIVersion: apiVersion, Kind: "OverlappingRangeIPReservation",
		Metadata: objectMeta{Name: name, Namespace: s.client.namespace},
		Spec:     newReservationSpec(*c.After, c.Pool),
	}
	var made reservation
	err := s.client.do(ctx, request{method: http.MethodPost, path: s.path(reservationResource, ""), body: object, slim: true}, &made)
	if err != nil {
		return nil, err
	}
	return &claim{made, true}, nil
}

// takeOver rewrites the reservation beside a record in one request, on the
// assumption that it is as it should be; it fails when anything is not.
func (s *Store) takeOver(ctx context.Context, name string, c ipam.Change) (*claim, error) {
	ops := []any{
		operation{Op: "test", Path: "/spec/podref", Value: c.Before.PodRef},
		operation{Op: "test", Path: "/spec/ifname", Value: c.Before.IfName},
		operation{Op: "test", Path: "/spec/containerid", Value: c.Before.ContainerID},
		operation{Op: "test", Path: "/spec/range", Value: c.Pool.Range.String()},
	}
	if c.After.UID != "" {
		ops = append(ops, operation{Op: "test", Path: "/spec/uid", Value: c.After.UID})
	}
	ops = append(ops, operation{Op: "replace", Path: "/spec", Value: newReservationSpec(*c.After, c.Pool)})
	var object reservation
	err := s.client.do(ctx, request{
		method: http.MethodPatch, path: s.path(reservationResource, name), contentType: jsonPatch, body: ops, slim: true,
	}, &object)
	if err != nil {
		return nil, err
	}
	return &claim{object, false}, nil
}

// rewriteReservation replaces the spec of a reservation, for a record with a token,
// unless it has changed since it was read.
func (s *Store) rewriteReservation(ctx context.Context, there reservation, spec reservationSpec, token string) (*reservation, error) {
	annotate := operation{Op: "add", Path: "/metadata/annotations", Value: map[string]string{claimAnnotation: token}}
	if there.Metadata.Annotations != nil {
		annotate = operation{Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(claimAnnotation, "/", "~1"), Value: token}
	}
	ops := []any{
		operation{Op: "test", Path: "/metadata/uid", Value: there.Metadata.UID},
		operation{Op: "test", Path: "/metadata/resourceVersion", Value: there.Metadata.ResourceVersion},
		operation{Op: "replace", Path: "/spec", Value: spec},
		annotate,
	}
	var object reservation
	err := s.client.do(ctx, request{
		method: http.MethodPatch, path: s.path(reservationResource, there.Metadata.Name), contentType: jsonPatch, body: ops, slim: true,
	}, &object)
	if isStatus(err, http.StatusUnprocessableEntity) {
		return nil, &statusError{code: http.StatusConflict, message: "reservation has changed"}
	}
	if err != nil {
		return nil, err
	}
	return &object, nil
}

// unreserve frees the reservation of a released record, if it is the record's.
// there is the reservation as it was before the record was removed: whoever has
// claimed the address since has given it another resource version. removed says
// that this very change removed the record; without that, only the container id
// tells whose a reservation is.
func (s *Store) unreserve(ctx context.Context, c ipam.Change, there reservation, removed bool) error {
	name := there.Metadata.Name
	var pause backoff
	for {
		r := there.Spec.record()
		ours := r.ContainerID == c.Before.ContainerID
		if there.Spec.Range != "" && there.Spec.Range != c.Pool.Range.String() || !ours && !removed || !standsBeside(r, *c.Before) {
			return nil
		}
		err := s.deleteReservation(ctx, there)
		if err == nil || isMissing(err, name) {
			return nil
		}
		if !transient(err) && !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusUnprocessableEntity) {
			return s.client.explain("delete reservation "+name, err)
		}
		if waitErr := pause.wait(ctx, err); waitErr != nil {
			return s.client.explain("delete reservation "+name, waitErr)
		}
		again, err := s.getReservation(ctx, name)
		if err != nil || again == nil {
			return err
		}
		if again.Metadata.ResourceVersion != there.Metadata.ResourceVersion {
			removed = false // somebody has written it since
		}
		there = *again
	}
}

// version tells apart all that is ever written to a reservation.
func (r reservation) version() string {
	if r.Metadata.UID == "" || r.Metadata.ResourceVersion == "" {
		return ""
	}
	return r.Metadata.UID + "/" + r.Metadata.ResourceVersion
}

// releaseSeen frees a reservation alone, unless it was written since it was seen.
func (s *Store) releaseSeen(ctx context.Context, c ipam.Change) error {
	name := ReservationName(c.Pool.Network, c.Address)
	uid, resourceVersion, ok := strings.Cut(c.Seen.Version, "/")
	if !ok {
		return fmt.Errorf("%w: reservation %s: its version is %q, with which it cannot be released; read it first", ipam.ErrInvalid, name, c.Seen.Version)
	}
	there := reservation{Metadata: objectMeta{Name: name, UID: uid, ResourceVersion: resourceVersion}}
	var pause backoff
	for {
		err := s.deleteReservation(ctx, there)
		if err == nil {
			return nil
		}
		if !isMissing(err, name) && !transient(err) && !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusUnprocessableEntity) {
			return s.client.explain("delete reservation "+name, err)
		}
		now, readErr := s.getReservation(ctx, name)
		if readErr != nil {
			return readErr
		}
		if now == nil || now.version() != c.Seen.Version {
			return notSeen(c, now)
		}
		if waitErr := pause.wait(ctx, err); waitErr != nil {
			return s.client.explain("delete reservation "+name, waitErr)
		}
	}
}

// notSeen is the outcome of a release whose reservation is not there any more.
func notSeen(c ipam.Change, now *reservation) error {
	if !c.Strict {
		return nil
	}
	conflict := &ipam.ConflictError{Address: c.Address, Reserved: now != nil}
	if now != nil {
		conflict.Holder, conflict.Range = now.Spec.record(), now.Spec.Range
	}
	return conflict
}

// deleteReservation names UID and resource version: a UID alone would not protect
// a reservation that somebody has adopted since.
func (s *Store) deleteReservation(ctx context.Context, r reservation) error {
	return s.client.do(ctx, request{
		method: http.MethodDelete, path: s.path(reservationResource, r.Metadata.Name),
		body: map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions",
			"preconditions": map[string]string{"uid": r.Metadata.UID, "resourceVersion": r.Metadata.ResourceVersion},
		},
	}, nil)
}

// undoReserve gives up a claim whose record could not be written: the reservation
// goes back to the holder of the record that is there, and is deleted when there
// is none, or when it was not there before. What fails here is left to reconcile.
func (s *Store) undoReserve(ctx context.Context, c ipam.Change, mine claim, o outcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var holder *ipam.Record
	switch {
	case o.others && o.entry.OfContainer(c.After.ContainerID, c.After.IfName):
		return // this owner's own record: the reservation stands beside it
	case mine.created:
	case o.others && o.entry.PodRef != "" && o.entry.PodRef == c.After.PodRef && o.entry.IfName == c.After.IfName:
		holder = &o.entry
	case c.Before != nil && !o.others && !o.gone:
		holder = c.Before
	}
	var pause backoff
	for {
		var err error
		if holder != nil {
			_, err = s.rewriteReservation(ctx, mine.reservation, newReservationSpec(*holder, c.Pool), c.After.Gen+" undone")
		} else {
			err = s.deleteReservation(ctx, mine.reservation)
		}
		if isStatus(err, http.StatusConflict) {
			// Written since; perhaps in a way that leaves it ours.
			again, readErr := s.getReservation(ctx, mine.Metadata.Name)
			if readErr != nil || again == nil || again.Spec.ContainerID != c.After.ContainerID || again.Spec.IfName != c.After.IfName {
				return
			}
			mine.reservation = *again
		} else if err == nil || !transient(err) {
			return
		}
		if pause.wait(ctx, err) != nil {
			return
		}
	}
}
