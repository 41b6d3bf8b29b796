package commands

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// printResult writes the result of an ADD in the CNI version that was asked for:
// addresses, routes and DNS, no interfaces (CNI spec 1.1, section 5, "Delegated
// plugins (IPAM)").
func printResult(w io.Writer, cfg *ipam.Config, assigned []ipam.Assigned) error {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, Routes: cfg.Routes, DNS: cfg.DNS}
	for _, a := range assigned {
		config := &types100.IPConfig{Address: net.IPNet{
			IP:   a.Address.Addr().AsSlice(),
			Mask: net.CIDRMask(a.Address.Bits(), a.Address.Addr().BitLen()),
		}}
		if a.Gateway.IsValid() {
			config.Gateway = a.Gateway.AsSlice()
		}
		result.IPs = append(result.IPs, config)
	}
	converted, err := result.GetAsVersion(cfg.CNIVersion)
	if err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "convert the result to CNI version "+cfg.CNIVersion, err.Error())
	}
	if err := converted.PrintTo(w); err != nil {
		return types.NewError(types.ErrIOFailure, "print the result", err.Error())
	}
	return nil
}

// previousAddresses lists the addresses of prevResult; none if there is none.
func previousAddresses(cfg *ipam.Config) ([]netip.Addr, error) {
	if cfg.PrevResult == nil {
		return nil, nil
	}
	previous, err := cniversion.NewResult(cfg.CNIVersion, cfg.PrevResult)
	if err != nil {
		return nil, fmt.Errorf("%w: prevResult: %w", ipam.ErrInvalid, err)
	}
	result, err := types100.NewResultFromResult(previous)
	if err != nil {
		return nil, fmt.Errorf("%w: prevResult: %w", ipam.ErrInvalid, err)
	}
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, a.Unmap())
		}
	}
	return addresses, nil
}

func addressesOf(assigned []ipam.Assigned) string {
	texts := make([]string, 0, len(assigned))
	for _, a := range assigned {
		texts = append(texts, a.Address.String())
	}
	return strings.Join(texts, ",")
}
