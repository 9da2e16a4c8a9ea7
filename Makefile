# What people and CI call. `make help` lists it. Everything lands in .venv and .build; nothing outside the project changes.
# Needs Python 3.11 or newer, a C compiler and PyPI.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
JOBS ?= 2
QUICK_JOBS ?= 3# of `make quick`, on two CPUs: some of its tests wait
TEST_JOBS ?= 4# of `make test`, on two CPUs: its tests wait for other programs half of the time; each needs up to 1.2 GB of memory
TESTS ?=
MACHINE := $(shell uname -m)
BIN := .venv/bin
# Without --no-compile, pip compiles 1.3 GB of modules, of which few are used; Python compiles those when they are imported first.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
NATIVE := $(wildcard _ext/*/*.pyx _ext/*/*.pxd _ext/*/*.h)
PACKED := broker _ext docs grafana deploy setup.py pyproject.toml MANIFEST.in CHANGELOG.md README.md# what a wheel is made of
NOT_PACKED := -not -name '*.so' -not -name '*.c' -not -name '*.pyc' -not -path '*.egg-info/*'
VARIANT := JOBS=$(JOBS) $(BIN)/python tools/build_variant.py# a copy of the package in .build/NAME with other options
# Without the limit, a process that dies (a signal, a finding of a sanitizer) makes pytest-xdist wait for ever.
DISTRIBUTED := --dist loadgroup --max-worker-restart=0
SANITIZED_TESTS := tests/protocol tests/net tests/storage tests/shm tests/replication/test_fetcher.py tests/faults/test_bad_input.py \
	tests/api/test_hostile_frames.py tests/api/test_gates.py tests/api/test_produce.py tests/api/test_transactional_produce.py \
	tests/api/test_fetch.py tests/api/test_follower_fetch.py tests/api/test_old_formats.py tests/api/test_decompression.py \
	tests/api/test_aborted_transactions.py tests/api/test_groups.py tests/groups/test_native_commits.py \
	tests/groups/test_native_membership.py tests/processes/coordinator/internal_topics/test_log_replay.py tests/transactions/test_records.py \
	tests/faults/test_bytes_before_login.py tests/processes/worker/test_logins.py tests/security/test_exchange.py tests/security/test_plain.py \
	tests/security/test_scram.py tests/security/test_scram_login.py tests/tls tests/mirror/test_moved_batches.py tests/mirror/test_hostile_batches.py \
	tests/cli/records/test_fetched_records.py tests/cli/records/test_hostile_records.py tests/cli/records/test_record_printing.py
CUT_TESTS := tests/cuts tests/net/test_connection_life.py tests/net/test_connection_responses.py \
	tests/net/test_tls_connections.py tests/net/test_tls_fragments.py tests/net/test_tls_hostile.py \
	tests/net/test_connection_model.py tests/net/test_forwarded_requests.py \
	tests/api/test_parked_requests.py tests/api/test_transactional_produce.py tests/api/test_transactional_order.py \
	tests/api/test_vanishing_members.py
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start thousands of brokers and commands. Where this variable is set, each of them compiles all its modules again:
# half of the CPU time of a start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help build build-test build-dev tables demo run cluster quick test test-all wheel deb test-faults test-cuts test-package deploy-test release test-wheel chaos chaos-cluster test-sanitized bench lint install-systemd clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

build: .build/installed .build/native ## compile, and install in .venv what `make demo` and `make run` need (.venv/bin/odradek)

.build/venv:
	@test -n "$(PYTHON)" || { echo "needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@mkdir -p .build
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -c 'import os, sys, sysconfig; file = sysconfig.get_path("include") + "/Python.h"; \
		os.path.exists(file) or sys.exit(f"needs the headers of Python, {file}: install python3-dev (Debian) or python3-devel (Fedora)")'
	@touch $@

# What the build needs is in .venv, so that only what changed is compiled again.
.build/requirements: pyproject.toml .build/venv
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >$@.new
	@$(PIP) -r $@.new >.build/install.log 2>&1 || { tail -n 40 .build/install.log >&2; exit 1; }
	@mv $@.new $@

.build/native: setup.py $(NATIVE) .build/requirements
	@echo "compiling those of the $(words $(filter %.pyx,$(NATIVE))) native modules that changed, with $${ODRADEK_JOBS:-$$(nproc)} processes;" \
		"all of them take about a minute and a half on two CPUs; the log is .build/compile.log"
	@PYTHONUNBUFFERED=1 $(BIN)/python setup.py -q build_ext --inplace 2>&1 | tee .build/compile.log \
		| { grep -E --line-buffered '^(compiled [0-9]|the C sources of )' || true; } \
		|| { tail -n 60 .build/compile.log >&2; exit 1; }
	@touch $@

# pip takes the modules that are compiled already (setup.py says how). Again when the dependencies changed.
.build/installed: pyproject.toml setup.py .build/requirements | .build/native
	@echo "installing into .venv; the log is .build/install.log"
	@$(PIP) --no-build-isolation --config-settings editable_mode=compat -e '.[demo]' >.build/install.log 2>&1 \
		|| { tail -n 40 .build/install.log >&2; exit 1; }
	@touch $@

# The package is installed already, so pip adds what its extra needs and compiles nothing.
build-test: .build/installed-test .build/native
.build/installed-test: .build/installed | .build/native
	@echo "installing what make quick and make lint need (0.25 GB with what is there) into .venv; the log is .build/install-test.log"
	@$(PIP) 'odradek[test]' >.build/install-test.log 2>&1 || { tail -n 40 .build/install-test.log >&2; exit 1; }
	@touch $@

build-dev: .build/installed-dev .build/native
.build/installed-dev: .build/installed-test | .build/native
	@echo "installing what tests and reports need (1.3 GB) into .venv; the log is .build/install-dev.log"
	@$(PIP) 'odradek[dev]' >.build/install-dev.log 2>&1 || { tail -n 40 .build/install-dev.log >&2; exit 1; }
	@touch $@

tables: build-test ## write the files that are made from others: pages and tables of docs/, the dashboards, the stubs of _ext/, copies for Helm
	@$(BIN)/python -m odradek.config.reference docs/reference/configuration.md
	@$(BIN)/python -m odradek.metrics.reference docs/reference/metrics.md
	@$(BIN)/python -m odradek.cli.packaging.reference docs/reference/commands.md
	@$(BIN)/python -m odradek.metrics.background_tasks docs/reference/alerts.md
	@$(BIN)/python -m odradek.api.reference broker/odradek/api/served.py docs/reference/acls.md
	@$(BIN)/python -m odradek.protocol.reference
	@$(BIN)/python -m odradek.mirror.reference docs/operate/mirror.md
	@$(BIN)/python -m grafana
	@$(BIN)/python tools/native_stubs.py
	@$(BIN)/python tools/chart_files.py

demo: build ## real files through a temporary broker and back, every byte compared
	@$(BIN)/odradek demo
	@echo "next:     make run                                         a broker on port 9092"
	@echo "          .venv/bin/odradek topic create orders            in another terminal; then produce and consume"
	@echo "          .venv/bin/odradek --help, docs/operate/cli.md            what else the command can do"

run: build ## a broker in the foreground on port 9092, data in .build/run
	@mkdir -p .build/run
	@exec $(BIN)/odradek start --set listeners=PLAINTEXT://:9092 \
		--set advertised.listeners=PLAINTEXT://localhost:9092 --set log.dirs=$(CURDIR)/.build/run

cluster: build ## ZooKeeper and three brokers with a topic, to try out a cluster; until Ctrl-C (needs Java; docs/operate/cluster.md)
	@$(BIN)/python -m tests.cluster.playground

quick: build-test ## the tests that start no broker and no other program: less than a minute and a half on two CPUs
	@HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n $(QUICK_JOBS) $(DISTRIBUTED) --tier quick $(TESTS)

# pytest rewrites and compiles all modules of tests when it imports them first: 20 s of CPU time, in each of its processes. Here one
# does it for all, beside mypy, which uses one CPU. What is wrong with a module is the message of the tests that follow.
# test-package waits for pip most of the time, so it runs beside test-faults and test-cuts.
test: build-dev ## lint, then all tests that CI runs: about 20 minutes on two CPUs (TESTS=tests/config for some of them)
	@$(BIN)/python -m pytest -q --collect-only $(TESTS) >.build/collect.log 2>&1 & \
		$(MAKE) lint || { wait; exit 1; }; wait
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) $(DISTRIBUTED) --durations=25 --tier test $(TESTS)
	@test -n "$(TESTS)" || { $(MAKE) test-package >.build/test-package.log 2>&1 & \
		$(MAKE) test-faults test-cuts || { wait; exit 1; }; wait $$! || { cat .build/test-package.log >&2; exit 1; }; \
		cat .build/test-package.log; }
	@$(if $(filter test-all,$(MAKECMDGOALS)),,$(BIN)/python -m tests.tiers)

test-all: test ## also what takes long: live dashboards and alerts, the sanitizers
	@$(BIN)/python -m pytest -q -n $(JOBS) $(DISTRIBUTED) --durations=25 --tier nightly $(TESTS)
	@ACCESS_SETS=50 AUTHORIZER_SETS=10000 REVOCATION_ROUNDS=1000 $(BIN)/python -m pytest -q -o timeout=3600 \
		tests/security/test_authorizer.py tests/security/test_access_against_kafka.py \
		tests/security/test_against_standard_authorizer.py tests/security/test_revocation.py
	@$(MAKE) deploy-test test-sanitized

test-faults: build-dev ## kill a process between every two steps of what it does to a log
	@$(VARIANT) debug python -m pytest -q -n $(JOBS) --tier faults tests/shm

test-package: build-dev ## make an sdist, from that a wheel, and run the demo from the wheel in an environment of its own
	@$(BIN)/python -m pytest -q --tier package tests/packaging

# Not in parallel: each of them starts up to three machines, or a Kubernetes API server.
deploy-test: build-dev ## install, upgrade and remove on real machines, an API server of Kubernetes, the image; needs root
	@$(BIN)/python -m pytest -q --tier deploy --durations=25 tests/deploy tests/packaging

# The units that `make build` compiled are not compiled again. auditwheel names the oldest glibc that the wheel runs on.
wheel: build ## a wheel for other machines (manylinux), in dist/
	@$(PIP) 'odradek[wheel]' >.build/wheel.log 2>&1 || { tail -n 40 .build/wheel.log >&2; exit 1; }
	@rm -rf .build/wheel
	@$(BIN)/python -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps -w .build/wheel . >.build/wheel.log 2>&1 \
		|| { tail -n 40 .build/wheel.log >&2; exit 1; }
	@$(BIN)/auditwheel repair -w dist .build/wheel/odradek-*.whl >>.build/wheel.log 2>&1 || { tail -n 40 .build/wheel.log >&2; exit 1; }
	@ls -t dist/odradek-*.whl | head -n 1

# From the wheel in dist/, which is made again only if a source is newer. gzip, because it is quick; xz is for releases.
deb: ## the Debian package, in dist/, for a trial or your own machines (OPTIONS="--compression xz"; docs/operate/install.md)
	@wheel=$$(ls -t dist/odradek-*-cp311-*manylinux*_$(MACHINE).whl 2>.build/no-wheel | head -n 1 || true); \
	test -n "$$wheel" && test -z "$$(find $(PACKED) -type f -newer "$$wheel" $(NOT_PACKED) -print -quit)" || $(MAKE) wheel
	@$(BIN)/python -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit("make deb: .venv has Python %d.%d, and the package needs a wheel \
	for 3.11, that of Debian 12: make distclean, then make deb PYTHON=python3.11" % sys.version_info[:2])'
	@PYTHON=$(CURDIR)/$(BIN)/python deploy/debian/build $$(ls -t dist/odradek-*-cp311-*manylinux*_$(MACHINE).whl | head -n 1) --compression gzip $(OPTIONS)

# It compiles the modules of each target from the sdist with a compiler from PyPI, and keeps them in .build/release for its next run
# (decisions 38 and 53).
release: build ## everything that is published, in dist/: wheels, sdist, packages, checksums, SBOM (OPTIONS=...)
	@deploy/release/build $(OPTIONS)

# pip chooses the wheel for this machine. PATH names no directory that exists, so pip finds no compiler.
test-wheel: ## install the wheel of dist/ for PYTHON and this machine in a new environment, and run the demo
	@rm -rf .build/test-wheel
	@$(PYTHON) -m venv .build/test-wheel
	@PATH=/nonexistent .build/test-wheel/bin/python -m pip install --quiet --disable-pip-version-check --no-index --find-links dist --no-deps odradek
	@PATH=/nonexistent .build/test-wheel/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: 'odradek[demo]'
	@PATH=/nonexistent .build/test-wheel/bin/odradek demo

chaos: build-dev ## an hour of kills, stops and full disks under load (MINUTES=60); needs root for its small disk
	@$(BIN)/python -m tests.faults.chaos --minutes $(or $(MINUTES),60)

chaos-cluster: build-dev ## half an hour of failures of a cluster under load (MINUTES=30); root for losses of power
	@$(BIN)/python -m tests.cluster.failures --minutes $(or $(MINUTES),30)

# The brokers that the tests start use the copy, too.
test-cuts: build-dev ## cut clients' connections in every state of their requests, under AddressSanitizer (needs gcc)
	@$(VARIANT) address python -m pytest -q -n $(JOBS) $(DISTRIBUTED) $(CUT_TESTS)

test-sanitized: build-dev ## what reads hostile bytes, under AddressSanitizer and UBSan: needs gcc, takes long (TESTS=...)
	@$(VARIANT) sanitized python -m pytest -q -n $(JOBS) $(DISTRIBUTED) -o timeout=1200 $(or $(TESTS),$(SANITIZED_TESTS))

# The load generator: what `python -m bench` drives, and by itself for profiling (`.build/gen --help`).
.build/gen: $(wildcard bench/generator/*.[ch])
	@mkdir -p .build
	@test -e /usr/include/openssl/ssl.h || { echo "the generator needs OpenSSL's headers (Debian: libssl-dev)" >&2; exit 1; }
	@$(CC) -O2 -g -Wall -Wextra -o $@ $(filter %.c,$^) -lssl -lcrypto -pthread

bench: build-dev .build/gen ## the benchmark against Apache Kafka; writes bench/RESULTS.md
	@$(BIN)/python -m bench

lint: build-test ## ruff, mypy, cython-lint, the direction of imports, the stubs of the native modules
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/cython-lint _ext
	@$(BIN)/python tools/native_layers.py
	@$(BIN)/python tools/native_stubs.py --check
	@$(BIN)/lint-imports --no-logo >.build/imports.log 2>&1 || { cat .build/imports.log >&2; exit 1; }

install-systemd: ## the broker as a systemd service (as root; OPTIONS="--with-report --enable"; docs/operate/install.md)
	@deploy/systemd/install $(OPTIONS)

clean: ## remove what was compiled, and the data of `make run`
	@rm -rf .build build *.egg-info
	@rm -f _ext/*/*.c _ext/*/*.so

distclean: clean ## also remove .venv
	@rm -rf .venv
