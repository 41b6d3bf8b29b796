package ipam

import (
	"math/big"
	"net/netip"
	"strings"
	"testing"
)

func TestParseAddr(t *testing.T) {
	for _, test := range []struct{ says, text, want string }{
		{"plain IPv4", "10.0.0.1", "10.0.0.1"},
		{"plain IPv6", "fd00::1", "fd00::1"},
		{"blanks are trimmed", " \t10.0.0.1\n", "10.0.0.1"},
		{"leading zeros are decimal", "010.000.00.001", "10.0.0.1"},
		{"leading zeros of any number", "00000000010.0.0.010", "10.0.0.10"},
		{"08 and 09 are decimal too", "08.09.0.1", "8.9.0.1"},
		{"leading zeros in IPv6", "fd00:00000::00001", "fd00::1"},
		{"capitals", "FD00::AB", "fd00::ab"},
		{"mapped IPv4 is unmapped", "::ffff:10.0.0.1", "10.0.0.1"},
		{"mapped IPv4 in hexadecimal", "::ffff:a00:1", "10.0.0.1"},
		{"mapped IPv4 with leading zeros", "::ffff:010.0.0.01", "10.0.0.1"},
		{"unspecified", "::", "::"},
		{"nothing", "", ""},
		{"blanks only", "  ", ""},
		{"a name", "gateway", ""},
		{"a CIDR", "10.0.0.1/24", ""},
		{"an octet too large", "10.0.0.256", ""},
		{"an octet too large behind zeros", "10.0.0.0256", ""},
		{"an octet missing", "10.0.1", ""},
		{"an empty octet", "10..0.1", ""},
		{"octets too many", "10.0.0.0.1", ""},
		{"hexadecimal octet", "0x10.0.0.1", ""},
		{"blank inside", "10.0. 0.1", ""},
		{"a zone", "fe80::1%eth0", ""},
		{"a zone on a mapped address", "::ffff:10.0.0.1%eth0", ""},
	} {
		t.Run(test.says, func(t *testing.T) {
			got, err := ParseAddr(test.text)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("ParseAddr(%q) is %s, want an error", test.text, got)
			case test.want == "" && !strings.Contains(err.Error(), strings.TrimSpace(test.text)):
				t.Errorf("error %q does not name the value %q", err, test.text)
			case test.want != "" && (err != nil || got.String() != test.want):
				t.Errorf("ParseAddr(%q) is %s, %v, want %s", test.text, got, err, test.want)
			}
		})
	}
}

func TestParsePrefix(t *testing.T) {
	for _, test := range []struct{ says, text, want string }{
		{"plain", "10.0.0.0/8", "10.0.0.0/8"},
		{"host bits are kept", "192.168.2.225/28", "192.168.2.225/28"},
		{"IPv6", "fd00::1/64", "fd00::1/64"},
		{"blanks around each part", " 10.0.0.0 / 8 ", "10.0.0.0/8"},
		{"leading zeros", "010.0.0.1/024", "10.0.0.1/24"},
		{"mapped", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"all mapped addresses", "::ffff:10.0.0.1/96", "10.0.0.1/0"},
		{"one mapped address", "::ffff:10.0.0.1/128", "10.0.0.1/32"},
		{"mapped with a prefix of IPv6", "::ffff:10.0.0.0/64", ""},
		{"mapped with a prefix of IPv4", "::ffff:10.0.0.0/8", ""},
		{"everything", "::/0", "::/0"},
		{"no length", "10.0.0.0", ""},
		{"empty length", "10.0.0.0/", ""},
		{"empty address", "/8", ""},
		{"length too long for IPv4", "10.0.0.0/33", ""},
		{"length too long for IPv6", "fd00::/129", ""},
		{"length beyond any integer", "fd00::/99999999999999999999", ""},
		{"signed length", "10.0.0.0/+8", ""},
		{"negative length", "10.0.0.0/-8", ""},
		{"a mask", "10.0.0.0/255.0.0.0", ""},
		{"two lengths", "10.0.0.0/8/8", ""},
		{"a zone", "fe80::%eth0/64", ""},
	} {
		t.Run(test.says, func(t *testing.T) {
			got, err := ParsePrefix(test.text)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("ParsePrefix(%q) is %s, want an error", test.text, got)
			case test.want != "" && (err != nil || got.String() != test.want):
				t.Errorf("ParsePrefix(%q) is %s, %v, want %s", test.text, got, err, test.want)
			}
		})
	}
}

func TestOffsets(t *testing.T) {
	for _, test := range []struct {
		says, base, offset, addr string
	}{
		{"nothing", "10.0.0.0", "0", "10.0.0.0"},
		{"one octet", "10.0.0.0", "255", "10.0.0.255"},
		{"a carry", "10.0.0.5", "256", "10.0.1.5"},
		{"all of IPv4", "0.0.0.0", "4294967295", "255.255.255.255"},
		{"IPv6", "fd00::", "1", "fd00::1"},
		{"a carry between the halves", "fd00::ffff:ffff:ffff:ffff", "1", "fd00:0:0:1::"},
		{"above 2^63", "fd00::", "9223372036854775808", "fd00::8000:0:0:0"},
		{"above 2^64", "fd00::", "18446744073709551617", "fd00:0:0:1::1"},
		{"all of IPv6", "::", "340282366920938463463374607431768211455", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"out of IPv4", "255.255.255.255", "1", ""},
		{"far out of IPv4", "0.0.0.0", "4294967296", ""},
		{"out of IPv4 in the upper half", "10.0.0.0", "18446744073709551616", ""},
		{"out of IPv4 around 64 bits", "10.0.0.1", "18446744073709551615", ""},
		{"out of IPv4 around 128 bits", "10.0.0.1", "340282366920938463463374607431768211455", ""},
		{"out of IPv6", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1", ""},
		{"far out of IPv6", "::1", "340282366920938463463374607431768211455", ""},
	} {
		t.Run(test.says, func(t *testing.T) {
			base, offset := netip.MustParseAddr(test.base), mustUint128(t, test.offset)
			got, ok := AddOffset(base, offset)
			if ok != (test.addr != "") || ok && got.String() != test.addr {
				t.Fatalf("AddOffset(%s, %s) is %s, %t, want %q", base, offset, got, ok, test.addr)
			}
			if !ok {
				return
			}
			if back, ok := Offset(base, got); !ok || back != offset {
				t.Errorf("Offset(%s, %s) is %s, %t, want %s", base, got, back, ok, offset)
			}
		})
	}
}

func TestOffsetIsRefused(t *testing.T) {
	for _, test := range []struct{ says, base, addr string }{
		{"below the base", "10.0.0.5", "10.0.0.4"},
		{"below the base, IPv6", "fd00:0:0:1::", "fd00::ffff:ffff:ffff:ffff"},
		{"IPv6 above IPv4", "10.0.0.0", "fd00::1"},
		{"IPv4 above IPv6", "::", "10.0.0.1"},
	} {
		t.Run(test.says, func(t *testing.T) {
			if got, ok := Offset(netip.MustParseAddr(test.base), netip.MustParseAddr(test.addr)); ok {
				t.Errorf("Offset(%s, %s) is %s, want none", test.base, test.addr, got)
			}
		})
	}
	if _, ok := Offset(netip.Addr{}, netip.Addr{}); ok {
		t.Error("two zero addresses have an offset")
	}
	if _, ok := AddOffset(netip.Addr{}, Uint128{}); ok {
		t.Error("the zero address plus nothing is an address")
	}
}

func TestParseUint128(t *testing.T) {
	for _, text := range []string{
		"0", "1", "9", "10", "4294967296", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "10000000000000000000", "99999999999999999999",
		"100000000000000000000000000000000000000", "340282366920938463463374607431768211455",
	} {
		if got := mustUint128(t, text).String(); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for _, text := range []string{
		"", "00", "01", "-1", "+1", " 1", "1 ", "1e3", "0x1", "1_000", "１", "1.0",
		"340282366920938463463374607431768211456", "999999999999999999999999999999999999999",
		"1000000000000000000000000000000000000000",
	} {
		if got, ok := ParseUint128(text); ok {
			t.Errorf("%q is read as %s, want a refusal", text, got)
		}
	}
}

func mustUint128(t *testing.T, s string) Uint128 {
	t.Helper()
	u, ok := ParseUint128(s)
	if !ok {
		t.Fatalf("ParseUint128(%q) refuses", s)
	}
	return u
}

func FuzzParseAddr(f *testing.F) {
	for _, seed := range []string{"10.0.0.1", " 010.0.0.1", "::ffff:1.2.3.4", "fe80::1%eth0", "fd00:0:00000::00", "0", ":.", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseAddr(s)
		strict, strictErr := netip.ParseAddr(s)
		switch {
		case err != nil && strictErr == nil && strict.Zone() == "":
			t.Errorf("%q is refused: %v", s, err)
		case err == nil && strictErr == nil && got != strict.Unmap():
			t.Errorf("%q is read as %s, want %s", s, got, strict)
		case err == nil && (!got.IsValid() || got.Zone() != "" || got.Is4In6()):
			t.Errorf("%q is read as %s, which is no plain address", s, got)
		}
	})
}

func FuzzParsePrefix(f *testing.F) {
	for _, seed := range []string{"10.0.0.1/24", " 010.0.0.1 / 08", "::ffff:1.2.3.4/96", "fe80::1%eth0/64", "::/0", "/", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParsePrefix(s)
		strict, strictErr := netip.ParsePrefix(s)
		switch {
		case strictErr == nil && !strict.Addr().Is4In6() && (err != nil || got != strict):
			t.Errorf("%q is read as %s, %v, want %s", s, got, err, strict)
		case err == nil && (!got.IsValid() || got.Addr().Is4In6()):
			t.Errorf("%q is read as %s, which is no plain prefix", s, got)
		}
	})
}

func FuzzParseUint128(f *testing.F) {
	for _, seed := range []string{"0", "1", "18446744073709551616", "340282366920938463463374607431768211455", "-1", "01", "/", ":"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseUint128(s)
		want, isNumber := new(big.Int).SetString(s, 10)
		canonical := isNumber && want.String() == s && want.Sign() >= 0 && want.BitLen() <= 128
		if ok != canonical {
			t.Fatalf("%q is accepted: %t, want %t", s, ok, canonical)
		}
		if ok && got.String() != s {
			t.Errorf("%q is written as %q", s, got)
		}
	})
}
