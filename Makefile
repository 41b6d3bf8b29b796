# Run `make` for the list of targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell scripts/version)

# Also where git does not trust the directory's owner; and without the command
# line's Markdown renderer, whose initialisation is a millisecond of each start.
export GOFLAGS := -buildvcs=false -tags=urfave_cli_no_docs $(GOFLAGS)

# Static, without paths of this machine.
GO_FLAGS = -trimpath
build release-binaries cni-plugins: export CGO_ENABLED = 0
STAMP = -ldflags '-s -w -X main.version=$(VERSION)'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/whereabouts for this machine
	go build $(GO_FLAGS) $(STAMP) -o bin/whereabouts .

release-binaries: ## build for amd64 and arm64 into dist/, with checksums
	for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch go build $(GO_FLAGS) $(STAMP) -o dist/whereabouts-linux-$$arch .; \
	done
	cd dist && sha256sum whereabouts-linux-* >SHA256SUMS

image: release-binaries ## build the container image for all roles into dist/ (an OCI archive; no container engine)
	go run -C scripts/image . -version $(VERSION) -output $(CURDIR)/dist/whereabouts-image.tar \
		amd64=$(CURDIR)/dist/whereabouts-linux-amd64 arm64=$(CURDIR)/dist/whereabouts-linux-arm64

demo: build cni-plugins ## three pods get addresses and ping each other; needs no cluster
	scripts/demo

demo-etcd: build ## two hosts share one etcd; the first time builds a control plane
	scripts/demo-etcd

cni-plugins: ## build the reference CNI plugins and cnitool into bin/cni/
	go build -C integration/cniplugins $(GO_FLAGS) -o $(CURDIR)/bin/cni/ tool

test: ## run all tests and the linters; the first time builds a control plane
	scripts/test

bench: ## measure calls of the plugin on a real API server (BENCH_ARGS="--short", "--peer BINARY")
	go run ./scripts/bench $(BENCH_ARGS)

TIME ?= 10m
soak: ## churn, kills and faults for TIME (10m): no address twice, none lost
	HISTORY_TIME=$(TIME) go test ./integration/history -run 'TestHistory$$' -count=1 -timeout 0 -v

soak-etcd: ## the same on an etcd whose members are killed, cut off and lose the lead
	HISTORY_TIME=$(TIME) go test ./integration/history -run TestHistoryOnEtcd -count=1 -timeout 0 -v

crowd: ## 1 000 pods on 50 nodes fill one pool and leave it, 50 at once; takes long
	HISTORY_TIME=$(TIME) go test ./integration/history -run TestExactlyFull -count=1 -timeout 0 -v

e2e: export E2E_VERSION = $(VERSION)
e2e: image ## try image and manifests in a whole cluster; as root, the first time builds for long
	go test -tags e2e,urfave_cli_no_docs ./integration/e2e -count=1 -timeout 0 -v $(E2E_ARGS)

lint: ## gofumpt, go vet and staticcheck
	scripts/lint

fuzz: ## run each fuzz test for FUZZTIME (10s)
	scripts/fuzz

clean: ## remove bin/ and dist/
	rm -rf bin dist

.PHONY: help build release-binaries image demo demo-etcd cni-plugins test bench soak soak-etcd crowd e2e lint fuzz clean
