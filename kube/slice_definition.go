package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// SliceDefinition is a network attachment definition as far as slices go.
type SliceDefinition struct {
	slice.Definition
	UID    string
	Config string // spec.config

	// Unclear is set when it cannot be read, so that it may name any network.
	Unclear bool
}

// sliceDefinition is the part of the object that is decoded.
type sliceDefinition struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
		Version   string `json:"resourceVersion"`
		Created   string `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Config anyText `json:"config"`
	} `json:"spec"`
}

func (o *sliceDefinition) ident() identity {
	return identity{o.Metadata.Namespace, o.Metadata.Name, o.Metadata.Version}
}

// read understands the object as the plugin would on a node whose flat file is flat, nil
// if there is none.
func (o *sliceDefinition) read(flat []byte) SliceDefinition {
	m := o.Metadata
	d := SliceDefinition{
		Definition: slice.Definition{Namespace: m.Namespace, Name: m.Name, Created: parseTime(m.Created)},
		UID:        m.UID, Config: string(o.Spec.Config),
	}
	if strings.TrimSpace(d.Config) == "" { // stands for a file on the nodes
		d.Unclear = true
		return d
	}
	plugins, err := networkPlugins(d.Config, m.Name)
	if err != nil {
		d.Unclear = true
		d.Configs = []slice.Parsed{{Err: err}}
		return d
	}
	for _, plugin := range plugins {
		cfg, err := parseForSlices(plugin, flat)
		d.Unclear = d.Unclear || cfg == nil
		d.Configs = append(d.Configs, slice.Parsed{Config: cfg, Err: err})
	}
	return d
}

// networkPlugins lists the configurations of this plugin in a definition's spec.config,
// each as a runtime passes it: with the name of the list it stands in, or else with that
// of the definition.
func networkPlugins(config, name string) ([]json.RawMessage, error) {
	if err := ipam.CheckJSON([]byte(config), "spec.config"); err != nil {
		return nil, err
	}
	var network map[string]json.RawMessage
	if err := json.Unmarshal([]byte(config), &network); err != nil || network == nil {
		return nil, fmt.Errorf(`%w: spec.config: it is not an object; write one like {"name": …, "type": …, "ipam": {…}}`, ipam.ErrInvalid)
	}
	written, listed := network["plugins"]
	if !listed || bytes.Equal(bytes.TrimSpace(written), []byte("null")) {
		return ours([]map[string]json.RawMessage{network}, network, name), nil
	}
	var plugins []map[string]json.RawMessage
	if err := json.Unmarshal(written, &plugins); err != nil {
		return nil, fmt.Errorf("%w: plugins: it is not a list of objects; write one like [{…}, {…}]", ipam.ErrInvalid)
	}
	return ours(plugins, network, name), nil
}

// ours picks the plugins that take their addresses from us, and passes on to them what
// their network says.
func ours(plugins []map[string]json.RawMessage, network map[string]json.RawMessage, name string) []json.RawMessage {
	var found []json.RawMessage
	for _, plugin := range plugins {
		var section struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(plugin["ipam"], &section) != nil || section.Type != pluginName {
			continue
		}
		for _, key := range []string{"name", "cniVersion"} {
			if value, ok := network[key]; ok {
				plugin[key] = value
			}
		}
		var given string
		if raw, ok := plugin["name"]; !ok || json.Unmarshal(raw, &given) == nil && given == "" {
			plugin["name"], _ = json.Marshal(name) // a string always can be
		}
		if text, err := json.Marshal(plugin); err == nil { // it has been JSON before
			found = append(found, text)
		}
	}
	return found
}

// parseForSlices reads a plugin's configuration. Of other files than the flat one nothing
// is known here.
func parseForSlices(plugin, flat []byte) (*ipam.Config, error) {
	return ipam.ParseConfig(ipam.Sources{
		Stdin:  plugin,
		Getenv: nodeEnvironment,
		ReadFile: func(file string) ([]byte, error) {
			switch kind := whatFile(file); {
			case kind == flatDirectory:
				return nil, syscall.EISDIR
			case kind == flatFile && flat != nil:
				return flat, nil
			case kind == otherFile:
				return []byte("{}"), nil
			}
			return nil, fs.ErrNotExist
		},
	})
}

// DefinitionEvent tells whoever wrote a definition about it.
type DefinitionEvent struct {
	Definition SliceDefinition
	Reason     string // CamelCase, for machines
	Message    string

	// Name is that of the event: one that exists already is not posted again.
	Name string
}

// Definition posts a warning on a definition. It does not wait.
func (r *Recorder) Definition(e DefinitionEvent) {
	now := formatTime(time.Now())
	o := eventObject{
		APIVersion: "v1", Kind: "Event", Reason: e.Reason, Message: shortMessage(e.Message), Type: "Warning",
		Metadata: objectMeta{Namespace: e.Definition.Namespace, Name: e.Name},
		About: eventSubject{
			APIVersion: "k8s.cni.cncf.io/v1", Kind: "NetworkAttachmentDefinition",
			Namespace: e.Definition.Namespace, Name: e.Definition.Name, UID: e.Definition.UID,
		},
		Controller: eventSource, First: now, Last: now, Count: 1,
	}
	o.Source.Component = eventSource
	r.enqueue(o)
}

// EventNameOf is a name for an event about an object: the same for the same content.
func EventNameOf(object, content string) string {
	sum := sha256.Sum256([]byte(content))
	tail := "." + hex.EncodeToString(sum[:8])
	if most := maxName - len(tail); len(object) > most {
		object = trimEnd(object[:most])
	}
	return object + tail
}
