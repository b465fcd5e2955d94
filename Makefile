# Lockstep's only makefile. `make help` lists targets and settings.

comma := ,
space := $() $()
SAN   ?= 0
V     ?= 0
CUDA  ?= 0
# With CUDA=1: compiles and links the GPU code for its errors alone, in a quarter of the time. No test runs these kernels.
CUDA_CHECK ?= 0
ifneq ($(and $(filter 1,$(CUDA_CHECK)),$(filter install bundle dist check-gpu,$(MAKECMDGOALS))),)
$(error CUDA_CHECK=1 makes programs that nobody should run: it goes with `all` and `tests` only)
endif
BUILD := build/$(if $(filter 1,$(CUDA)),cuda,cpu)$(if $(filter 1,$(SAN)),-san)$(if $(filter 1,$(CUDA_CHECK)),-check)
# One job per core, unless the caller specifies a number.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
Q     := $(if $(filter 1,$(V)),,@)
VERSION := $(shell cat VERSION)$(if $(filter 1,$(CUDA_CHECK)),-unoptimised)

# MPICC compiles and links the program, HOST_CC the client.
MPICC    ?= mpicc
CC       := $(MPICC)
HOST_CC  ?= gcc
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wvla $(if $(filter 1,$(WERROR)),-Werror)
SANFLAGS := $(if $(filter 1,$(SAN)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
# CFLAGS, CPPFLAGS and LDFLAGS are the caller's, and come after the project's own: CFLAGS=-O1 is obeyed everywhere.
# The sanitized build needs line numbers only; -O1 compiles in half the time, and its programs are hardly slower.
CFLAGS   ?= $(if $(filter 1,$(SAN)),-g1,$(if $(filter 1,$(CUDA_CHECK)),,-g))
OPTIMISE := $(if $(filter 1,$(SAN) $(CUDA_CHECK)),-O1,-O2)
# Flags that make a memory error harder to exploit. Fortified functions need an optimiser and disturb sanitizers; the
# protection of jumps exists on x86 only. tests/unit/test_hardening.c reads the programs.
OPTIMISED := $(filter-out -O0,$(lastword $(filter -O%,$(OPTIMISE) $(CFLAGS))))
HARDEN    := -fstack-protector-strong $(if $(filter x86_64-%,$(shell $(HOST_CC) -dumpmachine 2>/dev/null)),-fcf-protection) \
             $(if $(OPTIMISED),$(if $(filter 1,$(SAN)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
PIE_LINK  := -pie -Wl,-z,relro,-z,now
# The same bytes wherever the sources are: no folder names in the debug information (make check-reproducible).
SAME      := -ffile-prefix-map=$(CURDIR)=.
ALL_CFLAGS = -std=c17 -fopenmp $(OPTIMISE) $(WARN) $(SANFLAGS) $(HARDEN) $(SAME) $(CFLAGS)
ALL_CPPFLAGS = -I. -D_GNU_SOURCE -DLOCKSTEP_VERSION='"$(VERSION)"' $(CUDA_CPPFLAGS) $(PACKAGE_CFLAGS) $(CPPFLAGS)

# Libraries, by pkg-config. They are looked up when the first file is compiled: `make deps` may have to install them first.
PKG_CONFIG      ?= pkg-config
CLIENT_PACKAGES := libzmq jansson
PACKAGES        := $(CLIENT_PACKAGES) libsodium libpcre2-8 libutf8proc libxxhash zlib
package_flags = $(strip $(foreach package,$(2),$(shell $(PKG_CONFIG) $(1) $(package) 2>/dev/null)))
PACKAGE_CFLAGS  = $(eval PACKAGE_CFLAGS := $$(call package_flags,--cflags,$$(PACKAGES)))$(PACKAGE_CFLAGS)
LIBS            = $(eval LIBS := $$(call package_flags,--libs,$$(PACKAGES)) $$(CUDA_LIBS) -lm -ldl)$(LIBS)
# libedit, if installed, edits the lines of a chat; EDIT=0: do not use it.
EDIT            ?= $(shell $(PKG_CONFIG) --exists libedit 2>/dev/null && echo 1)
EDIT_PACKAGE    := $(if $(filter 1,$(EDIT)),libedit)
GATEWAY_LIBS    = $(eval GATEWAY_LIBS := $$(call package_flags,--libs,$$(CLIENT_PACKAGES)) -lm)$(GATEWAY_LIBS)
CLIENT_LIBS     = $(eval CLIENT_LIBS := $$(call package_flags,--libs,$$(CLIENT_PACKAGES) $$(EDIT_PACKAGE)) -lm)$(CLIENT_LIBS)

# The folders of the program (docs/rooms.md); every source file in them is compiled.
ROOMS    := base partition kernels plan rank text protocol coordinator commands client gateway
ROOM_SRC := $(sort $(shell find $(ROOMS) -name '*.c'))
# The client is a separate program, without MPI; tests of its parts find them in the archive.
CLIENT_MAIN := client/main.c
CLIENT_SRC  := $(filter base/% client/%,$(ROOM_SRC))
# So is the gateway, which shares the client's connection.
GATEWAY_MAIN := gateway/main.c
GATEWAY_SRC := $(filter base/% gateway/%,$(ROOM_SRC)) client/connection.c client/resolve.c
HOST_SRC    := $(sort $(CLIENT_SRC) $(GATEWAY_SRC))
LIB_SRC     := $(filter-out kernels/cuda/% $(CLIENT_MAIN) $(GATEWAY_MAIN),$(ROOM_SRC))
CUDA_ONLY := rank/comm/comm_nccl.c
ifeq ($(CUDA),1)
# The GPU backend beside the CPU's, in one program. ARCH: compute capabilities; default: those of the GPUs here, or else these.
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(CUDA_HOME)/bin/nvcc
ifndef ARCH
ARCH      := $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | sed 's/^90$$/90a/'),80 90a)
endif
CUDA_CPPFLAGS := -DLOCKSTEP_CUDA -isystem $(CUDA_HOME)/include
# Older releases of nvcc lack --Ofast-compile; CUDA_CHECK=1 then takes longer. ptxas remarks on lost speed say nothing there.
CUDA_OPTIMISE := $(if $(filter 1,$(CUDA_CHECK)),-O1 $(if $(shell $(NVCC) --help | grep Ofast-compile),--Ofast-compile=max),-O3 -g -lineinfo)
CUDA_REMARKS = $(if $(filter 1,$(CUDA_CHECK)),2>$@.log; status=$$?; grep -v '^ptxas info' $@.log >&2; exit $$status)
NVCCFLAGS := -std=c++17 $(CUDA_OPTIMISE) -Xcompiler=-Wall,-Wextra,-fPIE,$(subst $(space),$(comma),$(strip $(HARDEN))) $(if $(filter 1,$(WERROR)),--Werror=all-warnings) -I. -DLOCKSTEP_CUDA \
             $(foreach arch,$(ARCH),-gencode=arch=compute_$(arch),code=sm_$(arch))
LIB_SRC   += $(sort $(shell find kernels/cuda -name '*.c' -o -name '*.cu'))
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -lcublasLt -lcublas -lnccl -lcudart -lstdc++
else
LIB_SRC   := $(filter-out $(CUDA_ONLY),$(LIB_SRC))
endif
LIB_OBJ := $(LIB_SRC:%=$(BUILD)/%.o)
ARCHIVE := $(BUILD)/liblockstep.a
PROGRAM := $(BUILD)/lockstep
CLIENT  := $(BUILD)/lockstep-client
GATEWAY := $(BUILD)/lockstep-gateway

# A test is tests/<kind>/test_*.c, found here without registration.
TEST_SRC := $(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/spmd/test_*.c tests/parity/test_*.c \
              tests/fail/test_*.c tests/e2e/test_*.c tests/attack/test_*.c tests/soak/test_*.c tests/gpu/test_*.c)
# The CUDA build has the tests that run on GPUs: each contains all kernels (200 MB); with CUDA_CHECK=1 those alone that the
# CPU build lacks, or has in part. The CPU build has all except those that compare the two ways to run a decode step.
GPU_TESTS := tests/ops/% tests/parity/% tests/gpu/% tests/soak/% tests/e2e/test_serve tests/spmd/test_masks \
             tests/spmd/test_batch tests/spmd/test_drafts tests/spmd/test_windows tests/spmd/test_pieces
ifeq ($(CUDA),1)
TEST_SRC := $(filter $(if $(filter 1,$(CUDA_CHECK)),tests/gpu/%.c,$(GPU_TESTS:=.c)),$(TEST_SRC))
else
TEST_SRC := $(filter-out tests/gpu/test_persistent%.c tests/gpu/test_in_vain.c tests/gpu/test_peer_sums.c,$(TEST_SRC))
endif
# The suite `sanitizers` runs these tests; tests of other kinds start the sanitized programs from the plain build.
ifeq ($(SAN),1)
TEST_SRC := $(filter-out tests/unit/test_%_speed.c,$(filter tests/unit/% tests/ops/% tests/spmd/% tests/parity/%,$(TEST_SRC)))
endif
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
TEST_OBJ := $(patsubst %,$(BUILD)/%.o,$(wildcard tests/support/*.c))
TEST_LIB := $(BUILD)/tests/support.a

# Fuzzers: the parsers of outside input, which need neither MPI nor a device. Their library is compiled once, by clang, and
# archived; a target tests/fuzz/fuzz_*.c is linked with the parts that it needs.
FUZZ_ROOMS := base partition plan text protocol coordinator client gateway
# Through ccache if HOST_CC uses it.
FUZZ_CC    ?= $(if $(filter ccache,$(notdir $(firstword $(HOST_CC)))),$(firstword $(HOST_CC)) )clang
FUZZ_FLAGS := -std=c17 -O1 -gline-tables-only -MMD -MP -fno-sanitize-recover=all
FUZZ_OBJ   := $(patsubst %,build/fuzz/%.o,$(filter-out $(CLIENT_MAIN) $(GATEWAY_MAIN),$(filter $(addsuffix /%,$(FUZZ_ROOMS)) commands/generation.c commands/%options.c,$(ROOM_SRC))))
FUZZ_LIB   := build/fuzz/liblockstep.a
FUZZ_BIN   := $(patsubst tests/fuzz/%.c,build/cpu/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: FORCE pages install uninstall dist all client gateway help demo deps deps-test deps-check deps-cluster tests preload fuzzers test run-tests check soak soak-batch bench-cpu sbom check-reproducible check-layers format check-format tidy tidy-changed clean check-gpu bundle check-builds compile-cuda compile-clang deps-ci
all: $(PROGRAM) $(CLIENT) $(GATEWAY)
client: $(CLIENT)
gateway: $(GATEWAY)

help:
	@echo "make [all]         build $(PROGRAM)"
	@echo "make client        build $(CLIENT) alone: needs only gcc, libzmq and jansson, no MPI"
	@echo "make gateway       build $(GATEWAY) alone: the same"
	@echo "make demo          install missing packages, build, tell a story on two ranks"
	@echo "make test          install missing packages, build, run the tests that edits break most often (about 2.5 minutes on 2 cores)"
	@echo "make check         install missing packages, build, run every test (about 15 minutes on 2 cores, 18 with nvcc)"
	@echo "make install       PREFIX=/usr/local DESTDIR=: programs, man pages, completions, documents; make uninstall"
	@echo "make dist          build/lockstep-$(VERSION).tar.gz, the committed sources"
	@echo "make deps          install the packages for building; deps-test, deps-check: and for these targets; deps-cluster: and a Slurm to test against"
	@echo "make bench-cpu     decode speed of a 1-billion-parameter model beside the read bandwidth"
	@echo "make CUDA=1        build build/cuda/lockstep, the GPU backend beside the CPU's (ARCH='80 90a')"
	@echo "make check-gpu     test it on the GPUs of this machine (CHECK='ops parity': parts of it); make CUDA=1 bundle: tarballs"
	@echo "make soak          long runs, about 10 minutes: 1000 clients, 100000 hostile messages, mixed batches; prints figures"
	@echo "make soak-batch    100 runs of a batch of 2000 prompts ended at random moments and resumed: nothing lost, nothing twice"
	@echo "make tests         build the tests only (CUDA=1: those that run on GPUs); tests/run.sh build/cpu unit runs one suite"
	@echo "make sbom          the libraries of the programs, CycloneDX JSON; make check-reproducible: compare two builds byte by byte"
	@echo "make check-layers format tidy clean"
	@echo "settings: SAN=1 (sanitizers, build/cpu-san)  V=1 (show commands)  WERROR=1  DEPS=0 (install nothing)  FUZZ_SECONDS=60"
	@echo "          CUDA_CHECK=1 (with CUDA=1: for errors only, not optimised, build/cuda-check)"
	@echo "          MPICC HOST_CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG: as usual; yours come after the project's own"

# Man pages and completions, generated from the tables of options.
PAGES := $(BUILD)/pages
$(BUILD)/tools/pages: $(BUILD)/tools/pages.c.o $(ARCHIVE)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE_LINK) $(LDFLAGS) -o $@ $^ $(LIBS)
$(PAGES)/made: $(BUILD)/tools/pages
	@rm -rf $(PAGES) && mkdir -p $(PAGES)
	@echo "  MAN  $(PAGES)"
	$(Q)$< $(PAGES) && touch $@
pages: $(PAGES)/made

# Programs, man pages, completions, documents, the demo model and job scripts, below DESTDIR and PREFIX.
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
MANDIR  ?= $(PREFIX)/share/man
DOCDIR  ?= $(PREFIX)/share/doc/lockstep
DATADIR ?= $(PREFIX)/share/lockstep
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
INSTALL ?= install
PROGRAMS := lockstep lockstep-client lockstep-gateway
JOB_SCRIPTS := scripts/slurm scripts/pbs scripts/flux
# Below DOCDIR under the same names, since documents link to each other by relative paths.
DOC_FOLDERS := docs $(patsubst %/,%,$(wildcard docs/*/))
install: all pages
	$(INSTALL) -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(COMPLETIONDIR) $(DOC_FOLDERS:%=$(DOCDIR)/%) $(JOB_SCRIPTS:scripts/%=$(DATADIR)/%) $(DATADIR)/lockstep-stories)
	$(INSTALL) -m 755 $(PROGRAM) $(CLIENT) $(GATEWAY) $(DESTDIR)$(BINDIR)
	$(INSTALL) -m 644 $(PAGES)/*.1 $(DESTDIR)$(MANDIR)/man1
	for p in $(PROGRAMS); do $(INSTALL) -m 644 $(PAGES)/$$p.bash $(DESTDIR)$(COMPLETIONDIR)/$$p || exit 1; done
	$(INSTALL) -m 644 LICENSE CITATION.cff $(wildcard *.md) $(DESTDIR)$(DOCDIR)
	for d in $(DOC_FOLDERS); do $(INSTALL) -m 644 $$d/*.* $(DESTDIR)$(DOCDIR)/$$d || exit 1; done
	for d in $(JOB_SCRIPTS); do $(INSTALL) -m 644 $$d/* $(DESTDIR)$(DATADIR)/$${d#scripts/} || exit 1; done
	$(INSTALL) -m 644 demo/lockstep-stories/* $(DESTDIR)$(DATADIR)/lockstep-stories

# Removes the files that install puts there, and the folders that belong to the program.
uninstall:
	rm -f $(PROGRAMS:%=$(DESTDIR)$(BINDIR)/%) $(PROGRAMS:%=$(DESTDIR)$(COMPLETIONDIR)/%)
	rm -f $(DESTDIR)$(MANDIR)/man1/lockstep.1 $(DESTDIR)$(MANDIR)/man1/lockstep-*.1
	rm -rf $(DESTDIR)$(DOCDIR) $(DESTDIR)$(DATADIR)

# The committed sources as a tarball that builds by itself.
DIST := build/lockstep-$(VERSION).tar.gz
dist:
	@mkdir -p build
	@git rev-parse --verify -q HEAD >/dev/null || { echo "dist: needs a git checkout" >&2; exit 1; }
	@git diff --quiet HEAD || echo "dist: uncommitted changes are left out" >&2
	@git archive --prefix=lockstep-$(VERSION)/ -o $(DIST) HEAD
	@ls -l $(DIST)

deps:
	@scripts/install-deps.sh build
deps-test:
	@scripts/install-deps.sh test
deps-check:
	@scripts/install-deps.sh check
deps-cluster:
	@scripts/install-deps.sh cluster
deps-ci:
	@scripts/install-deps.sh ci

demo: deps
	+@$(SUBMAKE) all
	@scripts/demo.sh

$(PROGRAM): $(BUILD)/main.c.o $(ARCHIVE)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE_LINK) $(LDFLAGS) -o $@ $^ $(LIBS)

# Compiled and linked without MPI's compiler: `make client` works on a login node that has none.
$(HOST_SRC:%=$(BUILD)/%.o) $(CLIENT) $(GATEWAY): CC := $(HOST_CC)
$(CLIENT): $(CLIENT_SRC:%=$(BUILD)/%.o)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE_LINK) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)
$(GATEWAY): $(GATEWAY_SRC:%=$(BUILD)/%.o)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE_LINK) $(LDFLAGS) -o $@ $^ $(GATEWAY_LIBS)

$(ARCHIVE): $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcsD $@ $^

# The matrix product, attention and the read limit need the vectoriser and fused multiply-add; neither changes the meaning of NaN.
$(BUILD)/kernels/cpu/matmul.c.o $(BUILD)/kernels/cpu/attention.c.o $(BUILD)/kernels/cpu/read_stream.c.o: OPTIMISE := $(if $(filter 1,$(CUDA_CHECK)),-O1,-O3) -ffp-contract=fast

# The page's files are part of this object.
$(BUILD)/gateway/page/page.c.o build/fuzz/gateway/page/page.c.o: $(wildcard gateway/page/*.html gateway/page/*.css gateway/page/*.js gateway/page/*.svg)

$(BUILD)/client/lines.c.o: ALL_CPPFLAGS += $(if $(EDIT_PACKAGE),-DLOCKSTEP_EDIT $(call package_flags,--cflags,$(EDIT_PACKAGE)))

# The flags that objects are compiled with. The file changes with every flag, compiler and VERSION, and then everything is recompiled.
FLAGS = $(CC) $(HOST_CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(if $(filter 1,$(CUDA)),$(NVCC) $(NVCCFLAGS)) $(LDFLAGS) $(LIBS) $(CLIENT_LIBS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@
FORCE:

# Checks once that the libraries exist, before any file that needs them is compiled.
$(BUILD)/found-client: PACKAGES := $(CLIENT_PACKAGES)
$(BUILD)/found-client $(BUILD)/found-all:
	@mkdir -p $(@D)
	@$(PKG_CONFIG) --print-errors --exists $(PACKAGES) || { echo "Libraries are missing: \`make deps\` installs them on Debian and Ubuntu, docs/install.md has their names elsewhere" >&2; exit 1; }
	@touch $@
$(HOST_SRC:%=$(BUILD)/%.o): | $(BUILD)/found-client
$(filter-out $(HOST_SRC:%=$(BUILD)/%.o),$(LIB_OBJ)) $(BUILD)/main.c.o: | $(BUILD)/found-all

$(BUILD)/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC   $<"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -fPIE -MMD -MP -c -o $@ $<

$(BUILD)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  NVCC $<"
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< $(CUDA_REMARKS)

$(TEST_LIB): $(TEST_OBJ)
	@rm -f $@
	$(Q)ar rcsD $@ $^

# A test contains only the objects that it uses from both archives, and only the used sections of these.
$(BUILD)/tests/%: PIE_LINK += -Wl,--gc-sections
$(BUILD)/tests/%: $(BUILD)/tests/%.c.o $(TEST_LIB) $(ARCHIVE)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE_LINK) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs cmocka) $(LIBS)

# Tests of products, attention and memory reads on CPUs, linked with objects that use no wider instructions than AVX2,
# or than every x86-64 has, in place of the archive's: tests/ops/test_matmul_256.
NARROW_TESTS := codes matmul attention memory
NARROW_SRC   := matmul attention read_stream
NARROW_BIN   := $(foreach bits,128 256,$(NARROW_TESTS:%=$(BUILD)/tests/ops/test_%_$(bits)))
define NARROW
$(BUILD)/narrow/%.$(1).o: OPTIMISE := -O3 -ffp-contract=fast
$(BUILD)/narrow/%.$(1).o: kernels/cpu/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	@echo "  CC   $$< ($(1))"
	$$(Q)$$(CC) $$(ALL_CPPFLAGS) -DCPU_ISA_LIMIT=$(1) $$(ALL_CFLAGS) -fPIE -MMD -MP -c -o $$@ $$<
$(BUILD)/tests/ops/test_%_$(1): $(BUILD)/tests/ops/test_%.c.o $(NARROW_SRC:%=$(BUILD)/narrow/%.$(1).o) $(TEST_LIB) $(ARCHIVE)
	@echo "  LINK $$@"
	$$(Q)$$(CC) $$(ALL_CFLAGS) $$(PIE_LINK) $$(LDFLAGS) -o $$@ $$^ $$(shell $$(PKG_CONFIG) --libs cmocka) $$(LIBS)
endef
$(foreach bits,128 256,$(eval $(call NARROW,$(bits))))

# Preloaded into ranks by tests: they count the bytes actually read, make reads, writes, MPI_Finalize, NCCL and graphs
# fail, hold back a thread of MPI, silence the name servers, replace a driver's library, and let ranks share GPUs.
PRELOAD := $(addprefix $(BUILD)/tests/,count_reads.so fail_read.so fail_write.so fail_finalize.so late_event.so block_signals.so fake_nvml.so no_names.so $(if $(filter 1,$(CUDA)),fail_nccl.so fail_graph.so share_gpus.so))
preload: $(PRELOAD)
$(BUILD)/tests/count_reads.so: tests/e2e/count_reads.c
$(BUILD)/tests/fail_read.so: tests/fail/fail_read.c
$(BUILD)/tests/fail_write.so: tests/fail/fail_write.c
$(BUILD)/tests/fail_finalize.so: tests/fail/fail_finalize.c
$(BUILD)/tests/late_event.so: tests/fail/late_event.c
$(BUILD)/tests/block_signals.so: tests/fail/block_signals.c
$(BUILD)/tests/fake_nvml.so: tests/unit/fake_nvml.c
$(BUILD)/tests/no_names.so: tests/e2e/no_names.c
$(BUILD)/tests/fail_nccl.so: tests/gpu/fail_nccl.c
$(BUILD)/tests/fail_graph.so: tests/gpu/fail_graph.c
$(BUILD)/tests/share_gpus.so: tests/gpu/share_gpus.c
$(PRELOAD): $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(LDFLAGS) -fPIC -shared -o $@ $(filter %.c,$^) -ldl

tests: $(TEST_BIN) $(if $(filter 1,$(CUDA) $(SAN)),,$(NARROW_BIN)) preload

fuzzers: $(FUZZ_BIN)
$(FUZZ_OBJ): build/fuzz/%.o: %
	@mkdir -p $(@D)
	@echo "  FUZZ $<"
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) $(ALL_CPPFLAGS) -fsanitize=fuzzer-no-link,address,undefined -c -o $@ $<
$(FUZZ_LIB): $(FUZZ_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^
build/cpu/fuzz/%: tests/fuzz/%.c $(FUZZ_LIB)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) $(ALL_CPPFLAGS) -MF $@.d -fsanitize=fuzzer,address,undefined -o $@ $< $(FUZZ_LIB) $(LIBS)

# For every edit: units, operations, parity and ranks on 1 and 2 ranks, one end-to-end program for each command.
test: deps-test
	+@$(SUBMAKE) all tests
	@tests/run.sh build/cpu quick

HAS_NVCC = [ -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]
# Sanitizers, fuzzers and GPU code are compiled while the tests of the CPU build wait, which leaves a fifth of the cores'
# time; tests/run.sh begins those that need them when the first two are built, or when their build has failed.
BUILDING := build/building
check: deps-check
	+@$(SUBMAKE) check-layers check-format
	+@$(SUBMAKE) all tests
	+@touch $(BUILDING); nice -n 19 $(SUBMAKE) check-builds >build/check-builds.log 2>&1 & builds=$$!; \
	  $(HAS_NVCC) || echo "compile-cuda: skipped, nvcc is not installed"; \
	  TESTS_BUILDING=$(BUILDING) $(MAKE) --no-print-directory run-tests; failed=$$?; \
	  wait $$builds || { cat build/check-builds.log; exit 1; }; exit $$failed
check-builds:
	+@$(SUBMAKE) SAN=1 all tests && $(SUBMAKE) fuzzers; failed=$$?; rm -f $(BUILDING); exit $$failed
	+@! $(HAS_NVCC) || $(SUBMAKE) compile-cuda

# All tests, of programs that are built.
run-tests:
	@tests/run.sh build/cpu

soak: deps-check
	+@$(SUBMAKE) all tests fuzzers
	@tests/run.sh $(BUILD) long

soak-batch: deps-check
	+@$(SUBMAKE) all tests
	@tests/run.sh $(BUILD) soak-batch

# Compiling and linking the GPU code needs no GPU. Without optimisation it takes a quarter of the time; releases and
# check-gpu compile with it.
compile-cuda:
	@if $(HAS_NVCC); then $(MAKE) --no-print-directory CUDA=1 CUDA_CHECK=1 ARCH=90a all tests; \
	  else echo "compile-cuda: skipped, nvcc is not installed"; fi

# Everything on the GPUs of this machine (CHECK="ops parity": sections); for a machine without nvcc use scripts/bundle.sh.
check-gpu:
	@$(MAKE) --no-print-directory CUDA=1 all tests
	@scripts/check-gpu.sh build/cuda

# Tarballs for machines without a package registry: one for users, one with the tests.
BUNDLED := $(filter $(GPU_TESTS:%=$(BUILD)/%),$(TEST_BIN)) $(PRELOAD)
bundle: all pages $(BUNDLED)
	@scripts/bundle.sh $(BUILD) $(BUNDLED)

bench-cpu: deps
	+@$(SUBMAKE) all
	@scripts/bench-cpu.sh

# The libraries that the built programs are linked with, as CycloneDX JSON.
sbom: all
	@scripts/sbom.sh $(PROGRAM) $(CLIENT) $(GATEWAY) >$(BUILD)/sbom.cdx.json
	@echo "  SBOM $(BUILD)/sbom.cdx.json"

# Compares two builds, in folders of different names at different times, byte by byte.
check-reproducible:
	@scripts/check-reproducible.sh

check-layers:
	@scripts/check-layers.sh

STYLED = $(shell find main.c tools $(ROOMS) tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
# Files that were found formatted, and have not changed since, are skipped (build/formatted).
format:
	@scripts/format.py $(STYLED)
check-format:
	@scripts/check-lines.py
	@scripts/check-comments.py
	@scripts/check-functions.py
	@scripts/check-tables.py
	@scripts/format.py --check $(STYLED)
TIDY_OPTIONS = -include scripts/tidy.h -std=c17 -fopenmp $(ALL_CPPFLAGS) $(shell mpicc --showme:compile)
tidy:
	clang-tidy --quiet $(filter-out tests/% kernels/cuda/%,$(filter %.c,$(STYLED))) -- $(TIDY_OPTIONS)
TIDY_SECONDS ?= 90
tidy-changed:
	@scripts/tidy-changed.py $(TIDY_SECONDS) -- $(TIDY_OPTIONS)

# Compiles the programs with another compiler, for its warnings.
compile-clang:
	+@OMPI_CC=clang $(SUBMAKE) HOST_CC=clang BUILD=build/clang OPTIMISE=-O0 WERROR=1 all

clean:
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
.SECONDARY:
