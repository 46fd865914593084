# Every target makes the environment that it needs. With another Python: make test PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TESTS ?= tests
# Test processes at a time: twice as many as cores, because they wait for processes that they start.
N ?= 4
# Tests start hundreds of processes, which need not compile every module again.
export PYTHONDONTWRITEBYTECODE =
MATRIX ?= python3.11 python3.13

.PHONY: demo setup test test-browser test-libraries test-transports test-matrix nightly lint check check-long chaos soak fuzz upgrade gameday faults shown format protos api docs bench \
  bench-placement placement-optima lock sbom clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(VENV)/.demo ## a tour in one minute: a cluster on this machine trains a model
	$(BIN)/jflow demo

setup: $(VENV)/.dev $(VENV)/.protos ## an environment in .venv with all that work on jflow needs

# What lint has run already.
test: LEFT_OUT = --ignore=tests/test_structure.py
test: lint check ## everything that has to pass

lint: $(VENV)/.dev $(VENV)/.protos ## style, types and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 0 tests/test_structure.py
	$(VENV)/protos/bin/python tools/generate_protos.py --check
	$(BIN)/python tools/generate_api_page.py --check
	$(BIN)/python tools/generate_names_page.py --check

check: $(VENV)/.dev ## the tests
	$(BIN)/python -m pytest -n $(N) --dist loadfile --no-loadscope-reorder -m 'not long and not product' $(LEFT_OUT) $(TESTS)

BY_GRPC = tests/net/protocol tests/net/wire tests/task/server tests/client/session tests/client/queues tests/training/coordinator tests/state/effects tests/client/functions

# Those of messages are parametrised; of the others, these use no proxies, which TCP does not pass.
BY_TCP = tests/client/queues tests/client/session

test-transports: $(VENV)/.dev ## the tests on every kind of backend, and those of messages by gRPC alone and over TCP
	$(BIN)/python -m pytest -n $(N) --dist loadfile --no-loadscope-reorder -m 'not long' $(TESTS)
	JFLOW_TRANSPORT=grpc $(BIN)/python -m pytest -n $(N) --dist loadfile --no-loadscope-reorder -m 'not long' $(BY_GRPC)
	JFLOW_TRANSPORT=tcp $(BIN)/python -m pytest -n $(N) --dist loadfile --no-loadscope-reorder -m 'not long' $(BY_TCP)

check-long: $(VENV)/.dev ## all tests, the long ones too, with forty times as many examples where they are drawn
	XLA_FLAGS= $(BIN)/python -m pytest -n $(N) --dist loadfile --hypothesis-profile long --timeout 7200 $(TESTS)

chaos: $(VENV)/.dev ## simulates clusters, for two minutes on each core; then kills producers and consumers, tasks that save, and workers, servers and coordinators that count
	$(BIN)/python -m tests.simulation --seconds 120
	$(BIN)/python -m tests.chaos

soak: $(VENV)/.dev ## works for 20 minutes, or HOURS, and finds what grows
	$(BIN)/python -m tests.soak

upgrade: $(VENV)/.dev ## clusters of the release before and of this code, and an upgrade while a training runs; needs the history of git
	$(BIN)/python -m pytest -n 0 tests/upgrade

gameday: $(VENV)/.dev ## a day of one cluster in some minutes: three users, faults and an operator; needs the history of git
	$(BIN)/python -m tests.gameday

fuzz: $(VENV)/.dev ## mutated programs, plans, frames and graph files, of JFLOW_FUZZ_SEED; nothing may end, grow or raise what is not jflow's
	$(BIN)/python -m tests.fuzz

# The sizes of the matrix, where they are not those of the parts.
faults: export JFLOW_CHAOS_SERVERS = 200
faults: export JFLOW_CHAOS_COORDINATORS = 100
faults: export JFLOW_CHAOS_SAVES = 500
faults: export JFLOW_FUZZ_PROGRAMS = 986000
faults: export JFLOW_FUZZ_SECONDS = 36000
faults: export HOURS = 4
faults: ## the fault matrix of docs/reliability.md at its large size, for most of a day; what is said is kept in build/faults.txt
	mkdir -p build
	bash -o pipefail -c '$(MAKE) --keep-going shown chaos fuzz soak 2>&1 | tee build/faults.txt'

shown: $(VENV)/.dev ## the tests that docs/reliability.md names, the long ones too
	XLA_FLAGS= $(BIN)/python -m pytest -n $(N) --dist loadfile --hypothesis-profile long --timeout 7200 \
	  $$(grep -o 'tests/[a-z0-9_/]*\.py::[a-z0-9_]*' docs/reliability.md | sort -u)

test-libraries: $(VENV)/.libraries ## libraries on JAX that jflow does not depend on, in an environment of their own
	$(VENV)/libraries/bin/python -m pytest tests/libraries

test-browser: $(VENV)/.browser ## what people see, in a real Chromium; installs Debian's if there is none (JFLOW_PICTURES=DIR: with screenshots)
	command -v chromium || command -v chromium-browser || { apt-get update && apt-get install --yes chromium; }
	$(VENV)/browser/bin/python -m pytest tests/browser

test-matrix: $(MATRIX:%=test-on-%) ## the tests on the oldest and the newest Python, each with its newest JAX

test-on-%:
	XLA_FLAGS= $(MAKE) check PYTHON=$* VENV=$(VENV)/$*

nightly: ## the same in new environments, with the newest release of everything: what to run each night, and before a release
	rm -rf $(MATRIX:%=$(VENV)/%)
	$(MAKE) test-matrix docs

format: $(VENV)/.dev ## puts the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protos: $(VENV)/.protos ## writes the generated modules from protos/
	$(VENV)/protos/bin/python tools/generate_protos.py

api: $(VENV)/.dev ## writes docs/api.md from the docstrings
	$(BIN)/python tools/generate_api_page.py
	$(BIN)/python tools/generate_names_page.py

docs: $(VENV)/.docs ## the site of the pages, in build/site; needs no network but for its environment
	$(VENV)/docs/bin/python -m sphinx --fail-on-warning --quiet -c docs -b html . build/site
	@echo "open build/site/index.html"

ifdef BASE
bench: $(VENV)/.dev ## measures jflow beside its peers (ONLY=queues: that group), or with BASE=COMMIT beside that commit (CASES='local remote': those)
	$(BIN)/python -m bench.against $(BASE) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) $(if $(CASES),--cases $(CASES))
else
bench: $(VENV)/.dev $(VENV)/.tensorflow $(VENV)/.reverb $(VENV)/.ray $(VENV)/.dask
	$(BIN)/python -m bench --tensorflow $(VENV)/tensorflow/bin/python \
	  --reverb $(VENV)/reverb/bin/python --ray $(VENV)/ray/bin/python \
	  --dask $(VENV)/dask/bin/python $(if $(ONLY),--only $(ONLY))
endif

bench-placement: $(VENV)/.dev ## compares placement strategies (QUICK=1: in two minutes; STRATEGIES=heft,mine:place)
	$(BIN)/python -m jflow bench placement --output bench/placement \
	  --optima bench/placement/optima.json \
	  $(if $(STRATEGIES),--strategies $(STRATEGIES)) $(if $(QUICK),--quick) $(if $(RESUME),--resume) \
	  $(if $(SEED),--seed $(SEED)) $(if $(IMPORTED),--imported $(IMPORTED))

placement-optima: $(VENV)/.dev ## proves optima of small graphs for the placement lab; hours, goes on where it ended
	$(BIN)/python -m bench.placement.optima

# The Python of the image in examples/kubernetes, for which its requirements are locked.
IMAGE_PYTHON ?= python3.12
LOCKED = examples/kubernetes
COMPILE = CUSTOM_COMPILE_COMMAND='make lock' $(VENV)/lock/bin/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host $(if $(UPGRADE),--upgrade)

lock: $(VENV)/.lock ## pins what the image installs, by hashes (UPGRADE=1: to the newest releases)
	$(COMPILE) --output-file $(LOCKED)/requirements.txt pyproject.toml
	$(COMPILE) --only-build-deps --build-deps-for wheel --output-file $(LOCKED)/build-requirements.txt pyproject.toml

sbom: $(VENV)/.image $(VENV)/.sbom ## the bill of materials of what the image installs, as CycloneDX in build/jflow.cdx.json
	mkdir -p build
	$(VENV)/sbom/bin/cyclonedx-py environment --output-reproducible --output-file build/jflow.cdx.json $(VENV)/image
	$(VENV)/image/bin/python tools/check_sbom.py build/jflow.cdx.json $(LOCKED)/requirements.txt

clean: ## removes the environment and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# One install for a demo, one for work: the stamps say which of them is done.
$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[progress]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.demo

# TensorFlow is a peer to measure, never a dependency.
$(VENV)/.tensorflow: | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/tensorflow
	$(VENV)/tensorflow/bin/python -m pip install --quiet --disable-pip-version-check tensorflow-cpu==2.21.0
	touch $@

# Reverb has no release for a newer Python: where it does not install, the bench leaves it out.
$(VENV)/.reverb: | $(VENV)/bin/python
	-python3.11 -m venv $(VENV)/reverb && \
	$(VENV)/reverb/bin/python -m pip install --quiet --disable-pip-version-check \
	  dm-reverb==0.14.0 'tensorflow-cpu==2.14.*' 'numpy<2' && touch $@

$(VENV)/.ray: | $(VENV)/bin/python
	-$(PYTHON) -m venv $(VENV)/ray && \
	$(VENV)/ray/bin/python -m pip install --quiet --disable-pip-version-check ray==2.60.0 jax && touch $@

$(VENV)/.dask: | $(VENV)/bin/python
	-$(PYTHON) -m venv $(VENV)/dask && \
	$(VENV)/dask/bin/python -m pip install --quiet --disable-pip-version-check distributed==2026.8.0 jax && touch $@

# Libraries that only these tests need, and that may hold back what everything else is tested with.
$(VENV)/.libraries: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/libraries
	$(VENV)/libraries/bin/python -m pip install --quiet --disable-pip-version-check -e '.[libraries]'
	$(VENV)/libraries/bin/python -m pip download --quiet --disable-pip-version-check --no-deps -d $(VENV)/libraries/data recbole==1.2.1
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

$(VENV)/.browser: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/browser
	$(VENV)/browser/bin/python -m pip install --quiet --disable-pip-version-check -e '.[browser]'
	touch $@

# Their releases follow the newest Python and pip, and none of the pins above.
$(VENV)/.lock: | $(VENV)/bin/python
	$(IMAGE_PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.6'
	touch $@

$(VENV)/.sbom: | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7.5'
	touch $@

# What the Dockerfile installs, as it does.
$(VENV)/.image: $(LOCKED)/requirements.txt $(LOCKED)/build-requirements.txt $(shell find jflow -name '*.py') pyproject.toml | $(VENV)/bin/python
	rm -rf $(VENV)/image $(VENV)/image-build build/wheels
	$(IMAGE_PYTHON) -m venv $(VENV)/image-build
	$(VENV)/image-build/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCKED)/build-requirements.txt
	$(VENV)/image-build/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheels .
	$(IMAGE_PYTHON) -m venv --without-pip $(VENV)/image
	$(VENV)/image-build/bin/pip --python $(VENV)/image install --quiet --disable-pip-version-check --require-hashes -r $(LOCKED)/requirements.txt
	$(VENV)/image-build/bin/pip --python $(VENV)/image install --quiet --disable-pip-version-check --no-deps --no-index build/wheels/*.whl
	touch $@

# The generator is old, so that its code runs on old and new protobuf; it lives apart because it
# would hold back the protobuf that everything else is tested with.
$(VENV)/.protos: | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/protos
	$(VENV)/protos/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.76.0
	touch $@
