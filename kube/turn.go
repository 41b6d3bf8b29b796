package kube

import (
	"context"
	"crypto/rand"
	random "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// A turn is for manners, not for safety. Fifty writers at once of one large pool
// have the server do each write fifty times over, and nearly none comes through. So
// nodes that notice it (see Observer) go one after the other: whoever creates the
// small object of that name works, and deletes it. Every write is as safe without,
// and goes on without: when the object cannot be made, when the wait gets long, and
// when whoever made it is dead. A pool without a crowd never has one.
const (
	// turnSuffix follows the pool's name in that of its turn. No address ends so:
	// who reads reservations takes it for none.
	turnSuffix = "-turn"

	// turnToken begins what stands for the container's id.
	turnToken = "turn-"

	// turnAge is how long a node may take. One that takes longer is dead, or
	// everything is so slow that another one does no harm.
	turnAge = 6 * time.Second

	// turnPatience bounds the wait for a turn. Only a part of it is over when
	// everything is as it should be.
	turnPatience = 30 * time.Second

	// turnLook is how often somebody who waits looks who it is.
	turnLook = time.Second

	// turnRequest bounds one request about it. Where that is more than an eighth of
	// the patience, this is: somebody in a hurry, a DEL, must not find out slowly
	// that the server is away.
	turnRequest = 3 * time.Second

	// Who has waited longer asks more often, down from firstAsk to lastAsk.
	firstAsk, lastAsk = 500 * time.Millisecond, 50 * time.Millisecond
)

// Turn waits until it is this node's turn to write to a pool that is crowded, and
// answers the function that ends the turn. beat is called as long as the wait goes
// on; it may be nil. There is no error: without a turn the pool is written all the
// same. At most two thirds of the time that ctx has left go by.
func (s *Store) Turn(ctx context.Context, id ipam.PoolID, beat func()) (done func()) {
	name := PoolName(id) + turnSuffix
	if len(name) > maxName || s.hasTurn(id) {
		return func() {}
	}
	made, waited := s.takeTurn(ctx, id, name, beat)
	if waited && s.observer != nil {
		s.observer.Crowded(id)
	}
	if made == nil {
		return func() {}
	}
	s.setTurn(id, true)
	return func() {
		s.setTurn(id, false)
		s.endTurn(ctx, name, made.Metadata.UID)
	}
}

// takeTurn answers nil if there is no turn to be had.
func (s *Store) takeTurn(ctx context.Context, id ipam.PoolID, name string, beat func()) (made *reservation, waited bool) {
	token := turnToken + rand.Text()
	patience := turnPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)*2/3)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var holder turnHolder
	for began := time.Now(); ; {
		made, err := s.makeTurn(ctx, min(turnRequest, patience/8), id, name, token)
		if err == nil {
			return made, waited
		}
		if !isStatus(err, http.StatusConflict) {
			if transient(err) {
				go s.endLostTurn(ctx, name, token)
			}
			return nil, waited
		}
		waited = true
		if s.overdue(ctx, name, &holder) {
			s.endTurn(ctx, name, holder.uid)
			continue
		}
		if beat != nil {
			beat()
		}
		left := max(0, 1-float64(time.Since(began))/float64(patience))
		ask := lastAsk + time.Duration(left*float64(firstAsk-lastAsk))
		select {
		case <-time.After(ask/2 + random.N(ask)):
		case <-ctx.Done():
			return nil, waited
		}
	}
}

// turnHolder is whose turn it was at the last look.
type turnHolder struct {
	uid          string
	looked, seen time.Time // last, and first under this UID
}

// overdue looks now and then whether it is still the same one's turn.
func (s *Store) overdue(ctx context.Context, name string, h *turnHolder) bool {
	if time.Since(h.looked) < turnLook {
		return false
	}
	h.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, turnRequest)
	defer cancel()
	var there reservation
	err := s.client.do(ctx, request{method: http.MethodGet, path: s.path(reservationResource, name), slim: true}, &there)
	if err != nil {
		return false
	}
	if there.Metadata.UID != h.uid {
		h.uid, h.seen = there.Metadata.UID, h.looked
	}
	return h.looked.Sub(h.seen) > turnAge
}

func (s *Store) makeTurn(ctx context.Context, limit time.Duration, id ipam.PoolID, name, token string) (*reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	object := reservation{
		APIVersion: apiVersion, Kind: "OverlappingRangeIPReservation",
		Metadata: objectMeta{Name: name, Namespace: s.client.namespace},
		Spec:     reservationSpec{ContainerID: token, Range: id.Range.String()},
	}
	var made reservation
	err := s.client.do(ctx, request{method: http.MethodPost, path: s.path(reservationResource, ""), body: object, slim: true}, &made)
	return &made, err
}

// endLostTurn ends a turn that an attempt whose answer is missing may have made.
func (s *Store) endLostTurn(ctx context.Context, name, token string) {
	get, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnRequest)
	defer cancel()
	var there reservation
	err := s.client.do(get, request{method: http.MethodGet, path: s.path(reservationResource, name)}, &there)
	if err == nil && there.Spec.ContainerID == token {
		s.endTurn(ctx, name, there.Metadata.UID)
	}
}

// endTurn deletes the object of a turn, unless it is another one's by now. What
// fails here ends by itself.
func (s *Store) endTurn(ctx context.Context, name, uid string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnRequest)
	defer cancel()
	_ = s.client.do(ctx, deleteTurn(s.path(reservationResource, name), uid), nil)
}

// EndTurn deletes the object of a turn that a dead node has left behind, exactly that
// one. One that is not there any more is no error.
func (s *Store) EndTurn(ctx context.Context, turn ipam.Turn) error {
	err := s.client.do(ctx, deleteTurn(s.path(reservationResource, turn.Name), turn.UID), nil)
	if err == nil || isMissing(err, turn.Name) || isStatus(err, http.StatusConflict) {
		return nil
	}
	return s.client.explain("delete turn "+turn.Name, err)
}

func deleteTurn(path, uid string) request {
	return request{
		method: http.MethodDelete, path: path,
		body: map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": uid}},
	}
}

// isTurn tells turns from reservations.
func (o *reservation) isTurn() bool {
	return strings.HasSuffix(o.Metadata.Name, turnSuffix) && strings.HasPrefix(o.Spec.ContainerID, turnToken)
}

// keepTurn is what a mirror of reservations keeps of a turn: one of no address.
func keepTurn(object *reservation) *ipam.Reservation {
	return &ipam.Reservation{Record: ipam.Record{UID: object.Metadata.UID, Since: object.Metadata.Created}}
}

func keptTurn(r *ipam.Reservation) bool { return !r.Address.IsValid() }

func (s *Store) hasTurn(id ipam.PoolID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns[id]
}

func (s *Store) setTurn(id ipam.PoolID, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[id] = ours
}
