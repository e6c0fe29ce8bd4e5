"""What the processors of this machine make of a neighbour's load, without cloche: the control of bench/fair.py; and
how that bench keeps apart from other work on the machine."""
import os
import signal
import socket
import time

import run as bench_run
from client import percentile

LEVELS = (1, 2, 4, 8)  # programs that compute
CPU = "/sys/fs/cgroup/cpu"


def be_prompt(on):
    """The measuring client runs as soon as it has something to do, as on a machine of its own."""
    try:
        if on:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        else:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        pass


def end(pid):
    """Processor time that the client had, s."""
    os.kill(pid, signal.SIGKILL)
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime


def put(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(str(text))


class Apart:
    """A cgroup with four times the usual weight: other work on the machine then disturbs less. More would be false:
    the kernel's own threads have the usual weight, too. Only as root with cgroup v1; else place is None."""

    def __init__(self):
        self.place = CPU + "/cloche-bench-%d" % os.getpid()
        try:
            os.mkdir(self.place)
            put(self.place + "/cpu.shares", 4096)
            put(self.place + "/cpu.rt_runtime_us", 400000)  # of a second, for be_prompt
            put(self.place + "/tasks", 0)
        except OSError:
            self.place = None

    def below(self, name):
        """A part of it for one side of the control."""
        if self.place:
            os.makedirs(self.place + "/" + name, exist_ok=True)
            put(self.place + "/" + name + "/tasks", 0)

    def end(self):
        if not self.place:
            return
        put(CPU + "/tasks", 0)
        for top, _, _ in os.walk(self.place, topdown=False):
            try:
                os.rmdir(top)
            except OSError:
                pass  # whoever is in it yet

    def running(self, skip_path, skip_pids):
        """How many tasks in it run or want to, but for a part of it and some processes."""
        skip = {name for pid in skip_pids if os.path.isdir("/proc/%d/task" % pid)
                for name in os.listdir("/proc/%d/task" % pid)}
        count = 0
        for top, parts, _ in os.walk(self.place):
            parts[:] = [p for p in parts if p not in skip_path]
            try:
                with open(top + "/tasks", encoding="ascii") as f:
                    tasks = set(f.read().split()) - skip
            except OSError:
                continue
            for task in tasks:
                try:
                    with open("/proc/%s/stat" % task, encoding="utf-8", errors="replace") as f:
                        count += f.read().rpartition(")")[2].split()[0] == "R"
                except (OSError, IndexError):
                    pass
        return count


class Computing:
    """Counts meanwhile, in a process of its own, how many tasks compute."""

    def __init__(self, apart, skip_path, skip_pids):
        self.pid = None
        if not apart.place:
            return
        look, tell = os.pipe()
        self.look = look
        self.pid = os.fork()
        if self.pid:
            os.close(tell)
            return
        os.nice(19)
        while True:
            time.sleep(0.2)
            os.write(tell, bytes([min(255, apart.running(skip_path, {*skip_pids, os.getpid()}))]))

    def mean(self):
        """None: not known."""
        if not self.pid:
            return None
        end(self.pid)
        seen = os.read(self.look, 65536)
        os.close(self.look)
        return sum(seen) / len(seen) if seen else None


# ---- the control


def serve_bare(sock):
    """The simplest server that starts a program, or only answers."""
    while True:
        wanted = sock.recv(1)
        if wanted == b"s":
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        elif not wanted:
            return
        sock.sendall(b"x")


def spin():
    """A session of its own: without cgroups the kernel shares out time among sessions."""
    os.setsid()
    while True:
        pass


def in_child(what, *args):
    pid = os.fork()
    if pid:
        return pid
    try:
        what(*args)
    finally:
        os._exit(0)


def measure_bare(ours, rounds):
    times = {b"s": [], b"e": []}
    be_prompt(True)
    try:
        for _ in range(rounds):
            for wanted, found in times.items():
                begun = time.perf_counter()
                ours.sendall(wanted)
                ours.recv(1)
                found.append((time.perf_counter() - begun) * 1000)
    finally:
        be_prompt(False)
    return times


def control(apart, rounds):
    """A bare server, and programs that compute, on the same processors: nothing of cloche. Each side has a cgroup of
    its own. The ratios are what the kernel's scheduler makes of a neighbour's load: LEVELS -> (starting a program,
    only answering)."""
    ours, theirs = socket.socketpair()

    def server():
        apart.below("server")
        ours.close()
        serve_bare(theirs)

    def spinner():
        apart.below("spinners")
        spin()

    pid, ratios = in_child(server), {}
    try:
        measure_bare(ours, 30)
        for spinning in LEVELS:
            quiet = measure_bare(ours, rounds)
            spinners = [in_child(spinner) for _ in range(spinning)]
            time.sleep(0.2)
            busy = measure_bare(ours, rounds)
            for one in spinners:
                end(one)
            after = measure_bare(ours, rounds)
            ratios[spinning] = tuple(percentile(busy[k], 0.99) / percentile(quiet[k] + after[k], 0.99) for k in busy)
    finally:
        end(pid)
    return ratios


def medians(controls):
    """Of several: one alone may have met a moment in which the machine did something else."""
    return {n: tuple(percentile([c[n][k] for c in controls], 0.5) for k in (0, 1)) for n in LEVELS}


def show_control(apart, rounds):
    ratios = medians([control(apart, rounds) for _ in range(5)])
    rows = [[n, "%.1f" % start, "%.1f" % answer] for n, (start, answer) in ratios.items()]
    bench_run.table("a bare server beside programs that compute (no cloche): p99, x its quiet p99",
                    ["programs", "starts `true`", "only answers"], rows)
    return 0
