# The commands of the README. Everything else is ./dev.
.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: setup python configure build train test cuda clean

BUILD := build
JOBS := $(shell nproc)
# One more: tests of ranks, signals and servers wait.
TEST_JOBS := $(shell expr $(JOBS) + 1)

setup:
	@tools/setup.sh

build: configure
	@cmake --build $(BUILD) -j $(JOBS) --target octet octet_shared

# What the Python package is built and tested with; where there is none, its tests skip.
python: setup
	@tools/setup_python.sh $(BUILD)

configure: setup
	@mkdir -p $(BUILD)
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) > $(BUILD)/configure.log 2>&1 \
	  || { cat $(BUILD)/configure.log; exit 1; }

# Builds with one line, that of what it is at where there is a terminal; then three minutes to watch.
train: configure
	@tools/quiet_build.sh $(BUILD) $(JOBS)
	@$(BUILD)/octet demo

test: python configure
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) -j $(TEST_JOBS) --output-on-failure --no-tests=error -LE slow

cuda: build
	@tools/cuda.sh $(BUILD)

clean:
	@rm -rf $(BUILD)
