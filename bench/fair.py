#!/usr/bin/env python3
"""Does one tenant, or a stranger without a token, slow down another tenant?

    make bench-fair [BENCH="slow_heads big_json"]     all cases take about 6 minutes; BENCH_QUICK=1: 3
    make bench-fair BENCH=control                     what the processors do without cloche: see control()

A daemon, two tokens. The victim's warm run, exec, file read and list are measured while each hostile case runs in a
process of its own. The table has the victim's p99 in terms of its quiet p99; it should stay below 3. Each cell: the
ratio, the p99, and the ratio of the control, a bare server without cloche beside as many programs that compute as ran
or wanted to run on the hostile side in this case ("computing", the daemon included). The verdict is "within" the
bound, "as control" where the processors alone account for what is over it, else "OVER" with the names of the acts.

Quiet and hostile windows take turns: the quiet p99 of a case is that of the four windows around it, so that noise of
the machine hits both sides. As root with cgroup v1 all of it runs in a cgroup with four times the usual weight.

In reality clients run on machines of their own. Here they share the processors with the daemon and all sandboxes, so
the measuring client has a real-time priority (where that is not refused), and the hostile client runs
only when nothing else wants the processor (SCHED_IDLE). Many kernels do not take the processor away within a system
call, so the hostile client's sockets have buffers of 128 kB: no call copies megabytes while others wait. The sandboxes
of the hostile tenant are on the daemon's machine in reality, too: they keep the priority that the daemon gives them.
"client": what the hostile client got of one processor, in percent; a case whose client got next to nothing, and is
meant to be busy, proves nothing. "operator": how long a new connection over the Unix socket took.

The cases are in bench/hostile.py.
"""
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench_run  # noqa: E402
from client import BUILD, Client, Daemon, percentile  # noqa: E402
from hostile import CASES, Hostile, Tenant  # noqa: E402
from processors import LEVELS, Apart, Computing, be_prompt, control, end, medians, show_control  # noqa: E402

WINDOW_S, QUIET_S = (1.5, 0.7) if bench_run.QUICK else (4, 1.5)
ROUNDS_LEAST, CONTROL_EVERY = 50, 7
BOUND = 3.0


# ---- both sides


def token(d, name):
    env = dict(os.environ, CLOCHE_STATE_DIR=os.path.join(d.dir, "state"), CLOCHE_RUNTIME_DIR=os.path.join(d.runtime, "run"))
    made = subprocess.run([os.path.join(BUILD, "cloche"), "token", "create", name], env=env, capture_output=True,
                          text=True, check=True)
    return made.stdout.strip().splitlines()[-1]


def port_of(d):
    for line in d.log().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("msg") == "listening" and entry.get("address", "").startswith("127."):
            return int(entry["address"].rpartition(":")[2])
    raise RuntimeError("no port in the log")


class Victim(Tenant):
    def __init__(self, port, key, apart):
        super().__init__(port, key)
        self.path = self.box(hostname="victim")  # not of the pool: it is in its owner's group
        mine = self.path.rpartition("/")[2]
        self.group = {os.path.basename(top) for top, names, _ in os.walk(apart.place or "/nonexistent")
                      for name in names if name.endswith(mine)}
        self.fine("PUT", self.path + "/files?path=file", b"x" * 4096)
        self.acts = {
            "run": lambda: self.fine("POST", "/v1/run", {"code": "print(1)", "language": "python"}),
            "exec": lambda: self.fine("POST", self.path + "/exec", {"cmd": ["true"]}),
            "read": lambda: self.fine("GET", self.path + "/files?path=file"),
            "list": lambda: self.fine("GET", "/v1/sandboxes"),
        }

    def fine(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        assert status < 300, (status, answer[:300])

    def measure(self, seconds):
        """The times of each act, ms."""
        times, until, rounds = {name: [] for name in self.acts}, time.monotonic() + seconds, 0
        be_prompt(True)
        try:
            while time.monotonic() < until or rounds < ROUNDS_LEAST:
                rounds += 1
                for name, act in self.acts.items():
                    begun = time.perf_counter()
                    act()
                    times[name].append((time.perf_counter() - begun) * 1000)
        finally:
            be_prompt(False)
        return times


def give_way():
    """The hostile client runs when nothing else wants to."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def p99(*windows):
    return {act: percentile([t for w in windows for t in w[act]], 0.99) for act in windows[0]}


# ---- the run


def begin(function, port, key):
    """The hostile process, once it is ready."""
    look, sign = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(look)
            give_way()
            function(Hostile(port, key, sign))
            status = 0
        except BaseException as error:  # pylint: disable=broad-except
            print("%s: %r" % (function.__name__, error), file=sys.stderr)
        finally:
            os._exit(status)
    os.close(sign)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(60)
    os.read(look, 1)
    signal.alarm(0)
    os.close(look)
    return pid


def ask_operator(d):
    """How long the operator waits, ms; None: not let in."""
    begun = time.perf_counter()
    try:
        with Client(d.sock) as c:
            status, _ = c.ask("GET", "/v1/sandboxes")
    except OSError:
        return None
    return (time.perf_counter() - begun) * 1000 if status == 200 else None


def try_case(d, name, victim, hostile_key, apart):
    """The victim's times or an error, the operator's time, the client's share of a processor, and how many computed."""
    begun = time.monotonic()
    pid = begin(CASES[name], victim.port, hostile_key)
    computing = Computing(apart, victim.group, {os.getpid(), pid})
    operator = None
    try:
        found = victim.measure(WINDOW_S)
        operator = ask_operator(d)
    except (OSError, AssertionError, http.client.HTTPException) as error:
        found = "locked out: %r" % error
    finally:
        used = end(pid)
    return found, operator, used / (time.monotonic() - begun), computing.mean()


def clean(d, victim):
    """Leaves the victim's sandbox only, and waits until the daemon has nothing left to do."""
    with Client(d.sock) as c:
        for box in json.loads(c.ask("GET", "/v1/sandboxes")[1])["sandboxes"]:
            if not victim.path.endswith(box["id"]):
                c.ask("DELETE", "/v1/sandboxes/" + box["id"])
    time.sleep(0.5)


class Verdict:
    """A row of the table. control: what the same number of programs that compute does to a bare server."""

    def __init__(self, name, result, quiet, ratios):
        self.name, (self.found, self.operator, self.client, self.computing) = name, result
        level = next((n for n in LEVELS if n >= (self.computing or 0) - 0.5), LEVELS[-1])
        start, answer = ratios[level] if self.computing is None or self.computing >= 0.5 else (1.0, 1.0)
        self.control = {"run": start, "exec": start, "read": answer, "list": answer}
        self.over = ["locked out"]
        if not isinstance(self.found, str):
            self.times = p99(self.found)
            self.ratio = {act: t / quiet[act] for act, t in self.times.items()}
            self.over = [act for act, r in self.ratio.items() if r >= BOUND]

    def like_control(self):
        """All that is over the bound would be so without cloche."""
        return self.over != ["locked out"] and all(self.ratio[a] <= 1.1 * self.control[a] for a in self.over)

    def word(self):
        if self.operator is None:
            return "OPERATOR LOCKED OUT"
        return "within" if not self.over else ("as control: " if self.like_control() else "OVER: ") + ", ".join(self.over)

    def row(self):
        if isinstance(self.found, str):
            return [self.name, *["-"] * 4, "-", self.found, "-", "-"]
        cells = ["%.1f (%.1f ms; %.1f)" % (self.ratio[a], self.times[a], self.control[a]) for a in self.ratio]
        return [self.name, *cells, "?" if self.computing is None else "%.1f" % self.computing, self.word(),
                "%.0f %%" % (self.client * 100), "%.1f ms" % self.operator if self.operator else "-"]


HEAD = ["computing", "verdict", "client", "operator"]


def run_cases(d, names, apart):
    """Results by case, the quiet windows around them, and the control, which takes turns with them."""
    port = port_of(d)
    keys = token(d, "victim"), token(d, "hostile")
    time.sleep(1)
    victim = Victim(port, keys[0], apart)
    victim.measure(0.3)
    results, quiets, controls = [], [victim.measure(QUIET_S)], []
    for i, name in enumerate(names):
        if i % CONTROL_EVERY == 0:
            controls.append(control(apart, 100))
        results.append(try_case(d, name, victim, keys[1], apart))
        victim = Victim(port, keys[0], apart) if isinstance(results[-1][0], str) else victim
        clean(d, victim)
        quiets.append(victim.measure(QUIET_S))
        print("  ".join(map(str, Verdict(name, results[-1], p99(*quiets[-2:]), dict.fromkeys(LEVELS, (1.0, 1.0))).row())),
              flush=True)
    return results, quiets, medians(controls + [control(apart, 100)])


def main():
    names = sys.argv[1:] or list(CASES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else soft, hard))
    apart = Apart()
    try:
        if names == ["control"]:
            return show_control(apart, 200)
        d = Daemon().start()
        try:
            results, quiets, ratios = run_cases(d, names, apart)
        finally:
            d.stop()
    finally:
        apart.end()
    verdicts = [Verdict(name, result, p99(*quiets[max(0, i - 1):i + 3]), ratios)
                for i, (name, result) in enumerate(zip(names, results))]
    return report(verdicts, quiets, ratios)


def report(verdicts, quiets, ratios):
    bench_run.table("p99 of the victim beside a hostile tenant, x its quiet p99 (in ms; the control's ratio)",
                    ["case", "run", "exec", "read", "list", *HEAD], [v.row() for v in verdicts])
    print("quiet p99, ms: " + ", ".join("%s %.2f" % pair for pair in p99(*quiets).items()))
    print("control: " + ", ".join("%d computing: start %.1f, answer %.1f" % (n, *r) for n, r in ratios.items()))
    groups = [("within the bound of %g" % BOUND, [v for v in verdicts if not v.over]),
              ("over it, as the control is", [v for v in verdicts if v.over and v.like_control()]),
              ("over it, and the control is not", [v for v in verdicts if v.over and not v.like_control()])]
    for what, some in groups:
        print("%2d of %d cases %s%s" % (len(some), len(verdicts), what,
                                       ": " + ", ".join(v.name for v in some) if some and some[0].over else ""))
    for act in ("run", "exec", "read", "list"):
        known = [v.ratio[act] for v in verdicts if not isinstance(v.found, str)]
        print("%s: %d within, worst %.1f" % (act, sum(r < BOUND for r in known), max(known, default=0)))
    return 1 if groups[2][1] or any(v.operator is None for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
