# `make demo` and `make test` do all the set-up by themselves; a second call finds it done. `make help` lists the rest.

VENV := .venv
BIN := $(VENV)/bin
JAR := plugin/jars/tidegate-pulsar-shim.jar
SHIM_SOURCES := $(shell find plugin/shim/pom.xml plugin/shim/src -type f 2>/dev/null)
MAVEN := mvn -B -ntp
# Pulsar 4.1 is not here: Maven Central has no pulsar-broker of that line.
COMPATIBLE_PULSARS := 4.2.4
# Their class files need a JDK 21 or newer: left out, and said, where there is none.
NEWER_PULSARS := 5.0.1
NEWER_JDK := 21
# What `make test-pulsar` runs on; the names with a 5 are those of before.
PULSAR5 ?= 5.0.1
PULSAR ?= $(PULSAR5)
PULSAR5_TESTS ?= tests/broker
PULSAR_TESTS ?= $(PULSAR5_TESTS)
SUITE_ARGS ?=
# The oldest that pyproject.toml allows, and the newest.
COMPATIBLE_SPARKS := 4.1.0 4.3.0
# PySpark 4.1 leaves sockets to the garbage collector.
SPARK_LENIENCY := -W ignore::pytest.PytestUnraisableExceptionWarning
SPARK_TESTS ?= tests/pipeline/source tests/pipeline/audit tests/pipeline/job tests/pipeline/rebuild/test_rebuild.py
WRITABLE := test -w . || { echo "tidegate: cannot write to this checkout: work in a copy that is yours" >&2; exit 1; }
# The first Python on PATH that is new enough; looked for only when the virtual environment is made.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
DEMO_ARGS ?=
DRILL_ARGS ?= broker-killed daemon-killed both-killed daemon-paused data-directory-lost --report run/drill/report
PYTEST_ARGS ?=
# What `make test` is to make beside the tests: lint, shim-compat.
BESIDE ?=
SEEDS ?= 1000
SIM_ARGS ?=
MUTATION_ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo drill test test-quick test-broker torture sim mutation test-shim shim-compat spark-compat lint format setup classes pulsar \
	shim man deb test-deb image test-image test-pulsar test-pulsar5 pulsar-suite bench-peers bench-quick wheel lock docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: setup ## delayed messages on a real broker, through two kill -9s (DEMO_ARGS="--plain" for no terminal)
	@$(BIN)/tidegate demo $(DEMO_ARGS)

drill: setup ## faults done to a real broker and its daemon (DRILL_ARGS="broker-killed --rounds 5")
	@$(BIN)/tidegate drill run $(DRILL_ARGS)

# Some tests are run one after another, all of them side by side: docs/decisions/lanes.md.
test: setup $(VENV)/.spark classes ## every test: Python's with a real broker, and the shim's (PYTEST_ARGS="-k attach" for some)
ifeq ($(strip $(PYTEST_ARGS)),)
	@tests/lanes $(BESIDE)
else
	@status=0; \
	$(BIN)/python -m pytest $(PYTEST_ARGS) || status=1; \
	$(MAVEN) -f plugin/shim/pom.xml test || status=1; \
	exit $$status
endif

test-quick: setup $(VENV)/.spark classes ## Python's tests that need no broker
	@$(BIN)/python -m pytest -m "not broker" $(PYTEST_ARGS)

test-broker: setup $(VENV)/.spark classes ## Python's tests beside a real broker
	@$(BIN)/python -m pytest -m broker $(PYTEST_ARGS)

torture: $(VENV)/.installed ## power cuts of a real daemon (ROUNDS=40 lives of 25 cuts each; 0: until Ctrl-C)
	@$(BIN)/python -m tests.torture.power_cuts

sim: $(VENV)/.installed ## simulated brokers and daemons under faults (SEEDS=10000; SIM_ARGS="--replay SEED --trace")
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) $(SIM_ARGS)

mutation: $(VENV)/.installed ## small faults put into the index and the daemon: who finds them (MUTATION_ARGS="--only 17")
	@$(BIN)/python -m tests.mutation run $(MUTATION_ARGS)
	@$(BIN)/python -m tests.mutation report

test-shim: build/.tools ## the shim's JUnit tests
	@$(MAVEN) -f plugin/shim/pom.xml test

# In copies, so that classes compiled against another Pulsar never end up in the jar.
shim-compat: build/.tools ## the shim, compiled and tested against newer Pulsars
	@set -e; for version in $(COMPATIBLE_PULSARS); do \
		copy=build/shim-$$version; rm -rf $$copy; mkdir -p $$copy; cp -R plugin/shim/pom.xml plugin/shim/src $$copy/; \
		$(MAVEN) -q -f $$copy/pom.xml -Ppulsar-$$version -Dframes.dir=$(CURDIR)/tests/testdata/frames test; \
		echo "shim: compiled and tested against Pulsar $$version"; \
	done; \
	java_home=$$($(PYTHON) -B plugin/local/toolchain.py --java-home $(NEWER_JDK)) || \
		{ echo "shim: NOT tested against Pulsar $(NEWER_PULSARS), which needs a JDK $(NEWER_JDK) or newer"; exit 0; }; \
	for version in $(NEWER_PULSARS); do \
		copy=build/shim-$$version; rm -rf $$copy; mkdir -p $$copy; cp -R plugin/shim/pom.xml plugin/shim/src $$copy/; \
		JAVA_HOME=$$java_home $(MAVEN) -q -f $$copy/pom.xml -Ppulsar-$$version -Dframes.dir=$(CURDIR)/tests/testdata/frames test; \
		echo "shim: compiled and tested against Pulsar $$version with $$java_home"; \
	done

# Not in CI: docs/decisions/assembled-homes.md.
test-pulsar: setup ## the tests beside a real broker of PULSAR=5.0.1 (a JDK 21 or newer) or 4.2.4, put together from its jars
	@TIDEGATE_PULSAR=$(PULSAR) $(BIN)/python -m tidegate.plugin.commands.setup
	@$(MAKE) --no-print-directory shim-compat
	@TIDEGATE_PULSAR=$(PULSAR) $(BIN)/python -m pytest $(PULSAR_TESTS) $(PYTEST_ARGS)

test-pulsar5: test-pulsar

# By hand, not in CI: Apache's tests are fetched, 8 MB.
pulsar-suite: setup ## Pulsar's own tests of delayed delivery, with our tracker (PULSAR=4.0.8, 4.2.4 or 5.0.1)
	@TIDEGATE_PULSAR=$(PULSAR) $(BIN)/python -m tidegate.plugin.commands.setup
	@TIDEGATE_PULSAR=$(PULSAR) $(BIN)/python -m tests.suite $(SUITE_ARGS)

# By hand, not in CI: two Sparks of 0.4 GB each, and each runs all of it.
spark-compat: setup $(VENV)/.spark classes ## the pipeline's tests with the oldest and the newest Spark (SPARK_TESTS=tests/pipeline)
	@set -e; for version in $(COMPATIBLE_SPARKS); do \
		spark=$${TIDEGATE_CACHE_DIR:-.cache}/pyspark-$$version; \
		if ! [ -e $$spark/.installed ]; then \
			echo "installing PySpark $$version into $$spark"; rm -rf $$spark; \
			$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --target $$spark pyspark==$$version || \
				{ echo "tidegate: pip could not install PySpark $$version: check the network" >&2; exit 1; }; \
			touch $$spark/.installed; \
		fi; \
		PYTHONPATH=$$(realpath $$spark) $(BIN)/python -m pytest $(SPARK_LENIENCY) $(SPARK_TESTS) $(PYTEST_ARGS); \
		echo "pipeline: tested with PySpark $$version"; \
	done

bench-peers: $(VENV)/.installed ## Redis, PostgreSQL and their clients, for the bench `peers`
	@bench/install_servers
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[bench]' || \
		{ echo "tidegate: pip could not install the clients: check the network, then run make bench-peers again" >&2; exit 1; }

# The others take minutes even with --quick.
bench-quick: setup ## the benches, small, in under 5 minutes: to see that they work, not for figures
	@echo "add, index, peers, and Tidegate's part of lateness; left out: the rest of lateness, failover, acks"
	@status=0; for bench in add index peers "lateness --only tidegate"; do \
		echo "== python -m bench run $$bench --quick"; \
		$(BIN)/python -m bench run $$bench --quick || status=1; \
	done; exit $$status

lint: $(VENV)/.spark ## ruff, strict mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p build/links/tidegate
	@for package in index plugin pipeline; do ln -sfn ../../../$$package build/links/tidegate/$$package; done
	@ln -sfn ../../../door/__init__.py build/links/tidegate/__init__.py
	@$(BIN)/mypy
	@mkdir -p build/rooms/tidegate
	@for package in index plugin pipeline; do ln -sfn ../../../$$package build/rooms/tidegate/$$package; done
	@PYTHONPATH=build/rooms $(BIN)/lint-imports

format: $(VENV)/.installed ## let ruff put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

setup: build/.tools $(VENV)/.installed pulsar shim ## everything that a broker with Tidegate needs, and nothing else

# So that each JVM of the tests starts with less work: docs/decisions/lanes.md.
classes: setup $(VENV)/.spark
	@$(BIN)/python -m tests.support.class_archives

pulsar: $(VENV)/.installed
	@$(BIN)/python -m tidegate.plugin.commands.setup >/dev/null

shim: $(JAR)

$(JAR): $(SHIM_SOURCES) | build/.tools
	@echo "building the shim"
	@$(MAVEN) -q -f plugin/shim/pom.xml -DskipTests package || \
		{ echo "tidegate: Maven could not build the shim; its lines above say why" >&2; exit 1; }
	@touch $@

# Asked first, so that a machine without Java says so before anything is downloaded.
build/.tools: plugin/local/toolchain.py
	@$(WRITABLE)
	@test -n "$(PYTHON)" || \
		{ echo "tidegate: no Python 3.11 or newer found: install one, or run: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -B plugin/local/toolchain.py --need python jdk maven --path .
	@mkdir -p build && touch $@

# Compiled at once: where Python may write no bytecode of its own, each start of the daemon would compile, twice as long.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt
	@$(WRITABLE)
	@test -n "$(PYTHON)" || \
		{ echo "tidegate: no Python 3.11 or newer found: install one, or run: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) plugin/local/toolchain.py --need python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
		{ echo "tidegate: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "installing the Python dependencies into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' || \
		{ echo "tidegate: pip could not install the dependencies: check the network, then run make again" >&2; exit 1; }
	@$(BIN)/python -m compileall -q door index plugin pipeline || true
	@touch $@

# Apart, for its 800 MB: the demo needs none of it.
$(VENV)/.spark: $(VENV)/.installed
	@echo "installing PySpark into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,spark]' || \
		{ echo "tidegate: pip could not install PySpark: check the network, then run make again" >&2; exit 1; }
	@touch $@

man: $(VENV)/.installed ## the man pages in build/man, made from the help
	@$(BIN)/python docs/site/manual.py build/man

wheel: $(VENV)/.installed $(JAR) man ## dist/*.whl with the shim's jar and the man pages in it, and SHA256SUMS
	@rm -rf build/lib build/bdist.* dist/tidegate-*.whl
	@$(BIN)/python -m build -q --wheel
	@cd dist && sha256sum tidegate-*.whl >SHA256SUMS
	@ls dist/*.whl

deb: wheel ## dist/tidegate_*.deb with daemon, libraries, unit, manual and completions (debhelper)
	@deploy/debian/build

# Not in CI: a Debian is fetched, 150 MB.
test-deb: $(VENV)/.installed ## the Debian package, installed into a Debian of its own, used and removed (root, mmdebstrap)
	@TIDEGATE_DEB=$$(ls dist/tidegate_*.deb) $(BIN)/python -m pytest -q tests/deploy/test_package.py

image: wheel ## the image of daemon and broker's files, and its SBOM in dist (buildah; BASE=…@sha256:…)
	@deploy/image/build

# Not in CI: a Debian is fetched as its base, 60 MB, and 80 MB of wheels.
test-image: wheel ## the image, built twice and run on a read-only root (root, mmdebstrap, buildah)
	@TIDEGATE_TEST_IMAGE=1 $(BIN)/python -m pytest -q -rP tests/deploy/test_image.py

docs: $(VENV)/.installed ## the docs as a site in build/site, its reference made from the code
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q && echo build/site/index.html

lock: ## constraints.txt anew, from the newest versions that pyproject.toml allows
	@$(WRITABLE)
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install -q --disable-pip-version-check -e '.[dev,bench,spark]'
	@{ echo "# The versions that make installs and CI tests with. Made by: make lock"; \
		build/lock/bin/python -m pip freeze --all --exclude pip --exclude-editable; } > build/lock/constraints.txt
	@mv build/lock/constraints.txt constraints.txt

clean: ## remove what was built (the virtual environment and .cache stay)
	@rm -rf build dist plugin/jars plugin/shim/target *.egg-info
