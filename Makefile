# Everything is installed into .venv in this directory, and nothing elsewhere.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := PYTHON='$(PYTHON)' requirements/install.sh
FOR_RUN := .venv/for-run
FOR_TEST := .venv/for-test
FOR_BENCH := .venv/for-bench
LOCKED := pyproject.toml requirements/build.txt

.PHONY: run test lint format stubs bench soak lock clean

run: $(FOR_RUN)  ## set up, start a server on the embedded engine, show a session with it
	@$(BIN)/drillcore demo

test: lint  ## set up and run everything, each file of tests in one of three processes: many wait more than they compute
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile

lint: $(FOR_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(FOR_TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: $(FOR_TEST)  ## make the committed stubs from the .proto files
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

bench: $(FOR_BENCH)  ## set up what the benchmarks need; then: .venv/bin/python -m benchmarks NAME
	$(BIN)/python -m benchmarks --list

soak: $(FOR_TEST)  ## the long versions of the crash, serializability and bad-input tests
	DRILLCORE_SOAK=1 $(BIN)/python -m pytest tests/faults tests/conformance tests/property tests/documents/test_bad_input.py --timeout 3600

lock: $(FOR_TEST)  ## find the newest versions that fit pyproject.toml, for every supported Python and platform
	$(BIN)/python -m pip install -qq 'uv>=0.13,<1'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m requirements.renew

clean:  ## remove all that these commands made
	rm -rf .venv .data .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

# Each set of packages contains the one before it, so it stands for that one too.
$(FOR_RUN): $(LOCKED) requirements/run.txt
	@$(INSTALL) run
	@touch $@

$(FOR_TEST): $(LOCKED) requirements/test.txt
	@$(INSTALL) test
	@touch $(FOR_RUN) $@

$(FOR_BENCH): $(LOCKED) requirements/bench.txt
	@$(INSTALL) bench
	@touch $(FOR_RUN) $(FOR_TEST) $@
