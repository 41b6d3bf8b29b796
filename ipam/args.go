package ipam

import (
	"fmt"
	"slices"
	"strings"
)

// PodArgs is the pod a runtime names in CNI_ARGS. Each field may be "".
type PodArgs struct {
	Namespace, Name, UID string
}

// Ref is "namespace/name", or "" when either is missing: then there is no pod.
func (a PodArgs) Ref() string {
	if a.Namespace == "" || a.Name == "" {
		return ""
	}
	return a.Namespace + "/" + a.Name
}

// argNames are the names of CNI_ARGS that need no IgnoreUnknown.
var argNames = []string{
	"IgnoreUnknown", "IP", "GATEWAY",
	"K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID",
}

// parseArgs splits CNI_ARGS, "NAME=VALUE;NAME=VALUE", into the values of the
// known names. The values are complete also when there is an error, which wraps
// ErrArgs and names each pair that is at fault. Of a name given twice the last
// value counts, as it does in the CNI library.
func parseArgs(s string) (map[string]string, error) {
	values := map[string]string{}
	var malformed, unknown []string
	for pair := range strings.SplitSeq(s, ";") {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		switch {
		case strings.TrimSpace(pair) == "":
		case !ok || name == "":
			malformed = append(malformed, fmt.Sprintf("%q", shortenValue(pair)))
		case slices.Contains(argNames, name):
			values[name] = strings.TrimSpace(value)
		default:
			unknown = append(unknown, fmt.Sprintf("%q", shortenValue(pair)))
		}
	}
	if len(malformed) > 0 {
		return values, fmt.Errorf("%w: CNI_ARGS: %s is not of the form NAME=VALUE; separate pairs by semicolons",
			ErrArgs, strings.Join(malformed, ", "))
	}
	ignore, err := parseIgnoreUnknown(values["IgnoreUnknown"])
	if err != nil {
		return values, err
	}
	if len(unknown) > 0 && !ignore {
		return values, fmt.Errorf("%w: CNI_ARGS: unknown %s; add IgnoreUnknown=1 or leave it out",
			ErrArgs, strings.Join(unknown, ", "))
	}
	return values, nil
}

func parseIgnoreUnknown(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true":
		return true, nil
	case "", "0", "false":
		return false, nil
	}
	return false, fmt.Errorf("%w: CNI_ARGS: IgnoreUnknown is %q; write IgnoreUnknown=1 or IgnoreUnknown=0",
		ErrArgs, shortenValue(s))
}

// readArgs takes the pod and the gateways from CNI_ARGS, and returns all of it.
func (p *configParser) readArgs() map[string]string {
	args, err := parseArgs(p.Args)
	p.cfg.ArgsErr = err
	p.cfg.Pod = PodArgs{
		Namespace: args["K8S_POD_NAMESPACE"],
		Name:      args["K8S_POD_NAME"],
		UID:       args["K8S_POD_UID"],
	}
	for _, s := range splitComma(args["GATEWAY"]) {
		gateway, err := ParseAddr(s)
		if err != nil {
			p.invalid(invalidArg("CNI_ARGS GATEWAY", "%w", err))
			continue
		}
		if !slices.Contains(p.cfg.ArgGateways, gateway) {
			p.cfg.ArgGateways = append(p.cfg.ArgGateways, gateway)
		}
	}
	return args
}

// splitComma cuts a comma list and leaves out what is blank.
func splitComma(s string) []string {
	var list []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
