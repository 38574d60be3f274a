SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run demo cluster test check check-package years soak fuzz bench deb image clean

# Builds and runs broker, operator listener and APNs simulator with throw-away keys in var/ until it is interrupted.
run:
	@scripts/setup
	swift build -c release --product mayfly
	@exec .build/release/mayfly demo --stay

# The same, but plays the story of one room and ends.
demo:
	@scripts/setup
	swift build -c release --product mayfly
	@.build/release/mayfly demo

# Runs three nodes behind HAProxy, and PostgreSQL with a standby server under Patroni, with throw-away keys until it is interrupted.
cluster:
	@scripts/setup cluster
	swift build -c release --product mayfly
	@exec packaging/cluster/run

# Runs module tests and, beside them, the tests of the broker from outside; campaigns are in `make check`. Both use a throw-away PostgreSQL.
# Module tests measure their own process (memory, descriptors), so they run one after the other.
# A run that hangs is ended. The last line of its log names the test, so the log has no buffer.
test:
	@scripts/setup test
	@scripts/syntax
	swift build --build-tests
	swift build --build-tests --package-path clients/swift
	@mkdir -p .build/log; failed=0; postgres=$$(scripts/postgres folder); trap "scripts/postgres stop $$postgres" EXIT; \
	MAYFLY_TEST_POSTGRES=$$(scripts/postgres start $$postgres); export MAYFLY_TEST_POSTGRES; \
	timeout -k 10 1800 stdbuf -oL swift test --skip-build --no-parallel >.build/log/modules 2>&1 </dev/null & modules=$$!; \
	.build/venv/bin/python -m pytest Tests/IntegrationTests -m 'not campaign and not package and not soak' -q -n 4 --dist loadgroup --no-loadscope-reorder \
	  2>&1 | tee .build/log/outside || failed=1; \
	wait $$modules || failed=1; \
	timeout -k 10 600 stdbuf -oL swift test --skip-build --package-path clients/swift >.build/log/client 2>&1 </dev/null || failed=1; \
	grep -hE 'recorded an issue|^↳ MAYFLY_TEST_SEED=|error:' .build/log/modules .build/log/client || true; \
	echo; echo "modules:  $$(grep 'Test run with' .build/log/modules || tail -n 2 .build/log/modules)"; \
	echo "Swift client:  $$(grep 'Test run with' .build/log/client || tail -n 2 .build/log/client)"; \
	echo "outside:  $$(tail -n 1 .build/log/outside)"; \
	(( failed == 0 ))

# Syntax, format, boundaries, promises, sanitizers, simulated time, fuzzing, benchmarks at their smallest size, instructions of single operations, and
# campaigns.
check:
	@scripts/setup check
	scripts/check

# Package and image: lintian, two builds that must be equal, and first pushes on a bare Debian. Needs root.
check-package: deb
	@scripts/setup test
	MAYFLY_BINARY=.build/static/release/mayfly .build/venv/bin/python -m pytest Tests/IntegrationTests -m package -q

# Simulated years (docs/testing.md): make years DAYS=3650 SEED=7. Both are optional. One broker prints a line a month. NODES=3 plays so many nodes on a
# throw-away PostgreSQL, and prints a line a day. All stay on one CPU: their threads wait for each other, and on two that takes longer beside other work.
years:
	@scripts/setup test
	swift build --build-tests -c release -Xswiftc -enable-testing --scratch-path .build/years
	@taskset -cp $$(shuf -i 0-$$(($$(nproc) - 1)) -n 1) $$$$ >/dev/null; \
	postgres=$$(scripts/postgres folder); trap "scripts/postgres stop $$postgres" EXIT; \
	MAYFLY_TEST_POSTGRES=$$(scripts/postgres start $$postgres) MAYFLY_TEST_DAYS=$(or $(DAYS),365) MAYFLY_TEST_SEED=$(or $(SEED),$$RANDOM) \
	  MAYFLY_TEST_NODES=$(NODES) stdbuf -oL swift test --skip-build -c release -Xswiftc -enable-testing --scratch-path .build/years \
	  --filter '\.$(if $(NODES),Deployment,Years)Tests/'

# A whole cluster under faults, with a table of what it holds: make soak HOURS=2. As root, nodes are also cut off, in a network of their own.
# MAYFLY_TEST_SEED plays the faults of a seed again.
soak:
	@scripts/setup cluster
	@scripts/setup test
	swift build -c release --product mayfly
	@network=$$(unshare --net true 2>/dev/null && echo unshare --net || true); \
	MAYFLY_BINARY=.build/release/mayfly MAYFLY_SOAK_HOURS=$(or $(HOURS),2) $$network .build/venv/bin/python -m pytest -s -m soak \
	  Tests/IntegrationTests/test_soak.py

# One fuzz target for longer: make fuzz TARGET=request SECONDS=600
fuzz:
	scripts/fuzz $(TARGET) $(SECONDS)

# Measures and replaces docs/benchmarks.md, which says how long that took. ONLY=pairs measures and prints one part. ROUNDS=1 SECONDS=1 prints worthless
# figures, and shows that every part works. AGAINST=folder measures pairs, sweep and webpush beside the `mayfly` and `mayfly-bench` of another build.
bench:
	@scripts/setup bench
	swift build -c release --product mayfly
	swift build -c release --product mayfly-bench
	@python3 Benchmarks/bench.py --only '$(ONLY)' --rounds $(or $(ROUNDS),3) --seconds $(or $(SECONDS),5) --against '$(AGAINST)'

# Builds the Debian package in .build/package.
deb:
	@scripts/setup package
	packaging/build-deb

# Builds a container image of that package, as an OCI archive.
image: deb
	packaging/build-image

clean:
	rm -rf .build
