"""What the processors of this machine make of a neighbour's load, without cloche: the control of bench/fair.py."""
import os
import signal
import socket
import time

import run as bench_run
from client import percentile


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


def serve_bare(sock):
    """The simplest server that starts a program for each byte it gets."""
    while sock.recv(1):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
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
    times = []
    be_prompt(True)
    try:
        for _ in range(rounds):
            begun = time.perf_counter()
            ours.sendall(b"x")
            ours.recv(1)
            times.append((time.perf_counter() - begun) * 1000)
    finally:
        be_prompt(False)
    return times


def control(rounds):
    """A bare server, and programs that compute, on the same processors: nothing of cloche. Its ratios are what the
    kernel's scheduler makes of a neighbour's load; no daemon below it can be better for programs that it starts."""
    ours, theirs = socket.socketpair()
    server, rows = in_child(serve_bare, theirs), []
    try:
        measure_bare(ours, 30)
        for spinning in 1, 2, 4, 8:
            quiet = measure_bare(ours, rounds)
            spinners = [in_child(spin) for _ in range(spinning)]
            time.sleep(0.2)
            busy = measure_bare(ours, rounds)
            for pid in spinners:
                end(pid)
            quiet = percentile(quiet + measure_bare(ours, rounds), 0.99)
            busy = percentile(busy, 0.99)
            rows.append([spinning, "%.2f ms" % quiet, "%.2f ms" % busy, "%.1f" % (busy / quiet)])
    finally:
        end(server)
    bench_run.table("a bare server that starts `true`, beside programs that compute (no cloche)",
                    ["programs", "quiet p99", "beside them", "ratio"], rows)
    return 0
