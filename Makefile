# On a fresh machine with Python 3.11 and a C++ compiler. Each target makes .venv if it is missing.
#   make demo       train a small language model, and show on a page what it can do (within five minutes on two cores)
#   make test       lint, then every test, one worker per core
#   make quick      lint, then the fast tests: for the inner loop, in at most 90 seconds
#   make lint       ruff and mypy
#   make faults     many rounds of killed, damaged and starved trainings (ROUNDS=20); the counts go to results/faults.md
#   make fuzz       commands with odd words and damaged files: make fuzz CASES=10000 OUT=results/fuzz.md
#   make sanitize   the native kernel's tests under the address and undefined-behaviour sanitizers (GCC, CMake)
#   make ecosystem  tools of others on a saved model: lm-evaluation-harness, TRL, transformers serve (installs 220 MB)
#   make conformance  transformers' own common tests: TRANSFORMERS_TESTS=path of a checkout of transformers

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= logical
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

.PHONY: demo test quick lint faults fuzz sanitize conformance ecosystem clean

test: lint
	$(PYTEST)

quick: lint
	$(PYTEST) -m "not slow"

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: .venv/demo
	$(BIN)/python -m tnn demo --out build/demo

ROUNDS ?= 20

faults: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --rounds $(ROUNDS) --out results/faults.md

CASES ?= 10000

fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --cases $(CASES) $(if $(OUT),--out $(OUT))

SANITIZED := build/sanitize/libtoeplitz.so
RUNTIMES := $$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)

sanitize: .venv/ready
	cmake -S csrc -B build/sanitize -DCMAKE_CXX_COMPILER=$(CXX) -DTNN_SANITIZE=ON
	cmake --build build/sanitize
	LD_PRELOAD="$(RUNTIMES)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	TNN_NATIVE_LIBRARY=$(CURDIR)/$(SANITIZED) $(BIN)/python -m pytest tests/ops/test_native.py tests/ops/test_matmul.py tests/layers/test_norm.py -k 'native or norm'

conformance: .venv/conformance
	@test -n "$(TRANSFORMERS_TESTS)" || { echo "set TRANSFORMERS_TESTS to a checkout of transformers" >&2; exit 2; }
	TRANSFORMERS_TESTS="$(TRANSFORMERS_TESTS)" $(PYTEST) tests/conformance

ecosystem: .venv/ecosystem
	$(PYTEST) tests/ecosystem

SOURCES := pyproject.toml constraints.txt $(wildcard csrc/*)
INSTALL = $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.venv/ready: $(SOURCES)
	$(INSTALL) '.[dev]'
	touch $@

.venv/demo: $(SOURCES)  # less than the tests need
	$(INSTALL) '.[plot]'
	touch $@

.venv/conformance: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[conformance]'
	touch $@

.venv/ecosystem: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ecosystem]'
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
