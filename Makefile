# Two commands on a fresh machine with git, make and Python 3.11:
#   make ab_report    the flagship study's A/B report, as far as this machine can
#   make test         the tests
# Both make .venv from requirements.txt by themselves.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: ab_report test lint

ab_report: .venv/ready
	snakemake ab_report

test: .venv/ready
	python -m pytest

lint: .venv/ready
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile rules
	snakemake --lint
	mypy

.venv/ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "Python 3.11 is needed; make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@
