# The whole developer interface. Every target sets up what it needs, as an ordinary user: .venv here, and real
# servers in a cache folder (deploy/local/README.md). PYTHON=... picks the Python, 3.11 or newer.
SHELL := /bin/bash
export PYTHON
# Images of Python for containers often set this. Each of the many processes of tests would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
.PHONY: image image-test docs pages demo help test flat test-deep test-lowest lint format bench evidence papers chaos attacks soak fuzz services dist sbom constraints clean

help: ## lists the targets
	@sed -n 's/^\([a-z][a-z -]*\):.* ## \(.*\)/\1\t\2/p' Makefile | expand -t 40

demo: .venv/.demo .venv/.kernels ## everything on this machine: people who click, worker, node
	$(BIN)/omdml demo

# A thread of BLAS that has nothing to do keeps a processor busy for 2^26 cycles before it sleeps, which other tests lack.
# Here it sleeps after 2^4. There are as many threads as elsewhere.
test flat test-lowest: export OPENBLAS_THREAD_TIMEOUT := 4

# Tests with servers wait for them most of the time. Flat ones compute, so they run beside these with a lower priority.
# They have ports of their own (FIRST_PROCESS, see tests/conftest.py) and a cache of their own, because each run writes at
# its end which of its tests failed. DEEP=1 adds what takes long (tests/support/deep.py).
AT_ONCE ?= 5
PYTEST := $(BIN)/python -m pytest --maxprocesses 8
FLAT := $(PYTEST) omdml tests --ignore=tests/integration --ignore=tests/fault --dist worksteal
# A machine that others use too can starve a broker for minutes. A test with servers that failed among others runs once
# more, alone, and has to pass then. The first failure stays in the output. A group is part of a test's name, so the
# second run groups too.
WITH_SERVERS := $(PYTEST) tests/fault tests/integration --dist loadgroup
AGAIN := -n 1 --last-failed --last-failed-no-failures none
test: .venv/.dev .venv/.compiled ## all tests: flat ones beside those that need Kafka and Redis, and those that kill processes
	@said=$$(mktemp); FIRST_PROCESS=8 nice -n 10 $(FLAT) -n 4 -o cache_dir=.pytest_cache/flat >"$$said" 2>&1 & beside=$$!; \
	trap 'exit 130' INT TERM; trap 'kill $$beside 2>/dev/null; rm -f "$$said"' EXIT; \
	$(WITH_SERVERS) -n $(AT_ONCE); servers=$$?; \
	wait $$beside; flat=$$?; cat "$$said"; \
	if [ $$servers != 0 ]; then $(WITH_SERVERS) $(AGAIN); servers=$$?; fi; \
	echo "flat tests ended with $$flat, those with servers with $$servers"; [ $$flat = 0 ] && [ $$servers = 0 ]

flat: .venv/.dev .venv/.compiled ## the tests that need no servers
	$(FLAT) -n 4

test-deep: export DEEP := 1
test-deep: test ## all of them, with many more examples of each property, and the longest sequences of faults

# Kernels of another numba are kept apart. What is about deploy/ (as the embedding on Spark) and this repository itself needs
# tools, not lower bounds.
test-lowest: export NUMBA_CACHE_DIR := $(CURDIR)/.venv-lowest/kernels
test-lowest: ## flat tests on the lowest versions that pyproject.toml allows
	@deploy/local/setup.sh lowest
	@.venv-lowest/bin/python -m tests.support.kernels
	.venv-lowest/bin/python -m pytest -n auto --maxprocesses 16 --dist worksteal omdml tests/omdml tests/streams tests/workers --ignore=tests/workers/operate/history/test_embedding.py

lint: .venv/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy omdml deploy docs

docs: .venv/.dev ## the documentation site in build/docs; a broken link fails
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . build/docs

pages: .venv/.dev ## writes again the parts of documents that follow from the code
	$(BIN)/python -m docs.reference.pages && $(BIN)/python -m deploy.metrics_page

format: .venv/.dev
	$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

MODULE_bench := benchmarks
MODULE_papers := benchmarks.papers
MODULE_chaos := tests.fault.chaos
MODULE_attacks := tests.fault.attacks
bench papers chaos attacks: .venv/.dev .venv/.kernels ## what is fast and good (ONLY=clicks: one of them); the papers' tables; what faults cost; what attackers can do
	$(BIN)/python -m $(MODULE_$@) $(ONLY)

# The whole takes hours, most of them for clicks and quality. What these two have computed is kept, so an interrupted run goes on.
evidence: .venv/.dev .venv/.kernels ## measures the figures of the documents again and fails if the text disagrees (ONLY="sizing speed": a part; ALL=1: also what takes long)
	$(BIN)/python -m benchmarks.evidence $(if $(ALL),--all) $(ONLY)

soak: .venv/.dev .venv/.kernels ## 200 models under mixed faults for SOAK_S=1800 seconds: memory, files, threads; table and plot in build/
	$(BIN)/python -m tests.fault.soak

fuzz: .venv/.fuzz .venv/.kernels ## decoders and loaders, FUZZ_S=60 seconds each
	$(BIN)/python -m tests.fuzz

services: .venv/.demo ## a real Kafka, with a topic, and a real Valkey, empty, until Ctrl-C throws them away
	$(BIN)/python -m deploy.local up kafka valkey --topic feedback

image: ## the container image omdml:VERSION, by docker, podman or buildah; BASE=IMAGE takes another base
	deploy/container/build.sh

image-test: .venv/.dev .venv/.kernels ## builds it on a Debian root made here, and runs it on real Kafka and Valkey; ten minutes, as root
	deploy/container/try.sh

dist sbom constraints: ## wheel and source archive; what an installation consists of; exact versions of everything
	@deploy/local/setup.sh $@

# numba looks only at the date of a function's own file: not at the functions it calls, nor at what is in the file. If any
# kernel changed, all are compiled again. If only dates did, as a checkout has it, the files get back those the cache knows.
.venv/.kernels: $(sort $(shell find omdml/kernels -name '*.py'))
	@sha256sum $^ | cmp -s - $@ || { find omdml/kernels -name '*.nb[ci]' -delete && rm -f .venv/.compiled && sha256sum $^ >$@; }
	@touch -r $@ $^

.venv/.compiled: .venv/.kernels .venv/.dev
	@$(BIN)/python -m tests.support.kernels && touch $@

.venv/.demo .venv/.dev .venv/.fuzz: pyproject.toml constraints.txt
	@deploy/local/setup.sh $(@F:.%=%)

clean:
	rm -rf .venv .venv-lowest .venv.lock build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
