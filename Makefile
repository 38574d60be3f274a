SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run demo test check fuzz bench clean

# Builds and starts broker, operator listener and APNs simulator with throw-away keys in var/, and stays.
run:
	@scripts/setup
	swift build -c release --product mayfly
	@exec .build/release/mayfly demo --stay

# The same, then plays the story of one room and ends.
demo:
	@scripts/setup
	swift build -c release --product mayfly
	@.build/release/mayfly demo

# Every test: each module's own, then the broker from outside.
test:
	@scripts/setup test
	swift build --build-tests
	swift build -c release --product mayfly
	@mkdir -p .build/log; modules=0; outside=0; \
	swift test --skip-build --no-parallel 2>&1 | tee .build/log/modules || modules=$$?; \
	.build/venv/bin/python -m pytest Tests/IntegrationTests -q -n 2 --dist loadgroup --no-loadscope-reorder 2>&1 | tee .build/log/outside || outside=$$?; \
	echo; echo "modules:  $$(grep 'Test run with' .build/log/modules | tail -n 1 || echo 'no summary')"; \
	grep 'recorded an issue' .build/log/modules || true; \
	echo "outside:  $$(tail -n 1 .build/log/outside)"; \
	(( modules == 0 && outside == 0 ))

# Format, boundaries, sanitizers, fuzzing.
check:
	@scripts/setup test
	scripts/check

# One fuzz target for longer: make fuzz TARGET=request SECONDS=600
fuzz:
	scripts/fuzz $(TARGET) $(SECONDS)

# The figures of docs/benchmarks.md, which this prints: some seventeen minutes on two quiet cores (its parts, added up). ONLY=engine|pairs|ledger|courier|companion|monitor|calls|sweep|shares|idle takes one part.
bench:
	@scripts/setup bench
	swift build -c release --product mayfly
	@python3 Benchmarks/bench.py --only '$(ONLY)' --rounds $(or $(ROUNDS),3) --seconds $(or $(SECONDS),5)

clean:
	rm -rf .build
