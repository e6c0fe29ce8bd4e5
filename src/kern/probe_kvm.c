/*
 * Is KVM usable? Only running code can tell: a KVM in software (one that lacks the CPU's help)
 * creates VMs like any other, but emulates what runs in ring 0, a thousand times slower and not
 * completely.
 *
 * The guest is three snippets in long mode, in 2 MiB that are mapped one to one:
 *   kernel   200000 instructions in ring 0, then port 0x10, then down to ring 3
 *   user     one system call
 *   entry    where that arrives: tells its ring through port 0x11, then halts
 */
#include "kern/probe.h"

#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static int open_kvm(struct feature *f, int *ret_vm)
{
	auto_close int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm;

	if (kvm < 0)
		return probe_failed(f, "/dev/kvm");
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		return probe_failed(f, "KVM_CREATE_VM");
	*ret_vm = vm;
	return 0;
}

/* The registers of a virtual CPU are the machine's own, so this part cannot be portable. */
#ifdef __x86_64__

enum {
	MEMORY = 2 << 20,
	GDT = 0x500,
	PML4 = 0x1000,
	PDPT = 0x2000,
	PD = 0x3000,
	KERNEL = 0x8000,
	USER = 0x9000,
	ENTRY = 0xa000,
	PORT_LOOPED = 0x10,
	PORT_RING = 0x11,
	SLOW_NS = 20000000, /* a CPU needs some 100 us */
};

static const uint8_t kernel_code[] = {
	0xb9, 0xa0,	   0x86, 0x01, 0x00,	   /* mov ecx, 100000 */
	0xff, 0xc9,				   /* dec ecx */
	0x75, 0xfc,				   /* jnz -4 */
	0xe6, PORT_LOOPED,			   /* out PORT_LOOPED, al */
	0xb9, 0x00,	   0x90, 0x00, 0x00,	   /* mov ecx, USER */
	0x41, 0xbb,	   0x02, 0x00, 0x00, 0x00, /* mov r11d, 2 (flags) */
	0x48, 0x0f,	   0x07,		   /* sysretq */
};
static const uint8_t user_code[] = {0x0f, 0x05, 0xeb, 0xfe}; /* syscall; jmp self */
static const uint8_t entry_code[] = {
	0x8c, 0xc8,	 /* mov eax, cs */
	0x24, 0x03,	 /* and al, 3 */
	0xe6, PORT_RING, /* out PORT_RING, al */
	0xf4,		 /* hlt */
};

/* 0x08, 0x10: ring 0 code, data; 0x20, 0x28: ring 3 data, code, where sysret looks for them. */
static const uint64_t gdt[] = {
	0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0, 0x00cff3000000ffff, 0x00affb000000ffff,
};

static void fill_memory(uint8_t *memory)
{
	enum { PRESENT_WRITE_USER = 7, LARGE = 0x80 };

	*(uint64_t *)(memory + PML4) = PDPT | PRESENT_WRITE_USER;
	*(uint64_t *)(memory + PDPT) = PD | PRESENT_WRITE_USER;
	*(uint64_t *)(memory + PD) = PRESENT_WRITE_USER | LARGE;
	memcpy(memory + GDT, gdt, sizeof(gdt));
	memcpy(memory + KERNEL, kernel_code, sizeof(kernel_code));
	memcpy(memory + USER, user_code, sizeof(user_code));
	memcpy(memory + ENTRY, entry_code, sizeof(entry_code));
}

static int set_system_registers(int vcpu)
{
	struct kvm_segment code = {.limit = 0xffffffff,
				   .selector = 0x08,
				   .type = 11,
				   .present = 1,
				   .s = 1,
				   .l = 1,
				   .g = 1};
	struct kvm_segment data = {.limit = 0xffffffff,
				   .selector = 0x10,
				   .type = 3,
				   .present = 1,
				   .s = 1,
				   .db = 1,
				   .g = 1};
	struct kvm_sregs s;

	if (ioctl(vcpu, KVM_GET_SREGS, &s) < 0)
		return -1;
	s.cs = code;
	s.ds = s.es = s.ss = s.fs = s.gs = data;
	s.gdt.base = GDT;
	s.gdt.limit = sizeof(gdt) - 1;
	s.cr3 = PML4;
	s.cr4 = 0x20;	    /* PAE */
	s.cr0 = 0x80000033; /* PG NE ET MP PE */
	s.efer = 0x501;	    /* LMA LME SCE */
	return ioctl(vcpu, KVM_SET_SREGS, &s);
}

static int set_registers(int vcpu)
{
	static const struct kvm_msr_entry entries[] = {
		{.index = 0xc0000081, .data = 0x0018000800000000}, /* STAR: the segments */
		{.index = 0xc0000082, .data = ENTRY},		   /* LSTAR */
	};
	_Alignas(struct kvm_msrs) char space[sizeof(struct kvm_msrs) + sizeof(entries)];
	struct kvm_msrs *msrs = (struct kvm_msrs *)space;
	struct kvm_regs r = {.rip = KERNEL, .rsp = 0x7000, .rflags = 2};

	*msrs = (struct kvm_msrs){.nmsrs = ARRAY_LEN(entries)};
	memcpy(msrs->entries, entries, sizeof(entries));
	if (set_system_registers(vcpu) < 0 || ioctl(vcpu, KVM_SET_REGS, &r) < 0)
		return -1;
	return ioctl(vcpu, KVM_SET_MSRS, msrs) == ARRAY_LEN(entries) ? 0 : -1;
}

static int make_vcpu(struct feature *f, int vm, int *ret_vcpu, struct kvm_run **ret_run)
{
	uint8_t *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct kvm_userspace_memory_region region = {.memory_size = MEMORY,
						     .userspace_addr = (uintptr_t)memory};
	int vcpu;

	if (memory == MAP_FAILED)
		return probe_failed(f, "mmap");
	fill_memory(memory);
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return probe_failed(f, "KVM_SET_USER_MEMORY_REGION");
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	if (vcpu < 0)
		return probe_failed(f, "KVM_CREATE_VCPU");
	*ret_run =
		mmap(NULL, sizeof(**ret_run) + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (*ret_run == MAP_FAILED)
		return probe_failed(f, "mapping a virtual CPU");
	if (set_registers(vcpu) < 0)
		return probe_failed(f, "setting registers");
	*ret_vcpu = vcpu;
	return 0;
}

/* Runs to the next port write; its byte, or -1 if the guest stopped otherwise. */
static int run_to_port(int vcpu, struct kvm_run *run, int port)
{
	int n;

	do
		n = ioctl(vcpu, KVM_RUN, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 || run->exit_reason != KVM_EXIT_IO || run->io.port != port)
		return -1;
	return ((uint8_t *)run)[run->io.data_offset];
}

int probe_kvm(struct feature *f)
{
	struct kvm_run *run = NULL;
	int vm = -1, vcpu = -1, errnum = open_kvm(f, &vm);
	int64_t start, took;

	if (!errnum)
		errnum = make_vcpu(f, vm, &vcpu, &run);
	if (errnum)
		return errnum;
	start = now_ns();
	if (run_to_port(vcpu, run, PORT_LOOPED) < 0)
		return probe_says(f, ENODEV,
				  "VMs can be made, but a guest in long mode does not run");
	took = now_ns() - start;
	if (took > SLOW_NS)
		return probe_says(f, ENODEV, "in software only: 200000 instructions took %d ms",
				  (int)(took / 1000000));
	if (run_to_port(vcpu, run, PORT_RING) != 0)
		return probe_says(f, ENODEV, "a guest's system calls do not arrive in its kernel");
	return 0;
}

#else

int probe_kvm(struct feature *f)
{
	int vm = -1, errnum = open_kvm(f, &vm);

	if (errnum)
		return errnum;
	f->state = FEATURE_LIMITED;
	return probe_says(f, 0, "VMs can be made; not tried further");
}

#endif
