PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: install run test lint
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

lint: install
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/mcp-exec policy check
