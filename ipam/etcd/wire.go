package etcd

import "encoding/json"

// These are messages of etcd's JSON gateway (etcd API v3, the KV service). Bytes are
// base64, and 64-bit numbers are strings.

type pair struct {
	Key      text   `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

// text is a key: base64 on the wire.
type text string

// MarshalJSON writes base64.
func (t text) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(t)) }

// UnmarshalJSON reads base64.
func (t *text) UnmarshalJSON(data []byte) error {
	var raw []byte
	err := json.Unmarshal(data, &raw)
	*t = text(raw)
	return err
}

type rangeRequest struct {
	Key      text  `json:"key"`
	End      text  `json:"range_end,omitempty"`
	Limit    int64 `json:"limit,string,omitempty"`
	Revision int64 `json:"revision,string,omitempty"`
	KeysOnly bool  `json:"keys_only,omitempty"`
	Count    bool  `json:"count_only,omitempty"`
}

type rangeAnswer struct {
	Header header `json:"header"`
	Pairs  []pair `json:"kvs"`
	More   bool   `json:"more"`
	Count  int64  `json:"count,string"`
}

type header struct {
	Revision int64 `json:"revision,string"`
}

// revised is an answer that tells the revision of the store at its time.
type revised interface{ at() int64 }

func (a *rangeAnswer) at() int64 { return a.Header.Revision }
func (o *outcome) at() int64     { return o.Header.Revision }

type put struct {
	Key   text   `json:"key"`
	Value []byte `json:"value"`
}

type remove struct {
	Key text `json:"key"`
	End text `json:"range_end,omitempty"`
}

// op is one operation of a transaction: one of the three is set.
type op struct {
	Range  *rangeRequest `json:"request_range,omitempty"`
	Put    *put          `json:"request_put,omitempty"`
	Delete *remove       `json:"request_delete_range,omitempty"`
}

func putOp(key string, value []byte) op { return op{Put: &put{text(key), value}} }
func deleteOp(key string) op            { return op{Delete: &remove{Key: text(key)}} }
func readOp(r rangeRequest) op          { return op{Range: &r} }
func one(key string) rangeRequest       { return rangeRequest{Key: text(key)} }
func below(prefix string) rangeRequest {
	return rangeRequest{Key: text(prefix), End: text(end(prefix))}
}

// condition holds while the last write of a key has this revision; 0 is that of a
// key that does not exist.
//
// With LESS it holds while the last write was before this revision.
type condition struct {
	Key      text   `json:"key"`
	Target   string `json:"target"`
	Result   string `json:"result"`
	Revision int64  `json:"mod_revision,string"`
}

func unchanged(key string, revision int64) condition {
	return condition{text(key), "MOD", "EQUAL", revision}
}

func notSince(key string, revision int64) condition {
	return condition{text(key), "MOD", "LESS", revision + 1}
}

type transaction struct {
	If   []condition `json:"compare,omitempty"`
	Then []op        `json:"success,omitempty"`
	Else []op        `json:"failure,omitempty"`
}

type outcome struct {
	Header    header `json:"header"`
	Succeeded bool   `json:"succeeded"`
	Responses []struct {
		Range rangeAnswer `json:"response_range"`
	} `json:"responses"`
}

// ranges are the answers to the reads of the branch that was carried out.
func (o outcome) ranges() []rangeAnswer {
	var all []rangeAnswer
	for _, r := range o.Responses {
		all = append(all, r.Range)
	}
	return all
}
