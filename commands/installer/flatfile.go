package installer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Keys of the flat file that are ours to set.
const (
	datastoreKey  = "datastore"
	kubernetesKey = "kubernetes"
	kubeconfigKey = "kubeconfig"
	cronKey       = "reconciler_cron_expression"
)

// olderCron is the schedule that older versions wrote into each flat file without
// being asked to. It is nobody's choice, and once a day is too seldom.
const olderCron = "30 4 * * *"

// object is a JSON object whose other members stay as they are written.
type object map[string]json.RawMessage

// parseObject reads an object; nothing at all is an empty one.
func parseObject(text []byte) (object, error) {
	o := object{}
	if len(bytes.TrimSpace(text)) == 0 {
		return o, nil
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("it is null")
	}
	return o, nil
}

// find answers the names under which an object has a key: their case and underscores
// do not count.
func (o object) find(key string) []string {
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
	var names []string
	for name := range o {
		if plain(name) == plain(key) {
			names = append(names, name)
		}
	}
	return names
}

// set has the key once, with this value.
func (o object) set(key string, value any) error {
	o.drop(key)
	raw, err := json.Marshal(value)
	o[key] = raw
	return err
}

func (o object) drop(key string) {
	for _, name := range o.find(key) {
		delete(o, name)
	}
}

// sub is the object below a key; an empty one if there is none.
func (o object) sub(key string) object {
	for _, name := range o.find(key) {
		if sub, err := parseObject(o[name]); err == nil {
			return sub
		}
	}
	return object{}
}

// text is the string below a key, or "".
func (o object) text(key string) string {
	for _, name := range o.find(key) {
		var text string
		if json.Unmarshal(o[name], &text) == nil {
			return text
		}
	}
	return ""
}

// same compares two objects by their meaning.
func (o object) same(other object) bool {
	return maps.EqualFunc(o, other, func(a, b json.RawMessage) bool {
		var x, y bytes.Buffer
		return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
	})
}

func (o object) render() ([]byte, error) {
	text, err := json.MarshalIndent(o, "", "  ")
	return append(text, '\n'), err
}

// mergeFlatFile sets our keys in a flat file. Older installers wrote the whole file
// anew, so that an administrator's keys in it (log_file, log_level, exclude) lasted
// until the next start of the pod; those who set them expect them to stay. A file
// that says already what it should is answered as it is, in whatever form.
func (s Settings) mergeFlatFile(text []byte) ([]byte, error) {
	found, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	merged := maps.Clone(found)
	kubernetes := merged.sub(kubernetesKey)
	if err := kubernetes.set(kubeconfigKey, s.kubeconfigOnHost()); err != nil {
		return nil, err
	}
	if err := merged.set(datastoreKey, ipam.DatastoreKubernetes); err != nil {
		return nil, err
	}
	if err := merged.set(kubernetesKey, kubernetes); err != nil {
		return nil, err
	}
	switch {
	case s.Schedule != "":
		err = merged.set(cronKey, s.Schedule)
	case merged.text(cronKey) == olderCron:
		merged.drop(cronKey)
	}
	if err != nil || merged.same(found) {
		return text, err
	}
	return merged.render()
}

// withoutOurs takes our keys out of a flat file. It answers nil if nothing is left.
func (s Settings) withoutOurs(text []byte) ([]byte, error) {
	rest, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	rest.drop(datastoreKey)
	if cron := rest.text(cronKey); cron == s.Schedule || cron == olderCron {
		rest.drop(cronKey)
	}
	kubernetes := rest.sub(kubernetesKey)
	kubernetes.drop(kubeconfigKey)
	rest.drop(kubernetesKey)
	if len(kubernetes) > 0 {
		if err := rest.set(kubernetesKey, kubernetes); err != nil {
			return nil, err
		}
	}
	if len(rest) == 0 {
		return nil, nil
	}
	return rest.render()
}
