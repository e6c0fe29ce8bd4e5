"""Makes system calls inside another process, with its rights, its filter and its files: x86-64, as root.

    with inject.Tracee(pid) as t:
        t.call("socket", 2, 1, 0)             the result, or minus the errno
        t.call("openat", -100, b"/etc/passwd", 0)
        fd = t.receive(fd_of_ours)             through a socket that the process shares with us
"""

import array
import ctypes
import os
import platform
import signal
import struct

SUPPORTED = platform.machine() == "x86_64" and os.geteuid() == 0

PEEKTEXT, GETREGS, SETREGS, SINGLESTEP, DETACH, SEIZE, INTERRUPT = 1, 12, 13, 9, 17, 0x4206, 0x4207

NUMBERS = {
    "open": 2, "socket": 41, "connect": 42, "recvmsg": 47, "bind": 49, "listen": 50, "socketpair": 53, "clone": 56,
    "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "chroot": 161, "mount": 165, "umount2": 166, "ptrace": 101,
    "setuid": 105, "setgid": 106, "capset": 126, "mknod": 133, "pivot_root": 155, "init_module": 175, "tkill": 200,
    "getdents64": 217, "keyctl": 250, "openat": 257, "mknodat": 259, "unshare": 272, "perf_event_open": 298,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321,
    "execveat": 322, "userfaultfd": 323, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438,
    "symlink": 88, "getpid": 39, "reboot": 169, "swapon": 167, "sethostname": 170, "settimeofday": 164,
    "personality": 135, "add_key": 248, "shmget": 29, "msgget": 68, "fanotify_init": 300, "kexec_load": 246,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "landlock_restrict_self": 446, "seccomp": 317,
}

REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
             "ds es fs gs").split()


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in REGISTERS]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(what, pid, address=None, data=None):
    got = libc.ptrace(what, pid, address, data)
    if got < 0:
        raise OSError(ctypes.get_errno(), "ptrace %d" % what)
    return got


class Tracee:
    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        ptrace(SEIZE, self.pid)
        ptrace(INTERRUPT, self.pid)
        os.waitpid(self.pid, 0x40000000)
        self.saved = self.registers()
        self.memory = open("/proc/%d/mem" % self.pid, "r+b", buffering=0)
        self.gate = self.find_gate()
        return self

    def __exit__(self, *_):
        # The call that was interrupted is made again: its registers are as they were.
        ptrace(SETREGS, self.pid, None, ctypes.addressof(self.saved))
        self.memory.close()
        ptrace(DETACH, self.pid)

    def registers(self):
        regs = Registers()
        ptrace(GETREGS, self.pid, None, ctypes.addressof(regs))
        return regs

    def find_gate(self):
        """The address of a syscall instruction: the process waits behind one."""
        self.memory.seek(self.saved.rip - 2)
        if self.memory.read(2) != b"\x0f\x05":
            raise AssertionError("the process is not in a system call")
        return self.saved.rip - 2

    def call(self, name, *args):
        """Bytes become a pointer to a copy in the process, with a NUL behind them."""
        place, numbers = (self.saved.rsp - 8192) & ~0xFFF, []
        for arg in args:
            if isinstance(arg, bytes):
                self.write(place, arg + b"\0")
                numbers.append(place)
                place += (len(arg) + 16) & ~0xF
            else:
                numbers.append(arg & (1 << 64) - 1)
        regs = Registers.from_buffer_copy(self.saved)
        for register, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), numbers + [0] * 6):
            setattr(regs, register, value)
        regs.rip, regs.rax, regs.orig_rax = self.gate, NUMBERS[name], (1 << 64) - 1
        ptrace(SETREGS, self.pid, None, ctypes.addressof(regs))
        ptrace(SINGLESTEP, self.pid)
        _, status = os.waitpid(self.pid, 0x40000000)
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
            raise AssertionError("%s: the process ended: %#x" % (name, status))
        return ctypes.c_longlong(self.registers().rax).value

    def write(self, place, data):
        self.memory.seek(place)
        self.memory.write(data)

    def receive(self, sock, fd):
        """Sends one of our fds through our end of a connection; its number there."""
        import socket

        sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        base = (self.saved.rsp - 16384) & ~0xFFF
        for name in os.listdir("/proc/%d/fd" % self.pid):
            self.write(base, struct.pack("<QQ", base + 256, 16) + b"\0" * 48)  # iovec, control
            message = struct.pack("<QIIQQQQI", 0, 0, 0, base, 1, base + 64, 64, 0) + b"\0" * 4
            self.write(base + 128, message)
            if self.call("recvmsg", int(name), base + 128, 0x40) == 1:  # MSG_DONTWAIT
                self.memory.seek(base + 64 + 16)
                return struct.unpack("<i", self.memory.read(4))[0]
        raise AssertionError("the process has no such connection")
