PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: install run test test-clients test-load test-uml test-vm bench lint
install: $(VENV)/.installed

# libseccomp.so.2 is the one thing that pip cannot bring; Debian has it as libseccomp2.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcp-exec needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[sandbox,dev]'
	@$(BIN)/python -c 'import pyseccomp' 2>/dev/null || { test "$$(id -u)" = 0 && apt-get update -q && \
		apt-get install -y -q libseccomp2; } || { echo "install libseccomp2, then run make again" >&2; exit 1; }
	touch $@

run: install
	$(BIN)/mcp-exec doctor
	@echo
	$(BIN)/mcp-exec run examples/csv_report.py --stdin examples/sales.csv

test: install
	$(BIN)/pytest

# Real clients and the conformance suite, which are fetched the first time: docs/testing.md
test-clients: install
	$(BIN)/pytest tests/clients

test-load: install
	MCP_EXEC_LOAD_S=60 $(BIN)/pytest tests/http/test_load.py

# Cgroup v2 and no Landlock, whatever this machine has: docs/testing.md
test-uml: install
	tests/beds/uml.sh tests/limits tests/invariants -k 'not absurd_values'

# All that systemd can do for us, in a machine of its own: docs/testing.md
test-vm: install
	tests/beds/vm.sh tests/limits/test_cgroup.py tests/limits/test_memory.py tests/limits/test_tight.py -k 'not 200_runs'

# Side by side with bare Python and other sandboxes; make bench BENCH=--quick: docs/performance.md
bench: install
	$(BIN)/python -m bench $(BENCH)

lint: install
	$(BIN)/ruff check src tests examples bench
	$(BIN)/ruff format --check src tests examples bench
	$(BIN)/mypy
	$(BIN)/mcp-exec policy check
