# Trimaran's plumbing: every target sets up what it needs, once, into .venv and .tools. CI calls these and nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PYTHON_READY := .venv/.synced
DEMO_READY := .venv/.installed
NODE_READY := .tools/node/.ready
PEERS_READY := .tools/peers/.ready
SERVERS_READY := .tools/servers/.ready
REDIS_READY := .tools/redis/.ready
NGINX_READY := .tools/nginx/.ready
CHROMIUM_READY := .tools/chromium/.ready
BUBBLEWRAP_READY := .tools/bubblewrap/.ready
SANDBOXED_READY := .tools/sandboxed/.ready

export PYTHON
unexport PYTHONDONTWRITEBYTECODE # each worker and each program a test starts would compile everything again
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(DEMO_READY) ## Show what Trimaran does (ONCE=1: run through once and exit)
	@$(if $(ONCE),,scripts/build-page --if-possible)
	@$(BIN)/trimaran demo $(if $(ONCE),--once)

.PHONY: page
page: ## Build the inspector's page, which needs Node and npm
	@scripts/build-page

.PHONY: package
package: ## Build what is published, into out/package (REPOSITORY=https://github.com/NAME/trimaran)
	@TRIMARAN_REPOSITORY=$(REPOSITORY) TRIMARAN_REQUIRE_PAGE=1 scripts/uv build --out-dir out/package

# Four workers, on two cores too: most of the time goes to waiting for processes that tests start.
.PHONY: test
test: setup ## Run every test, and those of units and the wire on the other Pythons that are here
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder
	@scripts/test-versions

.PHONY: coverage
coverage: $(PYTHON_READY) $(REDIS_READY) ## Measure what the quick tests run, per module, and hold each package to its floor
	@$(BIN)/python scripts/coverage

# Linting first: it takes a second. Then the type checker, which keeps one core busy to the end, beside two runs of pytest,
# which share the other: what a part has to say comes in one piece, when the part is over.
.PHONY: check
check: $(PYTHON_READY) $(REDIS_READY) ## Lint, format and type checks, and the quick tests
	@SECONDS=0; \
	$(MAKE) --no-print-directory check-lint; \
	echo "types, unit tests, wire and arch tests: all at the same time ..."; \
	$(MAKE) --no-print-directory --jobs --output-sync --keep-going check-types check-unit check-wire; \
	echo "check: ok in $${SECONDS}s"

# $(call part,NAME,COMMAND): run it, then say how it went and how long it took.
part = @SECONDS=0; if $(2); then echo "$(1): ok in $${SECONDS}s"; else echo "$(1): FAILED after $${SECONDS}s"; exit 1; fi
QUICK := $(BIN)/pytest -q -m "not slow"
TALKING := tests/unit/client tests/unit/transports# run with those of the wire: so both runs take about as long

.PHONY: check-lint check-types check-unit check-wire
check-lint: $(PYTHON_READY)
	$(call part,lint and format,$(BIN)/ruff check && $(BIN)/ruff format --check)
	@scripts/setup-page
	$(call part,types of the page,page/node_modules/.bin/tsc --noEmit -p page)

check-types: export NODE_OPTIONS := --max-semi-space-size=64# megabytes; a tenth of the time goes to small collections else
check-types: $(PYTHON_READY)
	@scripts/find-node >/dev/null  # pyright runs on it
	$(call part,types,$(BIN)/pyright)

check-unit: $(PYTHON_READY) $(REDIS_READY)
	$(call part,unit tests,$(QUICK) tests/unit $(patsubst %,--ignore=%,tests/unit/apps/cli $(TALKING)))

check-wire: $(PYTHON_READY) $(REDIS_READY)
	$(call part,wire and arch tests,$(QUICK) tests/wire tests/arch $(TALKING))

.PHONY: fix
fix: $(PYTHON_READY) ## Fix what ruff can fix, and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: conformance
conformance: $(PYTHON_READY) $(NODE_READY) ## Run the official conformance suite, both eras (ARGS="--leg 26 --keep")
	@$(BIN)/python tests/conformance/run.py $(ARGS)

.PHONY: interop
interop: setup ## Talk to the other libraries, both ways
	@$(BIN)/pytest tests/interop

.PHONY: bench
bench: setup ## Measure against the other libraries (ARGS are passed on)
	@scripts/setup-proxies
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: chaos
chaos: setup ## Kill servers, gateways and what stands behind them, restart Redis, cut its network under 10,000 calls (CALLS=100: fewer)
	@TRIMARAN_CHAOS=$(or $(CALLS),10000) $(BIN)/pytest -q -s tests/fleet/test_chaos.py tests/fleet/test_gateway_chaos.py

.PHONY: attack
attack: $(PYTHON_READY) ## Hostile clients and servers, while a bystander's calls are timed (ONLY=smuggling,slow SECONDS=3)
	@$(BIN)/python -m tests.attack --only "$(ONLY)" --seconds "$(or $(SECONDS),3)"

.PHONY: redteam
redteam: $(PYTHON_READY) ## Servers that lie, against a host without and with its defences (EXPERIMENTS=path TOOLS="a.json b.json" ONLY=mcpbait)
	@scripts/setup-redteam
	@$(BIN)/python -m tests.redteam --only "$(ONLY)" $(if $(EXPERIMENTS),--experiments $(EXPERIMENTS)) --tools $(TOOLS)

.PHONY: soak
soak: $(PYTHON_READY) ## Mixed load for MINUTES=30 with kills, and what grows meanwhile
	@$(BIN)/python -m tests.soak --minutes "$(or $(MINUTES),30)"

.PHONY: fuzz
fuzz: ## Look for bytes that break a reader, guided by coverage (ONLY=sse,toml SECONDS=60 KEEP=1 for the corpus)
	@scripts/setup-fuzz
	@.venv-fuzz/bin/python -m tests.fuzz --only "$(ONLY)" --seconds "$(or $(SECONDS),60)" $(if $(KEEP),--keep)

.PHONY: world
world: $(PYTHON_READY) $(NODE_READY) $(PEERS_READY) ## Run real agents, frameworks, bridges and servers (ONLY=codex,servers JOBS=2 THROUGH=legacy for our proxy between)
	@$(BIN)/python -m tests.world --only "$(ONLY)" --jobs "$(or $(JOBS),1)" --through "$(THROUGH)"

.PHONY: world-proxies
world-proxies: $(PYTHON_READY) $(NODE_READY) $(PEERS_READY) ## Try what other proxies pass on, and ours, and write the table (ONLY=gateway)
	@scripts/setup-proxies
	@$(BIN)/python -m tests.world.proxies "$(ONLY)"

.PHONY: world-files
world-files: $(PYTHON_READY) $(NODE_READY) ## Have real agents read the files that we write, and read theirs (ONLY=codex)
	@$(BIN)/python -m tests.world.files "$(ONLY)"

.PHONY: setup
setup: $(PYTHON_READY) $(NODE_READY) $(PEERS_READY) $(SERVERS_READY) $(REDIS_READY) $(NGINX_READY) $(CHROMIUM_READY) $(BUBBLEWRAP_READY) $(SANDBOXED_READY) ## Install all that the tests need, each only if absent
	@scripts/setup-page
	@scripts/build-page

.PHONY: clean
clean: ## Remove caches and outputs (ALL=1: also .venv and .tools)
	@rm -rf .ruff_cache .pytest_cache .hypothesis bench/results build dist out
	@find $(wildcard src tests bench examples) -name __pycache__ -type d -prune -exec rm -rf {} +
	@$(if $(ALL),rm -rf .venv .venv-* .tools)

$(PYTHON_READY): pyproject.toml uv.lock scripts/setup-python
	@scripts/setup-python

$(DEMO_READY): pyproject.toml uv.lock scripts/setup-python
	@scripts/setup-python --no-dev

$(NODE_READY): scripts/setup-node
	@scripts/setup-node

$(PEERS_READY): scripts/setup-peers
	@scripts/setup-peers

$(SERVERS_READY): scripts/setup-servers
	@scripts/setup-servers

$(REDIS_READY): scripts/setup-redis
	@scripts/setup-redis

$(NGINX_READY): scripts/setup-nginx
	@scripts/setup-nginx

$(CHROMIUM_READY): scripts/setup-chromium
	@scripts/setup-chromium

$(BUBBLEWRAP_READY): scripts/setup-bubblewrap
	@scripts/setup-bubblewrap

$(SANDBOXED_READY): scripts/setup-sandboxed
	@scripts/setup-sandboxed
