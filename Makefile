# Everything runs in .venv, built by `make setup`; nothing has to be activated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-for-tests
LIBRARY_TESTS := tests/root/test_checks.py tests/root/test_import.py tests/root/test_storage.py tests/moments tests/decomposition tests/policies tests/model
SPHINX_OPTIONS := --quiet --fail-on-warning --keep-going --nitpicky
export MPLBACKEND := Agg
# What packages are built with is pinned, too: pip hands this on to the environments it builds in.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))  # every target

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## build .venv with pinned versions

$(STAMP): pyproject.toml service/pyproject.toml reproduction/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; set PYTHON=... to name one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[command]' -e ./service -e ./reproduction
	$(BIN)/invariant-bandits compile
	@touch $@

$(TEST_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[command,test]' -e './service[test]' -e './reproduction[real]'
	@touch $@

lint: $(TEST_STAMP)  ## ruff, mypy (strict), import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint java clients browser promtool  ## all checks: linters, tests, doctests, documented examples
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

quick: $(TEST_STAMP)  ## tests that start no other process or system: an answer in under two minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m "not system and not slow" tests service/tests reproduction/tests

quick-library: $(STAMP)  ## the quick tests of the library alone, as on a machine without the parts that other tests need
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pytest pytest-xdist hypothesis scikit-learn pandas
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m "not system and not slow" $(LIBRARY_TESTS)

oldest:  ## tests of the foundations and the policies with the oldest versions that the packages allow, in build/oldest
	$(PYTHON) -m venv build/oldest
	PIP_CONSTRAINT=constraints-oldest.txt build/oldest/bin/python -m pip install --quiet --disable-pip-version-check \
	  '.[command,frames]' ./service ./reproduction pytest hypothesis scikit-learn
	cd tests && OPENBLAS_NUM_THREADS=1 ../build/oldest/bin/python -m pytest -q -m "not system and not slow" -W default::DeprecationWarning \
	  policies root/test_checks.py root/test_import.py root/test_registry.py root/test_storage.py

wheels: dist  ## check and import the wheels of all three packages, in build/wheels
	$(BIN)/python -m pip install --quiet --disable-pip-version-check twine
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear build/wheels
	build/wheels/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && wheels/bin/python -c "import invariant_bandits as ib, invariant_bandits_service, invariant_bandits_reproduction; \
	  print(ib.simulation.PaperWorld(), ib.LinUCB(2))"

docs: $(TEST_STAMP)  ## the documentation site, into build/docs; a warning is an error
	$(BIN)/sphinx-build $(SPHINX_OPTIONS) -b html docs build/docs
	@echo "open build/docs/index.html"

java:  # Spark needs it; where it cannot be installed those tests are skipped and say so
	@command -v java >/dev/null 2>&1 || { \
	  echo "installing Java for the Spark tests"; \
	  { apt-get update -qq && { apt-get install -y -qq openjdk-17-jre-headless || apt-get install -y -qq default-jre-headless; }; } \
	    >/dev/null 2>&1 || echo "Java could not be installed: the Spark tests will be skipped"; }

clients:  # OpenFeature's client for node; where it cannot be installed its test is skipped and says so
	@command -v npm >/dev/null 2>&1 && [ ! -d $(VENV)/node/node_modules ] && { \
	  mkdir -p $(VENV)/node && cp service/tests/node_clients/package.json $(VENV)/node/ \
	    && npm install --no-package-lock --no-audit --no-fund --silent --prefix $(VENV)/node >/dev/null 2>&1 \
	    || { rm -rf $(VENV)/node; echo "OpenFeature's client for node could not be installed: its test will be skipped"; }; } || true

browser:  # the page is tested in it; where it cannot be installed those tests are skipped and say so
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || { \
	  echo "installing Chromium for the tests of the page"; \
	  { apt-get update -qq && apt-get install -y -qq chromium; } \
	    >/dev/null 2>&1 || echo "Chromium could not be installed: the tests of the page will be skipped"; }

promtool:  # reads metrics, alert rules and the dashboard; where it cannot be installed those tests are skipped and say so
	@command -v promtool >/dev/null 2>&1 || { \
	  echo "installing Prometheus for the tests of metrics and alerts"; \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus; } \
	    >/dev/null 2>&1 || echo "Prometheus could not be installed: the tests of metrics and alerts will be skipped"; }

reproduce: setup  ## the main job: every experiment of the paper and ours, claims tested, figures, results/report.html
	$(BIN)/invariant-bandits reproduce --out results

figures: reproduce  ## README's pictures with their numbers, docs/figures, from the results of the present code
	$(BIN)/python -m invariant_bandits_reproduction.studies pictures --results results --figures docs/figures

bench: $(TEST_STAMP)  ## speed beside other packages in one interleaved run: docs/studies/speed.md (about 5 minutes)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' -e './reproduction[peers]'
	PYTHONPATH=. OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/suite.py

bench-more: $(TEST_STAMP)  ## diagonalisers, reading engines and the service, each in a run of its own
	$(BIN)/python benchmarks/offline.py
	$(BIN)/python benchmarks/logs.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/service.py

chaos: $(TEST_STAMP)  ## a service that is killed, cut off from power, filled, crowded, damaged; nothing acknowledged may be lost
	@for script in kill9 power_loss disk_full flip concurrency restart retention soak; do \
	  echo "== $$script"; OPENBLAS_NUM_THREADS=1 $(BIN)/python service/chaos/$$script.py || exit 1; done

attack: $(TEST_STAMP)  ## the long versions of all attacks, with tables of what was tried, refused and survived (hours)
	$(BIN)/python attacks/readers.py --count 20000 --seed 0
	$(BIN)/python attacks/commands.py --repeats 2 --interrupts 60 --kills 200 --seed 0

dist: $(TEST_STAMP)  ## source distributions and wheels of all three packages, with the pinned setuptools, into dist/
	rm -rf dist
	@for house in . service reproduction; do \
	  $(BIN)/python -m build --no-isolation --outdir dist $$house || exit 1; done

audit: $(TEST_STAMP)  ## known vulnerabilities of the pinned versions, where their database can be reached, and licences
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit \
	  || echo "pip-audit cannot be installed here: nothing was audited"
	@if [ -x $(BIN)/pip-audit ]; then \
	  said=$$($(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off 2>&1); code=$$?; \
	  echo "$$said" | grep -v "could not be audited"; \
	  echo "$$(echo "$$said" | grep -c "could not be audited") packages could not be audited from here"; \
	  if [ $$code -ne 0 ] && ! echo "$$said" | grep -q "known vulnerabilit"; then \
	    echo "the database of vulnerabilities cannot be reached from here: nothing was audited"; \
	  elif [ $$code -ne 0 ]; then exit 1; fi; fi
	$(BIN)/python benchmarks/licences.py

mutants: $(TEST_STAMP)  ## mutation testing over a stated sample (slow)
	$(BIN)/python benchmarks/mutants.py --sample 60 --seed 1

stamps: setup  ## mark the pages of docs/studies whose numbers are older than the code (seconds)
	$(BIN)/python -m invariant_bandits_reproduction.studies stamps

study-epochs: setup  ## slow experiments: the split estimated again in every epoch, the published recipe as printed (about 4 minutes)
	$(BIN)/invariant-bandits reproduce epochs-recomputed printed-published-logged-rounds --out build/epochs

study-offline: setup  ## the offline phase over 400 fresh repetitions per cell (about 5 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies offline --out docs/studies/offline.md

study-online: setup  ## regret of every policy over 200 fresh repetitions per row (about 8 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies online --out docs/studies/online.md

study-stress: setup  ## AutoISD where the logs mislead, 60 to 200 fresh repetitions per world (about 20 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies stress --out docs/studies/stress.md

study-arms: setup  ## labelled arms: regret, drifting effects, new arms, 40 fresh repetitions per world (about 20 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies arms --out docs/studies/arms.md

study-alarm: setup  ## the alarm of labelled arms: its level over 300 logs, and its power (about 15 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies alarm --out docs/studies/alarm.md

study-drift-level: setup  ## false drift, intervals and power with 30 to 120 columns (about 15 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies drift-level --out docs/studies/drift-level.md

study-real: setup  ## eight public data sets, tuned on the first half, played on the second (about 20 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[command]' -e './reproduction[real]'
	$(BIN)/python -m invariant_bandits_reproduction.studies real --out docs/studies/real.md

study-intervals: setup  ## coverage and width of off-policy intervals over 400 logs per cell (about 6 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies intervals --out docs/studies/intervals.md

study-randomised: setup  ## regret of randomised decisions against what their logs tell later, 300 logs (about 5 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies randomised --out docs/studies/randomised.md

study-constants: setup  ## every constant of AutoISD halved and doubled, and the price of caution (about 10 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies constants --out docs/studies/constants.md

study-wild: setup  ## logs as other systems write them: roles, leaks, drift, first models, order of policies (about 55 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies wild --out docs/studies/wild.md

study-related: setup  ## related methods of the literature, each in its own world and in the others' (about 8 minutes)
	$(BIN)/python -m invariant_bandits_reproduction.studies related --out docs/studies/related.md

study-peers: setup  ## the same rounds and data sets through our policies and those of other packages, each tuned (about 40 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[command]' -e './reproduction[peers,real]'
	$(BIN)/python -m invariant_bandits_reproduction.studies peers --out docs/studies/peers.md

pictures-autoisd: setup  ## the pictures of docs/method/autoisd.md (about a minute)
	$(BIN)/python -m invariant_bandits_reproduction.studies autoisd

pictures-proofs: setup  ## the picture of docs/method/proofs.md (half a minute)
	$(BIN)/python -m invariant_bandits_reproduction.studies proofs

pictures-concepts: setup  ## the drawings of docs/concepts (seconds)
	$(BIN)/python -m invariant_bandits_reproduction.studies concepts

clean:  ## remove the environment and all results
	rm -rf $(VENV) results build dist .pytest_cache .mypy_cache .ruff_cache
