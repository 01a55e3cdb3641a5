# Everything runs in the project's own virtual environment; `make run` and `make test` need only Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Compiled modules are kept, whatever the environment says: the tests start hundreds of programs, each five times faster.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test setup peers lint format options reference docs dist fuzz faults bench bench-scale bench-check native-peers check-peers conformance autobahn soak coverage coverage-map mutants clean

run: $(READY)
	$(BIN)/python examples/tour.py

test: $(READY)
	$(MAKE) --jobs=2 --output-sync lint peers
	$(BIN)/python -m pytest -q -rR --reruns 1 --reruns-delay 1 -n 4 --dist loadfile

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $(READY)

peers: $(READY)
	$(BIN)/python tests/interop/install_peers.py

lint: $(READY)
	$(BIN)/ruff check src tests bench examples docs/site release
	$(BIN)/ruff format --check src tests bench examples docs/site release
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix src tests bench examples docs/site release
	$(BIN)/ruff format src tests bench examples docs/site release

# After an option was added or changed: writes its keyword arguments for type checkers, and its row in the guide.
options: $(READY)
	$(BIN)/python tests/settings/generate.py

# After a public name was added or changed: writes its entry in docs/reference.md.
reference: $(READY)
	$(BIN)/python tests/docs/reference.py

# The documentation as a static site in build/site; fails where a link leads nowhere. Needs no network.
docs: $(READY)
	$(BIN)/python docs/site/build.py

# Wheel and sdist in dist/, installed into an empty environment and tried; their list of parts (SBOM) beside them.
dist: $(READY)
	$(BIN)/python release/dist.py

fuzz: $(READY)
	FERRULE_LONG=1 $(BIN)/python -m pytest -q --timeout 3600 tests/fuzz tests/wire tests/protocol tests/server/offers/test_uri_template.py

faults: $(READY)
	FERRULE_LONG=1 $(BIN)/python -m pytest -q --timeout 3600 tests/faults tests/transports tests/budgets tests/bench tests/stores tests/auth tests/workers

# Ten minutes with three faults a minute, then mixed load for two hours; `make soak SECONDS=600` takes ten minutes each.
SECONDS ?= 7200
soak: $(READY)
	FERRULE_SOAK=$(SECONDS) $(BIN)/python -m pytest -q --timeout 0 tests/faults/test_soak.py tests/carriers/test_soak.py

# `make bench NATIVE=1` lets peers in Rust and Go take part, and builds them first where cargo and go are;
# `make bench ARGS="--scenario call,http --quick"` measures a part.
bench: $(READY) peers
	$(BIN)/python bench/run.py $(if $(NATIVE),--native) $(ARGS)

# How cost grows with tools, sessions, connections, calls in flight, size and subscribers: curves in bench/results.
bench-scale: $(READY)
	$(BIN)/python bench/scale.py $(if $(NATIVE),--native) $(if $(QUICK),--quick) $(ARGS)

# `make bench-check BEFORE=main` fails where an operation costs over 10 % more than in that commit or checkout;
# with `SHORT=1` by counting instructions, in half a minute, which any machine can do however busy it is.
bench-check: $(READY)
	@test -n "$(BEFORE)" || { echo "say what to compare with: make bench-check BEFORE=commit-or-checkout"; exit 2; }
	$(BIN)/python bench/check.py "$(BEFORE)" $(if $(SHORT),--short) $(if $(QUICK),--quick) $(ARGS)

# Builds the peers in Rust and Go that `make bench NATIVE=1` measures; needs cargo and go.
native-peers: $(READY)
	$(BIN)/python -m bench.native

# `make check-peers ARGS="mcp2 ts2"` checks some of them.
check-peers: $(READY) peers
	$(BIN)/python tests/interop/check_peers.py $(ARGS)

# `make conformance ARGS="--side client --only sse"` runs a part.
conformance: $(READY)
	$(BIN)/python tests/conformance/run.py $(ARGS)

# WSTEST is Autobahn's program; it runs on Python 2.7 only, so it is not installed here.
autobahn: $(READY)
	$(BIN)/python tests/transports/websocket/autobahn.py $(WSTEST)

# Which lines the tests run, and whether that is enough: runs all of them, in about twenty minutes.
coverage: $(READY)
	FERRULE_LONG=1 $(BIN)/python -m pytest -q -s tests/coverage

coverage-map: $(READY)
	$(BIN)/python tests/spec/coverage_map.py

# `make mutants N=100` judges fewer, `ALL=1` all, `ONLY=wire` a part, `SEED=2` others, `AGAIN=1` the last survivors.
N ?= 400
SEED ?= 1
mutants: $(READY)
	$(BIN)/python tests/mutants/mutation_run.py --count $(N) --seed $(SEED) $(if $(ALL),--all) $(if $(ONLY),--only $(ONLY)) \
		$(if $(AGAIN),--again) $(if $(PAGE),--page)

clean:
	rm -rf $(VENV) build dist .peers .mutants .conformance .mypy_cache .pytest_cache .ruff_cache .hypothesis
