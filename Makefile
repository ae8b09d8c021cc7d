# `make run` sets up and runs a ready pipeline, `make serve` serves it; `make test` passes the tests.
# Everything is installed into .venv. PYTHON chooses the interpreter: make setup PYTHON=python3.12

PYTHON  ?= python3
VENV    ?= .venv
PY      := $(VENV)/bin/python
WORKERS ?= 2
SAMPLES ?= classify
ARGS    ?=

# What `make run` runs and `make serve` serves: classify, detect, detect-classify, detect-video, embed, ocr.
PIPELINE ?= classify

VENV1   := .cache/venv-numpy1
PY1     := $(VENV1)/bin/python

# The stamp holds what the installation depends on, so a repeated `make setup` does nothing.
STAMP   := $(VENV)/.installed
STAMP1  := $(VENV1)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1

define check-python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
  echo "gepipe needs Python 3.10 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
       "name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
  echo "$(PYTHON) cannot create virtual environments;" \
       "on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup samples large-samples run serve test test-numpy1 bench lint wheel clean

help:  ## Show what can be made
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(STAMP)  ## Create .venv and install gepipe with what it needs

samples: $(STAMP)  ## Fetch models and media: make samples SAMPLES='classify embed'
	@$(PY) -m samples.fetch $(SAMPLES)

large-samples: $(STAMP)  ## Fetch the large samples (280 MB), as far as they can be had
	@for name in detect detect-video ocr; do \
	  $(PY) -m samples.fetch $$name || echo "without $$name, its tests are left out"; done

run: $(STAMP)  ## Run a ready pipeline on its samples: make run PIPELINE=ocr
	@$(PY) -m samples.fetch $(PIPELINE)
	$(VENV)/bin/gepipe run pipelines/$(PIPELINE).yaml $(ARGS)

serve: $(STAMP)  ## Serve a ready pipeline with Triton on 127.0.0.1, port 8000: make serve PIPELINE=ocr
	@$(PY) -m samples.fetch $(PIPELINE)
	@$(VENV)/bin/gepipe triton install $(if $(filter embed,$(PIPELINE)),--with text)
	$(VENV)/bin/gepipe triton export pipelines/$(PIPELINE).yaml out/models
	$(VENV)/bin/gepipe triton serve out/models $(ARGS)

test: samples large-samples  ## Run the tests
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

bench: samples  ## Measure, and write out/bench.json
	@mkdir -p out
	$(PY) tests/bench/run.py --output out/bench.json $(ARGS)

lint: $(VENV)/.lint  ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

wheel: $(STAMP)  ## Build the wheel into dist
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

test-numpy1: $(STAMP1)  ## Run the unit and property tests under NumPy 1.26
	$(PY1) -m pytest tests/unit tests/property $(ARGS)

clean:  ## Remove what was made; the cache of downloads in the home folder stays
	rm -rf $(VENV) .cache build dist out samples/models samples/media
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	$(check-python)
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -e '.[parquet,samples,test,text,track,triton,video]'
	@touch $@

$(VENV)/.lint: pyproject.toml | $(STAMP)
	$(PY) -m pip install --quiet -e '.[lint]'
	@touch $@

$(STAMP1): pyproject.toml constraints-numpy1.txt
	$(check-python)
	$(PYTHON) -m venv $(VENV1)
	$(PY1) -m pip install --quiet -c constraints-numpy1.txt -e '.[parquet,samples,test,text,track,video]'
	@touch $@
