# `make quickstart` and `make test` need Python 3.10+ and git, nothing else: the first of them makes
# a virtual environment in .venv, unless one is active, and installs this package into it once.
PYTHON ?= python3
# The tested pair; ignored where torch and torchvision are there already. Another CUDA version:
# see pytorch.org, e.g. make test TORCH='torch torchvision --index-url https://...'
TORCH ?= torch==2.14.1 torchvision==0.29.1
WORKERS ?= 2

VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PY := $(VENV)/bin/python
# One stamp per clone, since an active environment can serve several: the last install holds.
INSTALLED := $(VENV)/.locat-mmseg-$(firstword $(shell pwd | cksum))

QUICKSTART := configs/quickstart
QUICKSTART_RUN := work_dirs/quickstart/upernet_locatvit_shapes

.PHONY: install quickstart test test-slow

install: $(INSTALLED)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
	"locat-mmseg needs Python 3.10 or newer, %s is %s: make PYTHON=/path/to/python" \
	% (sys.executable, sys.version.split()[0]))'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(INSTALLED): setup.py pyproject.toml | $(PY)
	$(PY) -c 'import torch, torchvision' 2>/dev/null || $(PY) -m pip install $(TORCH)
	$(PY) -m pip install -e '.[test]'
	@$(PY) -c 'import cv2' || { echo 'OpenCV lacks a system library: apt install libgl1 libglib2.0-0'; exit 1; }
	@rm -f $(VENV)/.locat-mmseg-*
	@touch $@

# Pre-train a classifier, fine-tune UPerNet on it, test with pictures of image, truth, prediction.
quickstart: $(INSTALLED)
	$(PY) tools/train.py $(QUICKSTART)/locatvit_shapes.py
	$(PY) tools/train.py $(QUICKSTART)/upernet_locatvit_shapes.py
	$(PY) tools/test.py $(QUICKSTART)/upernet_locatvit_shapes.py \
		"$$(cat $(QUICKSTART_RUN)/last_checkpoint)" --show-dir $(QUICKSTART_RUN)/pictures

# One thread per worker: the tests are many and small.
test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist worksteal

test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist worksteal -m slow
