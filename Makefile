# Builds and checks mqrun. Needs Go and make; `race` also a C compiler, since
# Go's race detector does.

GO = go
GOLANGCI = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Arguments for every `go test`: make test ARGS='-run TestACK -v'
ARGS =

# Every folder that holds a go.mod: found, not listed, so that none is forgotten.
MODULES = find . -name go.mod ! -path '*/testdata/*' -exec dirname {} \; | sort

# Runs $(1) in every module and fails at the end when one failed.
each = status=0; for dir in $$($(MODULES)); do echo "== $$dir: $(1)"; (cd "$$dir" && $(1)) || status=1; done; exit $$status

.PHONY: help build plugins demo test test-spec race lint clean bench chaos chaos-short

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

build: ## build bin/mqrun
	$(GO) build -trimpath -o bin/mqrun ./cmd/mqrun

plugins: ## build the Go example plugins into plugins/bin
	@mkdir -p plugins/bin
	@for dir in plugins/examples/go-*; do \
		name=$${dir#plugins/examples/go-}; \
		echo "plugins/bin/$$name.wasm"; \
		(cd plugins/examples && GOOS=wasip1 GOARCH=wasm $(GO) build -trimpath -buildmode=c-shared -o "../bin/$$name.wasm" "./go-$$name") || exit 1; \
	done

demo: build plugins ## run pipelines.yaml over 1,732 real messages and count what came out
	@$(GO) run ./test/demo

test: ## go test in every module
	@$(call each,$(GO) test $(ARGS) ./...)

# Empty where nobody may mount a small tmpfs in a namespace of his own.
DISK = disk

chaos-short: build ## try to break the delivery, a minute at most for each way and seed
	@$(GO) build -o bin/chaos ./test/chaos
	@for round in 1 2 3; do bin/chaos -short kill || exit 1; done
	@bin/chaos -short cluster slow network answers operator damage $(DISK) stop reload
	@bin/chaos -short -commit batch kill cluster network operator $(DISK) stop reload

chaos: build ## the same for longer, about an hour
	@$(GO) build -o bin/chaos ./test/chaos
	@bin/chaos
	@bin/chaos -commit batch kill cluster network operator disk stop reload

race: ## go test -race in every module
	@$(call each,CGO_ENABLED=1 $(GO) test -race $(ARGS) ./...)

lint: ## golangci-lint in every module, go vet for WebAssembly in the SDK
	@$(call each,$(GOLANGCI) run ./...)
	@cd pluginsdk/go && GOOS=wasip1 GOARCH=wasm $(GO) vet ./...

test-spec: ## the WebAssembly specification's tests on rewritten modules, counted against wazero's own
	@out=$$(MQRUN_SPEC_WAZERO=1 $(GO) test ./test/spec -count=1 -v) || { echo "$$out"; exit 1; }; echo "$$out" | grep '^RESULT'

.PHONY: fuzz

# Of each fuzz target.
FUZZTIME = 60s

fuzz: ## fuzz the rewriter, the host functions and the reading of modules
	@for target in host/meter:FuzzRewrite host:FuzzHostFunctions host:FuzzInspect; do \
		$(GO) test "./$${target%:*}" -run='^$$' -fuzz="^$${target#*:}$$" -fuzztime=$(FUZZTIME) || exit 1; \
	done

clean: ## remove what the other targets built
	rm -rf bin plugins/bin

bench: ## compare with native programs, about 20 minutes; writes docs/benchmarks.md
	@command -v clang >/dev/null && command -v wasm-ld >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends clang lld)
	@mkdir -p docs && cd bench/throughput && $(GO) run -tags rivals . -o ../../docs/benchmarks.md

.PHONY: bench-sandbox bench-hostile

bench-sandbox: ## what the sandbox's limits cost, about a minute; writes docs/sandbox-cost.md
	@mkdir -p docs && cd bench/sandbox && $(GO) run . -o ../../docs/sandbox-cost.md

bench-hostile: ## a healthy pipeline beside hostile guests, about four minutes
	@cd bench/sandbox && $(GO) run . hostile

.PHONY: bench-scale soak

bench-scale: build ## a backlog of 5 million, 1,000 pipelines, 100 steps, 7 MiB payloads
	@$(GO) run ./bench/scale -run backlog,idle,chain,large

soak: build ## 50 million messages, about half an hour: nothing grows
	@$(GO) run ./bench/scale -run soak

.PHONY: bench-reload

bench-reload: plugins ## swap modules under load, edit one of 200 pipelines, swap a thousand times; about five minutes
	@$(GO) run ./bench/reload
