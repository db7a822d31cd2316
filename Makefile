# make demo      a first look: an array of files, real data, failures; without root
# make check     8 min once built, no root, no network: format, lints, docs, unit tests, models, simulator, fuzz corpus
# make test      25 min cold on 2 cores: check, and the real world: Linux md, NBD clients, kills
# make test-all  hours: test, instructions, guests under QEMU, the whole interop matrix, 10 min of fuzzing a target;
#                SECONDS=... each
# make soak      an hour of fresh seeds, or SECONDS=...
# make install   the program, its manual, completions, units and udev rule; PREFIX=... DESTDIR=...; root builds
#                nothing in another user's source: `make build`, then `sudo make install`
# make uninstall takes all of that away
# make package   a Debian package and a tarball of a release, in target/package
#
# Every group has its own time limit and prints its time. What a group runs is built before, under a
# limit of its own. Two or three tests of a group run side by side, except of clients, paths, instructions, guests and matrix;
# each guest has a CPU of its own. One build profile serves all tests, so nothing is built twice.

CARGO ?= cargo
GROUP := tools/group
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What is installed; another one is not built first.
PROGRAM ?= $(TARGET)/release/mdspace
# What root leaves in another user's folders is in that user's way: then it installs what is there.
BUILD_FIRST := $(shell [ "$$(id -u)" = 0 ] && [ "$$(stat -c %u .)" != 0 ] || echo build)
# One test program holds every test of the whole command; a group is one of its modules.
TEST_OUTSIDE := $(CARGO) test --workspace --test outside
OUTSIDE := $(TEST_OUTSIDE) -- --test-threads=1
TWO_OUTSIDE := $(TEST_OUTSIDE) -- --test-threads=2
# What waits for processes and the kernel most of its time.
THREE_OUTSIDE := $(TEST_OUTSIDE) -- --test-threads=3
SIM := $(TARGET)/debug/sim
# What is built once and runs for a second.
WEAK_MEMORY := CARGO_PROFILE_DEV_OPT_LEVEL=0 $(CARGO) test -p mdspace-engine --features weak-memory --test weak_memory

.PHONY: demo build install uninstall package check test test-all soak tools fmt lint docs unit model spec sim exhaustive every-sequence \
	outside tree kernel clients mounts members paths kills documents durability instructions interop packages guests matrix fuzz
.NOTPARALLEL:

# Where the programs cannot be fetched, the demo takes the host's, or says which are missing.
demo:
	-@tools/fetch fio nbdcopy mkfs.ext4
	$(CARGO) run --quiet --release -p mdspace-cli --bin mdspace -- demo

build:
	$(CARGO) build --release -p mdspace-cli --bin mdspace

install: $(PROGRAM)
	@DESTDIR="$(DESTDIR)" tools/install "$(PROGRAM)" "$(PREFIX)"

uninstall:
	@DESTDIR="$(DESTDIR)" tools/install --remove "$(PREFIX)"

package: $(PROGRAM)
	@tools/package "$(PROGRAM)" "$(TARGET)/package"

$(TARGET)/release/mdspace: $(BUILD_FIRST)
	@true

check: fmt lint docs unit model spec sim exhaustive tree

test: tools check kernel clients mounts members paths kills documents durability interop

test-all: test instructions every-sequence packages guests matrix fuzz

soak: tools
	tools/soak $(SECONDS)

tools:
	@$(GROUP) tools 300 tools/fetch

fmt:
	@$(GROUP) fmt 30 $(CARGO) fmt --all --check

lint:
	@$(GROUP) lint 600 $(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(GROUP) lint-outside 120 $(CARGO) clippy --workspace --test outside -- -D warnings
	@$(GROUP) lint-models 300 $(CARGO) clippy -p mdspace-engine --features model,weak-memory \
	  --test model --test weak_memory -- -D warnings

docs: export RUSTDOCFLAGS = -D warnings
docs:
	@$(GROUP) docs 300 $(CARGO) doc --workspace --lib --no-deps

# Four at a time, however few the cores: many wait for processes.
unit:
	@$(GROUP) "build of unit" 900 $(CARGO) test --workspace --no-run
	@RUST_TEST_THREADS=4 $(GROUP) unit 900 $(CARGO) test --workspace

model:
	@$(GROUP) "build of model" 600 $(CARGO) test -p mdspace-engine --features model --test model --no-run
	@$(GROUP) "build of weak-memory" 600 env $(WEAK_MEMORY) --no-run
	@$(GROUP) model 300 $(CARGO) test -p mdspace-engine --features model --test model
	@$(GROUP) weak-memory 300 env $(WEAK_MEMORY)

# What an answer may rest on: all rules, and each left out. `spec --large` looks further.
spec:
	@$(GROUP) "build of spec" 300 $(CARGO) build --quiet -p mdspace-spec
	@$(GROUP) spec 300 $(CARGO) run --quiet -p mdspace-spec

# The program that the unit tests were built with: another build would take another set of features.
sim:
	@$(GROUP) "build of sim" 900 $(CARGO) test --workspace --no-run
	@$(GROUP) sim 300 $(SIM) --seeds 2000

# Tiny arrays, all sequences of two operations, every crash point, every subset of what was not durable.
exhaustive:
	@$(GROUP) "build of exhaustive" 900 $(CARGO) test --workspace --no-run
	@$(GROUP) exhaustive 120 $(SIM) --exhaustive --reduced

# All sequences of three.
every-sequence:
	@$(GROUP) "build of every-sequence" 900 $(CARGO) build --quiet --release --bin sim
	@$(GROUP) every-sequence 7200 $(CARGO) run --quiet --release --bin sim -- --exhaustive

outside:
	@$(GROUP) "build of outside" 900 $(TEST_OUTSIDE) --no-run

tree: outside
	@$(GROUP) tree 120 $(TWO_OUTSIDE) tree:: harness::

# Linux md alone: the oracle itself.
kernel: outside
	@$(GROUP) kernel 120 $(TWO_OUTSIDE) kernel::

clients: outside
	@$(GROUP) clients 180 $(OUTSIDE) clients::

# File systems and I/O on mounted arrays and their block devices. Needs root, and says SKIPPED without.
mounts: outside
	@$(GROUP) mounts 240 $(THREE_OUTSIDE) mounts::

members: outside
	@$(GROUP) members 240 $(THREE_OUTSIDE) members:: systemd:: install::

# Multipath over nbdkit and qemu-nbd, killed and stopped.
paths: outside
	@$(GROUP) paths 300 $(OUTSIDE) paths::

kills: outside
	@$(GROUP) kills 300 $(THREE_OUTSIDE) kills::

# Every shell block of README.md and docs/admin.md.
documents: outside
	@$(GROUP) documents 400 $(TWO_OUTSIDE) docs::

durability: outside
	@$(GROUP) durability 400 $(TWO_OUTSIDE) durability::

# Instructions a request, of the optimised program.
instructions: outside
	@$(GROUP) "build of instructions" 900 $(CARGO) build --release -p mdspace-cli --bin mdspace
	@$(GROUP) instructions 600 $(OUTSIDE) instructions::

# Long ones whose shorter sisters are in interop.
IN_MATRIX := interop::returning:: interop::replacing::a_replacement_that

interop: outside
	@$(GROUP) interop 1200 $(TWO_OUTSIDE) $(addprefix --skip ,$(IN_MATRIX)) interop::

# Every level, layout, chunk and place of the superblock (MDSPACE_MATRIX=5,0 runs a fifth of it), and the
# half-done arrays and the overlapping writes of interop on every level; and what interop leaves out.
matrix: outside
	@$(GROUP) matrix 14400 $(OUTSIDE) matrix::
	@MDSPACE_EVERY_LEVEL=yes $(GROUP) "matrix of states" 3600 $(OUTSIDE) interop::states:: interop::stress:: $(IN_MATRIX)

# What dpkg does with a release of the tests' own program.
packages: outside
	@$(GROUP) packages 600 $(OUTSIDE) package::

# Virtual machines on arrays, and a host that boots again: a distribution's kernel, emulated where /dev/kvm does not
# work. The first run downloads 140 MB, and builds the host's disk.
guests: outside
	@$(GROUP) "tools of guests" 600 tools/fetch qemu-guest
	@$(GROUP) "disk of guests" 900 tools/make-guest-disk
	@$(GROUP) guests 3600 $(OUTSIDE) guests::

# Every target for SECONDS, 10 minutes without: on stable Rust, guided by coverage.
fuzz:
	@for target in fuzz/fuzz_targets/*.rs; do \
	  $(GROUP) "fuzz $$target" 3600 fuzz/run "$$(basename "$$target" .rs)" $(or $(SECONDS),600) || exit; \
	done
