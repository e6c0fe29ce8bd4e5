# cloche: one Makefile, GNU make.  `make help` lists what it can do.
#
# Every object is built out of tree: $(B)/musl/... for the static launcher and programs inside a
# sandbox, $(B)/gnu/... for programs with libraries and for the unit tests.
#   SAN=1      address and undefined-behaviour sanitizers, everything in build/san
#   CC=clang   another compiler (objects are rebuilt when the compiler or its flags change)
#   V=1        show the commands

VERSION := 0.2.0
SONAME  := 0

CC       ?= cc
ifeq ($(origin CC),default)
CC       := gcc
endif
MUSL_GCC ?= musl-gcc
PYTHON   ?= python3
PREFIX   ?= /usr/local
DESTDIR  ?=
OPT      ?= -O2
B        := build$(if $(SAN),/san)

# ---- flags ---------------------------------------------------------------------------------------

MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null || gcc -print-multiarch)
MACHINE   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
CLANG     := $(findstring clang,$(CC))

WARN   := -Wall -Wextra -Werror -Wno-unused-parameter -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	  -Wformat=2 -Wpointer-arith $(if $(CLANG),,-Wno-format-truncation)
HARDEN := -fstack-protector-strong -fstack-clash-protection -fno-strict-aliasing \
	  $(if $(filter x86_64,$(MACHINE)),-fcf-protection)
COMMON := -std=gnu11 $(WARN) $(HARDEN) -D_GNU_SOURCE -DCLOCHE_VERSION='"$(VERSION)"' -iquote src \
	  -iquote include -ffunction-sections -fdata-sections -g -MMD -MP

# musl's headers come first; the kernel's come after everything else, from where the distribution
# keeps them.  musl-gcc cannot drive clang, so clang compiles against musl's headers by itself and
# musl-gcc only links.
KHEADERS    := -idirafter /usr/include -idirafter /usr/include/$(MULTIARCH)
MUSL_HEADERS := /usr/include/$(MACHINE)-linux-musl
MUSL_CC     := $(if $(CLANG),$(CC) -nostdlibinc -isystem $(MUSL_HEADERS),$(MUSL_GCC))
# (clang does not treat musl's CMSG_NXTHDR as a system macro, and warns about signs in it.)
MUSL_CFLAGS := $(COMMON) $(OPT) -fPIE $(KHEADERS) $(if $(CLANG),-Wno-sign-compare) $(CFLAGS)
# The sanitizer for undefined behaviour needs no library if it only traps: the program dies of a signal.
# Only for src/, since tests do undefined things on purpose.
MUSL_SAN    := $(if $(SAN),-fsanitize=undefined -fsanitize-undefined-trap-on-error)
# static-pie, for address randomisation: 10 us of start-up. musl-gcc knows only static and dynamic
# programs, so the start files are named here.
MUSL_LIB     := /usr/lib/$(MACHINE)-linux-musl
MUSL_LDFLAGS := -static -nostartfiles -Wl,-pie -Wl,--no-dynamic-linker -Wl,-z,text \
	  -Wl,--gc-sections -Wl,-z,noexecstack -Wl,-z,relro -Wl,-z,now -Wl,--build-id=none $(LDFLAGS)
crt           = $(shell gcc -print-file-name=$(1))
musl_link     = $(MUSL_GCC) $(MUSL_LDFLAGS) $(MUSL_LIB)/rcrt1.o $(MUSL_LIB)/crti.o \
	  $(call crt,crtbeginS.o) $(1) $(call crt,crtendS.o) $(MUSL_LIB)/crtn.o

comma := ,
SANFLAGS    := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined \
	  -fno-omit-frame-pointer)
GNU_CFLAGS  := $(COMMON) $(if $(SAN),-O1 $(SANFLAGS),$(OPT) -D_FORTIFY_SOURCE=2) -fPIC $(GNU_COVERAGE) $(CFLAGS)
GNU_LDFLAGS := $(SANFLAGS) $(GNU_COVERAGE) -Wl,--gc-sections -Wl,--as-needed -Wl,-z,noexecstack -Wl,-z,relro \
	  -Wl,-z,now $(LDFLAGS)

pkg = $(shell pkg-config --$(1) $(2) 2>/dev/null)
LIBS := yaml-0.1 jansson sqlite3 libsodium zlib

# ---- what is built from what ---------------------------------------------------------------------

# All sources of a folder of src/ and of the folders below it.
folder = $(foreach d,$(1),$(wildcard src/$(d)/*.c src/$(d)/*/*.c))
# Each program is a list of folders, linked with an archive of what all programs share: the linker
# takes from the archive what the program calls.
LAUNCHER_SRC := $(call folder,cli/launcher)
CLOCHED_MAIN := $(call folder,cli/verbs cli/operator cli/selftest)
GUEST_SRC    := $(call folder,guest)
WORKER_SRC   := $(call folder,provider/ns/worker)
# Contains libcurl.
REMOTE_SRC   := $(call folder,provider/e2b/remote)
# Reads what registries and archives hold: libcurl, JSON, compressed layers.
IMAGE_SRC    := $(addprefix src/image/worker/,main.c fetch.c inflate.c)
IMAGE_LIBS   := libcurl jansson libsodium zlib libzstd
# Linked with OpenSSL; holds the key of the daemon's certificate.
TLS_SRC      := $(call folder,daemon/tls)
# The only program that is linked with OpenSSL, c-ares and nghttp2.
EGRESS_SRC   := $(wildcard src/egress/main.c)
EGRESS_LIBS  := openssl libcares libnghttp2
PRELOAD_SRC  := $(call folder,warm/preload)
# In the static programs, without libraries.
MUSL_SRC := $(filter-out $(PRELOAD_SRC),$(call folder,base model kern wire net policy/paths disk sandbox warm)) \
	  $(wildcard src/image/*.c)
# In the programs with libraries and in the unit tests: everything but main functions and the above.
MAIN_SRC := src/cli/launcher/cloche.c src/cli/operator/cloched.c src/guest/link/main.c \
	  $(WORKER_SRC) $(REMOTE_SRC) $(IMAGE_SRC) $(TLS_SRC) $(EGRESS_SRC) $(PRELOAD_SRC)
CORE_SRC := $(filter-out $(MAIN_SRC),$(call folder,base model kern wire net auth policy audit store keys disk sandbox warm \
	  image egress guest provider manager calls agent api daemon cli lib))
CONFORMANCE_SRC := $(wildcard tests/clients/mcp_fixtures.c)
LIB_SRC   := $(wildcard src/lib/*.c src/base/*.c)
PROBE_SRC := $(wildcard tests/escape/*.c)
UNIT_SRC  := $(wildcard tests/unit/test_*.c)
UNIT_AUX  := $(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c))
FUZZ_SRC  := $(wildcard tests/fuzz/fuzz_*.c)
HELPERS   := $(wildcard tests/helpers/*.c tests/v2/*.c)
FRONTS    := $(wildcard tests/front/*.c)
EXAMPLES  := $(wildcard examples/*.c)

SECCOMP_TOOL := tools/seccomp-compile.c $(wildcard tools/seccomp/*.c) src/kern/cbpf.c
GEN          := $(B)/gen/seccomp_profiles.c $(B)/gen/guest_files.c $(B)/gen/control_rows.c $(B)/gen/net_sets.c
NET_SETS     := $(sort $(wildcard policies/net/*.txt))
# Some guest files are concatenated from parts; the parts are not embedded by themselves.
JOINED       := $(B)/gen/guest/zygote.py $(B)/gen/guest/snippet_prefork.py
GUEST_PARTS  := guest/python/program.py $(patsubst $(B)/gen/guest/%,guest/python/%,$(JOINED))
GUEST_FILES  := $(JOINED) $(filter-out $(GUEST_PARTS),$(sort $(wildcard guest/*/*.py guest/*/*.js guest/*/*.sh)))
PROFILES     := $(wildcard policies/seccomp/*.txt)

musl_o = $(patsubst %.c,$(B)/musl/%.o,$(1))
gnu_o  = $(patsubst %.c,$(B)/gnu/%.o,$(1))
gen_o  = $(patsubst $(B)/gen/%.c,$(B)/$(1)/gen/%.o,$(GEN))

CORE_A := $(B)/gnu/libcore.a
MUSL_A := $(B)/musl/libcore.a
UNIT   := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/unit/%)
FUZZ   := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/tests/fuzz/%)

PROGRAMS := $(B)/cloche \
	    $(B)/cloched \
	    $(B)/cloche-guest \
	    $(B)/cloche-boot \
	    $(B)/cloche-seccomp \
	    $(B)/cloche-remote \
	    $(B)/cloche-image \
	    $(B)/cloche-tls \
	    $(if $(EGRESS_SRC),$(B)/cloche-egress) \
	    $(B)/libcloche.a $(B)/libcloche.so \
	    $(if $(SAN),,$(B)/cloche-zygote.so) \
	    $(if $(PROBE_SRC),$(B)/cloche-probe) \
	    $(HELPERS:%.c=$(B)/%) $(B)/tests/helpers/lying-guest $(FRONTS:%.c=$(B)/%) \
	    $(CONFORMANCE_SRC:%=$(B)/cloched-conformance) \
	    $(EXAMPLES:examples/%.c=$(B)/examples/%)
TESTS    := $(if $(shell pkg-config --exists cmocka && echo yes),$(UNIT)) \
	    $(if $(wildcard tests/fuzz/replay.c),$(FUZZ))

.PHONY: all programs
all: programs $(TESTS)
programs: $(PROGRAMS)
.DELETE_ON_ERROR:
.PRECIOUS: $(B)/musl/%.o $(B)/gnu/%.o
.SUFFIXES:

# ---- rules ---------------------------------------------------------------------------------------

# A changed compiler or flag rebuilds the objects it concerns.
define remember
$(B)/$(1)/.flags: FORCE
	@mkdir -p $$(@D)
	@printf '%s\n' '$(subst ','\'',$(2))' | cmp -s - $$@ || printf '%s\n' '$(subst ','\'',$(2))' >$$@
endef
.PHONY: FORCE
FORCE:
$(eval $(call remember,musl,$(MUSL_CC) $(MUSL_CFLAGS) $(MUSL_LDFLAGS)))
$(eval $(call remember,gnu,$(CC) $(GNU_CFLAGS) $(GNU_LDFLAGS)))

# One short line for each step; V=1 shows the command instead, make -s shows neither.
SILENT := $(findstring s,$(firstword -$(MAKEFLAGS)))
quiet = $(if $(V),,@$(if $(SILENT),,printf '  %-5s %s\n' $(1) $(subst $(B)/,,$@);))

$(B)/musl/%.o: %.c $(B)/musl/.flags
	$(call quiet,MUSL) mkdir -p $(@D) && $(MUSL_CC) $(MUSL_CFLAGS) $(if $(filter src/%,$<),$(MUSL_SAN)) \
		-c $< -o $@
$(B)/musl/gen/%.o: $(B)/gen/%.c $(B)/musl/.flags
	$(call quiet,MUSL) mkdir -p $(@D) && $(MUSL_CC) $(MUSL_CFLAGS) -c $< -o $@
$(B)/gnu/%.o: %.c $(B)/gnu/.flags
	$(call quiet,CC) mkdir -p $(@D) && $(CC) $(GNU_CFLAGS) -c $< -o $@
$(B)/gnu/gen/%.o: $(B)/gen/%.c $(B)/gnu/.flags
	$(call quiet,CC) mkdir -p $(@D) && $(CC) $(GNU_CFLAGS) -c $< -o $@

# The launcher: static musl; with sanitizers or counters, which musl does not have, glibc.
# AddressSanitizer does not know the small stacks given to clone, and complains on stderr whenever a
# function there does not return; its handler is not needed before an exec or _exit.
ifneq ($(SAN)$(GNU_COVERAGE),)
$(B)/gen/no_return.c:
	$(call quiet,GEN) mkdir -p $(@D) && \
		echo 'void __asan_handle_no_return(void); void __asan_handle_no_return(void) {}' >$@
$(B)/cloche: $(call gnu_o,$(LAUNCHER_SRC)) $(B)/gnu/gen/no_return.o $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) -o $@
$(B)/cloche-boot: $(call gnu_o,$(WORKER_SRC)) $(B)/gnu/gen/no_return.o $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) -o $@
else
$(B)/cloche: $(call musl_o,$(LAUNCHER_SRC)) $(MUSL_A)
	$(call quiet,LD) $(call musl_link,$^) -o $@
$(B)/cloche-boot: $(call musl_o,$(WORKER_SRC)) $(MUSL_A)
	$(call quiet,LD) $(call musl_link,$^) -o $@
endif

$(MUSL_A): $(call musl_o,$(MUSL_SRC)) $(call gen_o,musl)
	$(call quiet,AR) rm -f $@ && ar rcs $@ $^
$(CORE_A): $(call gnu_o,$(CORE_SRC)) $(call gen_o,gnu)
	$(call quiet,AR) rm -f $@ && ar rcs $@ $^

$(B)/cloched: $(call gnu_o,$(CLOCHED_MAIN)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(LIBS)) -o $@

# The same plus the tools that the MCP conformance suite expects; only tests start it.
$(B)/cloched-conformance: $(call gnu_o,$(CLOCHED_MAIN) $(CONFORMANCE_SRC)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(LIBS)) -o $@

$(B)/cloche-remote: $(call gnu_o,$(REMOTE_SRC)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,libcurl jansson yaml-0.1) -o $@

$(B)/cloche-image: $(call gnu_o,$(IMAGE_SRC)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(IMAGE_LIBS)) -o $@

$(B)/cloche-tls: $(call gnu_o,$(TLS_SRC)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,openssl) -o $@

$(B)/cloche-egress: $(call gnu_o,$(EGRESS_SRC)) $(CORE_A)
	$(call quiet,LD) $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(EGRESS_LIBS) jansson yaml-0.1) -o $@

# Static, also with sanitizers: it runs in any image, without a library.
$(B)/cloche-guest: $(call musl_o,$(GUEST_SRC)) $(MUSL_A)
	$(call quiet,LD) $(call musl_link,$^) -o $@

# The same for tests: what a nest makes of itself is on a kernel that lies (tests/helpers/guest).
LYING_GUEST := tests/helpers/guest/lying_guest
$(B)/tests/helpers/lying-guest: $(call musl_o,$(GUEST_SRC) $(LYING_GUEST).c) $(MUSL_A)
	$(call quiet,LD) mkdir -p $(@D) && $(call musl_link,$^) -o $@

# Seccomp filters are compiled here, once, from the commented text profiles. The compiler proves
# each program against its profile before it writes it.
$(B)/tools/seccomp-compile: $(call gnu_o,$(SECCOMP_TOOL))
	$(call quiet,LD) mkdir -p $(@D) && $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,libseccomp) -o $@
$(B)/cloche-seccomp: $(B)/tools/seccomp-compile
	$(call quiet,CP) cp $< $@
$(B)/gen/seccomp_profiles.c: $(B)/tools/seccomp-compile $(PROFILES)
	$(call quiet,GEN) mkdir -p $(@D) && $< -o $@ $(foreach p,$(PROFILES),$(basename $(notdir $(p)))=$(p))

$(B)/gen/guest/zygote.py: guest/python/program.py guest/python/zygote.py
$(B)/gen/guest/snippet_prefork.py: $(addprefix guest/python/,prefork.py program.py snippet_prefork.py)
$(JOINED):
	$(call quiet,GEN) mkdir -p $(@D) && cat $^ >$@

$(B)/gen/control_rows.c: tools/control-table policies/control-files.txt
	$(call quiet,GEN) mkdir -p $(@D) && tools/control-table policies/control-files.txt >$@

$(B)/gen/net_sets.c: tools/net-sets $(NET_SETS)
	$(call quiet,GEN) mkdir -p $(@D) && tools/net-sets $(NET_SETS) >$@

# Files that are placed into sandboxes are embedded in the programs.
$(B)/gen/guest_files.c: tools/embed $(GUEST_FILES)
	$(call quiet,GEN) mkdir -p $(@D) && tools/embed $(GUEST_FILES) >$@

# The library shows cloche_* only, static or shared.
$(B)/libcloche.a: $(call gnu_o,$(LIB_SRC))
	$(call quiet,AR) rm -f $@ && mkdir -p $(B)/gnu/lib && ld -r -o $(B)/gnu/lib/all.o $^ && \
		objcopy -w --keep-global-symbol='cloche_*' $(B)/gnu/lib/all.o $(B)/gnu/lib/libcloche.o && \
		ar rcs $@ $(B)/gnu/lib/libcloche.o
$(B)/libcloche.so: $(call gnu_o,$(LIB_SRC))
	$(call quiet,LD) printf '{ global: cloche_*; local: *; };\n' >$(B)/gnu/libcloche.map && \
		$(CC) -shared $^ $(GNU_LDFLAGS) -Wl,-soname,libcloche.so.$(SONAME) \
		-Wl,--version-script=$(B)/gnu/libcloche.map $(call pkg,libs,jansson) -o $@ && \
		ln -sf libcloche.so $(B)/libcloche.so.$(SONAME)
$(B)/examples/%: examples/%.c include/cloche.h $(B)/libcloche.a $(B)/gnu/.flags
	$(call quiet,CC) mkdir -p $(@D) && $(CC) $(filter-out -MMD -MP -iquote src include,$(GNU_CFLAGS)) \
		-Iinclude $< $(B)/libcloche.a $(GNU_LDFLAGS) $(call pkg,libs,jansson) -o $@

# Preloaded into a warm interpreter; it shows fork, _exit and nothing else.
$(B)/cloche-zygote.so: $(call gnu_o,$(PRELOAD_SRC)) $(CORE_A)
	$(call quiet,LD) printf '{ global: fork; _exit; local: *; };\n' >$(B)/gnu/zygote.map && \
		$(CC) -shared $^ $(GNU_LDFLAGS) -Wl,-z,defs -Wl,--version-script=$(B)/gnu/zygote.map -ldl -o $@

# What runs inside a sandbox during tests is static, so that it works in any image.
$(B)/cloche-probe: $(call musl_o,$(PROBE_SRC)) $(MUSL_A)
	$(call quiet,LD) $(call musl_link,$^) -o $@
$(HELPERS:%.c=$(B)/%): $(B)/%: $(B)/musl/%.o
	$(call quiet,LD) mkdir -p $(@D) && $(call musl_link,$^) -o $@

$(B)/tests/unit/%: $(B)/gnu/tests/unit/%.o $(call gnu_o,$(UNIT_AUX)) $(CORE_A)
	$(call quiet,LD) mkdir -p $(@D) && $(CC) $^ $(GNU_LDFLAGS) \
		$(call pkg,libs,cmocka $(LIBS) $(EGRESS_LIBS)) -o $@
# Without a fuzzing engine a target replays the files that it is given.
$(B)/tests/fuzz/%: $(B)/gnu/tests/fuzz/%.o $(B)/gnu/tests/fuzz/replay.o $(CORE_A)
	$(call quiet,LD) mkdir -p $(@D) && $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(LIBS) $(EGRESS_LIBS)) -o $@

# Replaces the front in tests of the broker.
$(B)/tests/front/%: $(B)/gnu/tests/front/%.o $(CORE_A)
	$(call quiet,LD) mkdir -p $(@D) && $(CC) $^ $(GNU_LDFLAGS) $(call pkg,libs,$(LIBS)) -o $@

-include $(shell find $(B)/musl $(B)/gnu -name '*.d' 2>/dev/null)

# ---- tests ---------------------------------------------------------------------------------------

RUN := B=$(B) PYTHON=$(PYTHON) tests/run

.PHONY: test test-slow unit fuzz-replay e2e escape clients compare-escape compare-network test-v2 check format bench fuzz
test: all
	@$(RUN)
# What takes minutes or hours: soaks, and all slips.
test-slow: all
	@$(RUN) slow
unit fuzz-replay e2e escape clients test-v2: all
	@$(RUN) $@
compare-network: all
	@B=$(B) $(PYTHON) tests/escape/compare_network.py
compare-escape: all
	@B=$(B) $(PYTHON) tests/escape/compare.py
.PHONY: bench-images
bench-images: $(PROGRAMS)
	@B=$(B) $(PYTHON) bench/build.py
	@B=$(B) $(PYTHON) bench/images.py $(BENCH)
# Thousands of sandboxes with faults, then counts leftovers; not a part of `make test`.
.PHONY: soak
SOAK ?= 1000
soak: programs
	@CLOCHE=$(B)/cloche $(PYTHON) tests/soak/run.py --count $(SOAK)
.PHONY: soak-warm
soak-warm: programs
	@CLOCHE=$(B)/cloche $(PYTHON) tests/soak/warm.py --count $(SOAK)
# Programs whose calls fail on demand (tests/torture/fail.c), under all operations and kills.
.PHONY: torture
MINUTES ?= 5
WRAPPED := $(foreach f,write rename renameat openat mkdir mkdirat mount memfd_create socketpair syscall,-Wl$(comma)--wrap=$(f))
TORTURE := $(B)/torture
$(TORTURE)/cloched: $(call gnu_o,$(CLOCHED_MAIN) tests/torture/fail.c) $(CORE_A)
	$(call quiet,LD) mkdir -p $(@D) && $(CC) $^ $(GNU_LDFLAGS) $(WRAPPED) $(call pkg,libs,$(LIBS)) -o $@
$(TORTURE)/cloche-boot: $(call musl_o,$(WORKER_SRC) tests/torture/fail.c) $(MUSL_A)
	$(call quiet,LD) mkdir -p $(@D) && $(call musl_link,$^ $(WRAPPED)) -o $@
torture: programs $(TORTURE)/cloched $(TORTURE)/cloche-boot
	@ln -f $(B)/cloche $(B)/cloche-guest $(B)/cloche-remote $(B)/cloche-image $(B)/cloche-tls $(B)/cloche-zygote.so $(TORTURE)/
	@CLOCHE=$(TORTURE)/cloche $(PYTHON) tests/torture/run.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
# Puts one slip after another into a copy of the tree: do the tests notice? tests/mutations/README.md.
.PHONY: mutate
JOBS ?= 2
mutate: all
	@$(PYTHON) tools/mutate -j $(JOBS) $(ONLY)
bench: $(filter $(B)/cloche $(B)/cloched,$(PROGRAMS)) $(B)/bench/spawnbench $(B)/bench/payload
	@B=$(B) $(PYTHON) bench/run.py $(BENCH)

.PHONY: bench-daemon
bench-daemon: $(PROGRAMS) $(B)/bench/spawnbench $(B)/bench/askbench $(B)/bench/payload
	@B=$(B) $(PYTHON) bench/daemon.py $(BENCH)

.PHONY: bench-creates
bench-creates: $(PROGRAMS) $(B)/bench/askbench
	@B=$(B) $(PYTHON) bench/creates.py $(BENCH)

.PHONY: bench-fair
bench-fair: $(PROGRAMS)
	@B=$(B) $(PYTHON) bench/fair.py $(BENCH)

.PHONY: bench-warm
bench-warm: $(PROGRAMS) $(B)/bench/spawnbench $(B)/bench/askbench $(B)/bench/payload
	@B=$(B) $(PYTHON) bench/warm.py $(BENCH)

.PHONY: bench-net
bench-net: $(PROGRAMS) $(B)/bench/spawnbench $(B)/bench/netbench $(B)/bench/payload
	@B=$(B) $(PYTHON) bench/net.py $(BENCH)

# Another build against this one, in turns: OLD=DIRECTORY.
.PHONY: bench-versions
bench-versions: $(PROGRAMS) $(B)/bench/spawnbench $(B)/bench/payload
	@B=$(B) $(PYTHON) bench/versions.py $(BENCH) $(OLD) $(B)

$(B)/bench/%: $(B)/musl/bench/%.o
	$(call quiet,LD) mkdir -p $(@D) && $(call musl_link,$^) -o $@

# libFuzzer, each target for FUZZ_SECONDS; findings are kept in build/fuzz.
FUZZ_SECONDS ?= 60
FUZZ_OBJ     := build/fuzz/obj
fuzz:
	@$(MAKE) -s CC=clang SAN=1 B=$(FUZZ_OBJ) $(FUZZ_OBJ)/gnu/libcore.a \
		$(FUZZ_SRC:%.c=$(FUZZ_OBJ)/gnu/%.o) SANFLAGS='-fsanitize=fuzzer-no-link \
		-fsanitize=address,undefined -fno-sanitize-recover=undefined'
	@for f in $(FUZZ_SRC:tests/fuzz/%.c=%); do \
		echo "  FUZZ  $$f, $(FUZZ_SECONDS) s"; mkdir -p build/fuzz/$$f; \
		clang -fsanitize=fuzzer,address,undefined $(FUZZ_OBJ)/gnu/tests/fuzz/$$f.o \
			$(FUZZ_OBJ)/gnu/libcore.a $(call pkg,libs,$(LIBS) $(EGRESS_LIBS)) -o build/fuzz/$$f.bin && \
		build/fuzz/$$f.bin -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=1024 \
			-print_final_stats=1 -artifact_prefix=build/fuzz/$$f- build/fuzz/$$f \
			$$(ls -d tests/fuzz/corpus/$${f#fuzz_} 2>/dev/null) || exit 1; \
	done

# All objects, for `make check`, which compiles them with both compilers and -Werror.
OBJECTS := $(call gnu_o,$(sort $(CORE_SRC) $(MAIN_SRC) $(UNIT_SRC) $(FUZZ_SRC))) \
	  $(call musl_o,$(sort $(LAUNCHER_SRC) $(GUEST_SRC) $(WORKER_SRC) $(MUSL_SRC) $(PROBE_SRC) $(HELPERS)))
.PHONY: objects
objects: $(OBJECTS)
check:
	@$(RUN) check
# clang-tidy with its analyzer: minutes. `make check` runs the quick checks only.
.PHONY: tidy coverage guest-python
tidy:
	@tools/tidy --full
# Lines that the unit tests and corpora reach, per folder; COVERAGE='e2e daemon' runs those suites as well.
coverage:
	@B=build/cov tools/coverage $(COVERAGE)
# For tools/check: the Python programs that run inside, as they are embedded.
guest-python: $(JOINED)
	@echo $(filter %.py,$(GUEST_FILES))
format:
	clang-format-14 -i $(shell find src include tests tools examples bench -name '*.[ch]')

# ---- install, package ----------------------------------------------------------------------------

BIN := $(DESTDIR)$(PREFIX)/bin
LIBEXEC := $(DESTDIR)$(PREFIX)/libexec/cloche
SHARE := $(DESTDIR)$(PREFIX)/share
LIBDIR := $(PREFIX)/lib$(if $(filter /usr,$(PREFIX)),/$(MULTIARCH))
MAN := $(wildcard man/*.[1-8])

.PHONY: install deb clean help
install: $(PROGRAMS)
	install -d $(BIN) $(LIBEXEC) $(SHARE)/cloche
	install -s -m 755 $(B)/cloche $(BIN)/cloche
	for f in cloched cloche-guest cloche-boot cloche-seccomp cloche-remote cloche-image cloche-egress cloche-tls cloche-probe cloche-zygote.so; do \
		if [ -e $(B)/$$f ]; then install -s -m 755 $(B)/$$f $(LIBEXEC)/$$f; fi; done
	cp -R --no-preserve=ownership policies $(SHARE)/cloche/
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|@PREFIX@|$(PREFIX)|' deploy/cloche.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/cloche.service
	install -m 644 deploy/cloche.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/
	install -m 644 deploy/cloche.conf.yaml deploy/alerts.yml $(SHARE)/cloche/
	for f in $(MAN); do s=$${f##*.}; install -d $(SHARE)/man/man$$s && \
		install -m 644 $$f $(SHARE)/man/man$$s/; done
	if [ -e $(B)/libcloche.so ]; then \
		install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include && \
		install -m 644 include/cloche.h $(DESTDIR)$(PREFIX)/include/ && \
		install -m 644 $(B)/libcloche.a $(DESTDIR)$(LIBDIR)/ && \
		install -s -m 644 $(B)/libcloche.so $(DESTDIR)$(LIBDIR)/libcloche.so.$(VERSION) && \
		ln -sf libcloche.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libcloche.so.$(SONAME) && \
		ln -sf libcloche.so.$(SONAME) $(DESTDIR)$(LIBDIR)/libcloche.so && \
		printf 'prefix=%s\nName: cloche\nDescription: run untrusted code in a sandbox\nVersion: %s\nRequires.private: jansson\nLibs: -L%s -lcloche\nCflags: -I$${prefix}/include\n' \
			$(PREFIX) $(VERSION) $(LIBDIR) >$(DESTDIR)$(LIBDIR)/pkgconfig/cloche.pc; fi

deb: all
	@tools/make-deb $(VERSION)

clean:
	rm -rf build

help:
	@echo 'make                 build everything into build/'
	@echo 'make programs        only what is installed'
	@echo 'make test            every test suite, as root and as an ordinary user; SAN=1: with sanitizers'
	@echo 'make test-slow       what takes longer: soaks, and all slips (make mutate)'
	@echo 'make unit | e2e | escape | clients | fuzz-replay | test-v2    one suite'
	@echo 'make compare-escape  the same attacks against cloche, bubblewrap and docker, as a table'
	@echo 'make check           layers, sizes, format, linters, manual pages, gcc and clang with -Werror'
	@echo 'make mutate          puts slips into a copy, one at a time: are they noticed? ONLY=pattern JOBS=2'
	@echo 'make tidy            clang-tidy with its analyzer, over every C file'
	@echo 'make coverage        which lines tests reach, per folder; COVERAGE="e2e daemon"'
	@echo 'make format          clang-format over the whole tree'
	@echo 'make fuzz            libFuzzer on every parser, FUZZ_SECONDS=60 each'
	@echo 'make bench           start-up and throughput beside other sandboxes; BENCH_QUICK=1'
	@echo 'make bench-warm      warm sandboxes beside bare Python, bubblewrap and docker'
	@echo 'make bench-daemon    the daemon beside docker: exec, a crowd of sandboxes, files, restart'
	@echo 'make bench-creates   creates a second: from the pool, without one, with CROWD=N sandboxes alive'
	@echo 'make bench-fair      does a hostile tenant slow down another one? case by case'
	@echo 'make bench-images    pull and unpack beside skopeo and umoci; starts from an image'
	@echo 'make bench-versions  is this build as fast as another one? OLD=DIRECTORY of that build'
	@echo 'make soak-warm       the same for warm sandboxes, whose processes are killed at random'
	@echo 'make torture         the daemon with failing calls and kills, then checks what was acknowledged; MINUTES=5'
	@echo 'make soak            thousands of sandboxes with faults, then counts what is left; SOAK=1000'
	@echo 'make install         DESTDIR= PREFIX=/usr/local'
	@echo 'make deb             build/cloche_$(VERSION)_ARCH.deb'
	@echo 'make clean'
	@echo 'Variables: CC=clang SAN=1 V=1 OPT=-O2 CFLAGS= LDFLAGS= PYTHON=python3'
