PYTHON ?= python3
VENV = .venv

.PHONY: install test
install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q -e '.[sandbox,dev]'
	@$(VENV)/bin/python -c 'import seccomp' 2>/dev/null || $(VENV)/bin/python -c 'import pyseccomp' || { \
		test "$$(id -u)" = 0 && apt-get update -q && apt-get install -y -q libseccomp2; }
	touch $@

test: install
	$(VENV)/bin/pytest
