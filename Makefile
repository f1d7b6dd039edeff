# Every developer action. `make help` lists them.
#
# Budget of .ci/run on 2 cores in a fresh clone, in minutes; .ci/part prints what each part took. Measured as a whole: 13 min (lint 1, tests 9½, simulator 1, planted bugs 1½).
LINT_MINUTES     := 4  # format, clippy and the documentation; compiles all dependencies for checking
TEST_MINUTES     := 14 # compiling 3; unit, golden and property tests 2; real processes 8, of which 1 soaks locks; linters of deploy/ 1
SIM_MINUTES      := 2  # compiling 1; 1,000 seeds 1
LOCK_SIM_MINUTES := 1 # 300 seeds
PLANTED_MINUTES  := 4  # compiling 1; every planted bug is found 3
PART             := .ci/part

SEEDS ?= 1000
LOCK_SEEDS ?= 300
LOCKS ?=
SEED  ?=
QUICK ?=
JSON  ?=
START ?= 1
CARGO ?= cargo
COMMANDS ?= 1000000
SIM   := $(CARGO) run --quiet --profile sim -p warlock-sim --

.PHONY: help run test verify fix fmt-check lint docs simulate model golden bench bench-core bench-growth bench-micro planted

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'

run: ## Build, and start a local three-node cluster in the foreground
	$(CARGO) build --release
	@devcluster/run

.PHONY: tools
tools: ## Install what the tests need and the machine lacks (Debian, as root)
	@tests/tools

.PHONY: test-examples
test-examples: ## Run the examples of docs/locks.md in all languages; installs a JDK, too
	@tests/tools --all
	$(CARGO) test --test lock_examples -- --nocapture

test: tools ## Everything that must pass: unit, golden, property tests, 1,300 simulated seeds, planted bugs
	@$(PART) tests $(TEST_MINUTES) $(CARGO) test --workspace
	@$(PART) simulator $(SIM_MINUTES) $(SIM) --seeds $(SEEDS) --start $(START)
	@$(PART) "locks, simulated" $(LOCK_SIM_MINUTES) $(SIM) --locks --seeds $(LOCK_SEEDS) --start $(START)
	@$(PART) planted $(PLANTED_MINUTES) $(MAKE) --no-print-directory planted

verify: ## What CI runs; never writes to the tree
	@$(PART) lint $(LINT_MINUTES) $(MAKE) --no-print-directory fmt-check lint docs
	@$(MAKE) --no-print-directory test

fmt-check:
	$(CARGO) fmt --all -- --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs: ## Build the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

fix: ## Format, and apply what clippy can fix by itself
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

simulate: ## Random whole-cluster runs: SEEDS=n [START=s], or SEED=x to replay one; LOCKS=1: clients take locks
ifneq ($(SEED),)
	$(SIM) --seed $(SEED) $(if $(LOCKS),--locks)
else
	$(SIM) --seeds $(SEEDS) --start $(START) $(if $(LOCKS),--locks)
endif

.PHONY: docs-commands
docs-commands: ## Write docs/commands.md from the tables of commands
	UPDATE_DOCS=1 $(CARGO) test --quiet --test commands_doc

.PHONY: docs-metrics
docs-metrics: ## Write docs/metrics.md from what a live node serves
	UPDATE_DOCS=1 $(CARGO) test --quiet --test http metrics

.PHONY: differential
differential: ## Compare with a real Redis, command by command: COMMANDS=n [SEED=s]
	DIFFERENTIAL_COMMANDS=$(COMMANDS) DIFFERENTIAL_SEED=$(or $(SEED),1) $(CARGO) test --release --test differential -- --nocapture

planted: ## Break each safety rule on purpose and see that it is noticed
	CARGO_TARGET_DIR=target/planted $(CARGO) test --profile sim -p warlock-consensus --features planted-bugs --lib noticed
	CARGO_TARGET_DIR=target/planted $(CARGO) test --profile sim -p warlock-sim --features planted-bugs --test planted -- --nocapture

.PHONY: soak-locks
soak-locks: ## Fight for one lock of a real cluster under kill -9, SIGSTOP, partitions and clock steps; nobody may hold it twice: MINUTES=n [SEED=s]
	SOAK_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) $(if $(SEED),SOAK_SEED=$(SEED)) $(CARGO) test --test soak_locks -- --nocapture

.PHONY: bench-locks
bench-locks: ## Memory, wake-ups, hand-over and CPU of locks, measured on a real cluster
	$(CARGO) build --release -p warlock -p warlock-harness
	target/release/locks

.PHONY: soak snapshot-pause
soak: ## A long run of mixed load under random faults: MINUTES=n [SEED=s]; FAULTS=0: without faults, at a steady RATE=2000 a second [JSON=file]
	$(CARGO) build --release -p warlock -p warlock-harness
	target/release/soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(filter 0,$(FAULTS)),--no-faults $(if $(RATE),--rate $(RATE)) $(if $(JSON),--json $(JSON)))

snapshot-pause: ## What a snapshot of a million keys costs writers: KEYS=n
	$(CARGO) build --release -p warlock -p warlock-harness
	target/release/snapshot_pause --keys $(or $(KEYS),1000000)

.PHONY: disk-demo
disk-demo: ## Data eight times larger than memory with --store disk, and what it costs beside memory: MEGABYTES=2048 LIMIT=256
	$(CARGO) build --release -p warlock -p warlock-harness
	target/release/disk_demo --megabytes $(or $(MEGABYTES),2048) --limit $(or $(LIMIT),256)

.PHONY: failover
failover: ## What clients feel when the master dies or hands over, under load: ROUNDS=n
	$(CARGO) build --release -p warlock -p warlock-harness
	target/release/failover --rounds $(or $(ROUNDS),50)

golden: ## Regenerate the golden scripts and show what changed
	UPDATE_GOLDENFILES=1 $(CARGO) test -p warlock-consensus --test golden
	git diff --stat -- consensus/tests/scripts

model: ## Exhaustive search of small configurations; prints the number of states
	$(CARGO) run --release -p warlock-consensus --example model

bench: ## Beside Redis, etcd and ZooKeeper in one run (12 minutes): QUICK=1 takes 3, JSON=file keeps the numbers
	$(CARGO) build --release -p warlock -p warlock-bench-peers
	target/release/warlock-bench-peers compare $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

GROWTH ?= target/growth.json
bench-growth: ## Warlock alone while nodes, connections, values, keys or reads grow: numbers to GROWTH=file, plots to docs/plots
	$(CARGO) build --release -p warlock -p warlock-bench-peers
	target/release/warlock-bench-peers growth $(if $(QUICK),--quick) --json $(GROWTH)
	tests/bench/plot.py $(GROWTH) docs/plots

.PHONY: overload
overload: ## 4,096 connections with 64 requests each at once: no election, no lost answer: SECONDS=n
	$(CARGO) build --release -p warlock -p warlock-bench-peers
	target/release/warlock-bench-peers overload $(if $(SECONDS),--seconds $(SECONDS)) $(if $(JSON),--json $(JSON))

bench-core: ## Speed of the engine alone, without disk and network
	$(CARGO) bench -p warlock-consensus

bench-micro: ## Speed of the parts: parser, reply encoder, codec, journal, machine and store, apply loop, engine
	$(CARGO) bench -p warlock -p warlock-server -p warlock-storage -p warlock-consensus --bench codec --bench resp --bench journal --bench machine --bench core
