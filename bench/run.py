#!/usr/bin/env python3
"""Measures cloche beside its peers and prints tables in Markdown.

    make bench [BENCH="start rootless ..."]       all sections, or those named
    BENCH_QUICK=1 make bench                      fewer rounds

Every number is from commands that took turns in one run (bench/spawnbench.c); compare only inside
one table. A peer that is not installed is left out by name. Nothing runs at real-time priority, and
whatever was started here is stopped here.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, os.environ.get("B", "build"))
QUICK = os.environ.get("BENCH_QUICK", "") not in ("", "0")
ROOT = os.geteuid() == 0
USER_ID = 60123
NAMESPACES = [f"--unshare-{n}" for n in ("user", "pid", "net", "ipc", "uts", "cgroup")]


class Bench:
    """Where things are: a directory of our own, with copies of the programs that anyone may run."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="cloche-bench-")
        os.chmod(self.dir, 0o755)
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        for name in ("cloche", "cloched", "bench/payload", "bench/spawnbench"):
            if os.path.exists(os.path.join(BUILD, name)):
                shutil.copy(os.path.join(BUILD, name), self.dir)
        shutil.copy(os.path.join(BUILD, "bench/payload"), self.work)
        if os.path.isdir(os.path.join(TOP, "policies")):
            shutil.copytree(os.path.join(TOP, "policies"), os.path.join(self.dir, "policies"))
        self.cloche = os.path.join(self.dir, "cloche")
        self.payload = os.path.join(self.work, "payload")
        self.children = []
        self.shown = None  # of bwrap()

    def spawnbench(self, options, rows, user=None):
        """rows: (name, every, argv). Returns {name: [numbers]}; says what failed."""
        argv = [os.path.join(self.dir, "spawnbench"), *options]
        for n, (name, every, command) in enumerate(rows):
            argv += ([","] if n else []) + [f"{name}/{every}", *command]
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        env = {"PATH": os.environ["PATH"], "HOME": self.dir + "/home", "LANG": "C.UTF-8"}
        for name in ("CLOCHE_STATE_DIR", "CLOCHE_RUNTIME_DIR", "CLOCHE_URL", "CLOCHE_DAEMON", "DOCKER_HOST"):
            if name in os.environ:
                env[name] = os.environ[name]
        done = subprocess.run(argv, cwd=self.work, stdout=subprocess.PIPE, env=env, text=True, **who)
        return {line.split("\t")[0]: [float(x) for x in line.split("\t")[1:]]
                for line in done.stdout.splitlines()}

    def bwrap(self, *command):
        """bubblewrap with the same namespaces and the same root: whatever cloche shows of the host and
        wherever it lets one write. Without the files that cloche makes for /etc, what it hides in
        /proc, and the copy-on-write; and no cgroup, seccomp, Landlock."""
        words = {"bind": lambda path: ["--ro-bind", path, path], "tmpfs": lambda path: ["--tmpfs", path],
                 "link": lambda path: ["--symlink", os.readlink(path), path]}
        root = [word for kind, path in self.same_root() for word in words[kind](path)]
        return self.bwrap_with(root, *command)

    def bwrap_small(self, *command):
        """The same with next to no root: enough for a static program, not for a Python with TLS."""
        return self.bwrap_with(["--ro-bind", "/usr", "/usr", "--tmpfs", "/tmp"], *command)

    def bwrap_with(self, root, *command):
        links = [a for d in ("bin", "sbin", "lib", "lib64") if os.path.islink("/" + d)
                 for a in ("--symlink", "usr/" + d, "/" + d)]
        return ["bwrap", *NAMESPACES, "--die-with-parent", *root, *links, "--proc", "/proc", "--dev", "/dev",
                "--bind", self.work, self.work, "--chdir", self.work, *command]

    def same_root(self):
        """What a sandbox shows of the host and where it lets one write: (kind, path)."""
        if self.shown is None:
            self.shown = self.look_inside()
        return self.shown

    def look_inside(self):
        made = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
        script = "cat /proc/self/mountinfo; echo; find /etc -xdev -mindepth 1"
        done = subprocess.run(self.run("/bin/sh", "-c", script), cwd=self.work, check=True,
                              capture_output=True, text=True)
        mounts, files = done.stdout.split("\n\n")
        shown, rows = set(), []
        for line in mounts.splitlines():
            words, kind = line.split(" - ")[0].split(), line.split(" - ")[1].split()[0]
            target, flags = words[4], words[5].split(",")
            if target == "/" or target.startswith(("/proc", "/dev", self.work)):
                continue
            shown.add(target)
            rows.append(("tmpfs" if kind == "tmpfs" and "rw" in flags else "bind", target))
        for path in files.split():
            if path not in shown and path not in made and os.path.lexists(path) and not os.path.isdir(path):
                rows.append(("link" if os.path.islink(path) else "bind", path))
        return rows

    def run(self, *command):
        return [self.cloche, "run", "--", *command]

    def close(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for path in glob.glob("/sys/fs/cgroup/**/" + os.path.basename(self.dir), recursive=True):
            os.rmdir(path)
        shutil.rmtree(self.dir, ignore_errors=True)


def table(title, head, rows, note=None):
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    if note:
        print("\n" + note)
    sys.stdout.flush()


def ms(us):
    return f"{us / 1000:.2f}"


def ratio(x, base):
    return f"{x / base:.2f}" if base and x / base < 10 else f"{x / base:.0f}" if base else "-"


def works(bench, command, expect="hello"):
    """Does the contestant run the payload at all? Checked once, with its output."""
    try:
        done = subprocess.run([a.replace("@", "cloche-bench-0") if a == "@" else a for a in command],
                              cwd=bench.work, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode or expect not in done.stdout:
        return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1][:160]
    return None


# ---- peers -------------------------------------------------------------------------------------


def bundle(bench, small):
    """An OCI bundle as `runc spec` writes it, without a terminal: with the same root as cloche, or with the
    payload alone."""
    path = os.path.join(bench.dir, "small" if small else "bundle")
    root = os.path.join(path, "rootfs")
    if os.path.isdir(path):
        return path
    os.makedirs(root)
    subprocess.run(["runc", "spec"], cwd=path, check=True)
    with open(os.path.join(path, "config.json"), encoding="utf-8") as text:
        config = json.load(text)
    config["process"].update(args=["/payload" if small else bench.payload], terminal=False)
    config["linux"].setdefault("resources", {}).update(memory={"limit": 1 << 30}, pids={"limit": 256})
    if small:
        shutil.copy(bench.payload, root)
    else:
        config["mounts"] += same_mounts(bench, root)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as text:
        json.dump(config, text)
    return path


def same_mounts(bench, root):
    """The same root in OCI's words. What needs no mount is put into the bundle's own root beforehand."""
    mounts = []
    for kind, path in bench.same_root():
        inside = root + path
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if kind == "link":
            os.symlink(os.readlink(path), inside)
        elif kind == "bind" and os.path.isfile(path):
            shutil.copy(path, inside)
        elif kind == "bind":
            mounts.append({"destination": path, "source": path, "type": "bind", "options": ["rbind", "ro"]})
        else:
            mounts.append({"destination": path, "source": "tmpfs", "type": "tmpfs", "options": ["nosuid"]})
    mounts.append({"destination": bench.work, "source": bench.work, "type": "bind", "options": ["rbind"]})
    return mounts


def runc(bench, small=False):
    return ["runc", "--root", os.path.join(bench.dir, "runc"), "run", "--bundle", bundle(bench, small), "@"]


def runsc(bench, small=False):
    return ["runsc", "--root", os.path.join(bench.dir, "runsc"), "--network=none", "run",
            "--bundle", bundle(bench, small), "@"]


def docker(bench):
    """A Docker daemon of our own, on a private socket and in a network namespace of its own, with its
    bridge there and one image that holds the payload."""
    top = os.path.join(bench.dir, "docker")
    socket = f"unix://{top}/d.sock"
    client = ["docker", "-H", socket]
    if os.path.isdir(top):
        return [*client, "run", "--rm"]
    os.makedirs(top)
    log = open(os.path.join(top, "log"), "wb")
    bench.children.append(subprocess.Popen(
        ["unshare", "--net", "dockerd", "-H", socket, "--data-root", f"{top}/data", "--exec-root", f"{top}/exec",
         "--pidfile", f"{top}/pid", "--cgroup-parent", "/" + os.path.basename(bench.dir)],
        stdout=log, stderr=log))
    for _ in range(60):
        if not subprocess.run([*client, "info"], capture_output=True).returncode:
            break
        if bench.children[-1].poll() is not None:
            raise OSError("dockerd does not start here")
        time.sleep(0.5)
    tar = subprocess.run(["tar", "c", "-C", bench.work, "payload"], check=True, capture_output=True)
    subprocess.run([*client, "import", "-", "payload"], input=tar.stdout, check=True,
                   capture_output=True)
    return [*client, "run", "--rm"]


def docker_without_network(bench):
    return [*docker(bench), "--network", "none", "payload", "/payload"]


def firejail(bench):
    return ["firejail", "--quiet", "--noprofile", "--net=none", "--private-tmp", bench.payload]


# name, program that must be installed, takes part in every so many-th round, how it is called
PEERS = [
    ("bubblewrap", "bwrap", 1, lambda b: b.bwrap(b.payload)),
    ("bubblewrap, small root", "bwrap", 1, lambda b: b.bwrap_small(b.payload)),
    ("firejail", "firejail", 5, firejail),
    ("runc", "runc", 5, runc),
    ("runc, payload alone", "runc", 5, lambda b: runc(b, small=True)),
    ("runsc (gVisor)", "runsc", 10, runsc),
    ("runsc, payload alone", "runsc", 10, lambda b: runsc(b, small=True)),
    ("docker run", "dockerd", 10, lambda b: [*docker(b), "payload", "/payload"]),
    ("docker run --network none", "dockerd", 10, docker_without_network),
]


def contestants(bench, peers):
    rows = [("floor: vfork+exec", 1, [bench.payload]), ("cloche run", 1, bench.run(bench.payload))]
    for name, program, every, command in peers:
        if not shutil.which(program):
            print(f"left out: {name}: not installed")
            continue
        try:
            argv = command(bench)
            why = works(bench, argv)
        except (OSError, subprocess.CalledProcessError) as error:
            why = str(error)
        if why:
            print(f"left out: {name}: {why}")
        else:
            rows.append((name, every, argv))
    return rows


# ---- sections ----------------------------------------------------------------------------------


def latency_table(title, found, base, note=None):
    """base, and if it takes part cloche: what the others are compared with."""
    bases = ["floor: vfork+exec", base, *(["cloche run"] if "cloche run" in found else [])]
    rows = [(name, int(n), ms(low), ms(p50), ms(p99), *(ratio(p50, found[b][2]) if b in found else "-" for b in bases))
            for name, (n, low, p50, p99) in found.items()]
    table(title, ["", "runs", "min ms", "p50 ms", "p99 ms", *(f"x {b.split(':')[0]}" for b in bases)], rows, note)


def throughput(bench, title, rows, user=None):
    slices = ["-j", "2", "-n", "3" if QUICK else "7", "-t", "0.5" if QUICK else "1"]
    found = bench.spawnbench(slices, rows, user)
    base = found.get("bubblewrap", [0, 0])[1]
    table(title, ["", "runs/s", "x bubblewrap"],
          [(name, f"{rate:.0f}" if rate >= 20 else f"{rate:.1f}", ratio(rate, base))
           for name, (_, rate) in found.items()])


def section_start(bench):
    """Start-up of a static hello, as whoever runs this."""
    rows = contestants(bench, PEERS if ROOT else PEERS[:2])
    found = bench.spawnbench(["-n", "60" if QUICK else "500"], rows)
    who = "root" if ROOT else "an ordinary user"
    latency_table(f"Start-up, static hello, as {who}", found, "bubblewrap",
                  "cloche: every layer on (namespaces, own root, cgroup limits, seccomp, Landlock, "
                  "capabilities), the record proven. bubblewrap: the same namespaces and the same root "
                  "(small root: /usr, /proc, /dev and /tmp only), no cgroup, seccomp or Landlock. runc and "
                  "runsc: the same root, limits of memory and pids; docker run: an image with the payload alone.")
    throughput(bench, "Two parallel streams", [r for r in rows])


def section_rootless(bench):
    """The same, rootless."""
    if not ROOT:
        return
    os.chown(bench.work, USER_ID, USER_ID)
    rows = contestants(bench, PEERS[:2])
    found = bench.spawnbench(["-n", "60" if QUICK else "500"], rows, USER_ID)
    latency_table("Start-up, static hello, rootless", found, "bubblewrap")
    throughput(bench, "Two parallel streams, rootless", rows, USER_ID)
    os.chown(bench.work, 0, 0)


def section_code(bench):
    """A Python snippet."""
    python = "/usr/bin/python3"
    rows = [("python3 -c, bare", 1, [python, "-c", "print(42)"]),
            ("cloche code", 1, [bench.cloche, "code", "-e", "print(42)"])]
    if shutil.which("bwrap"):
        rows.append(("python3 -c in bubblewrap", 1, bench.bwrap(python, "-c", "print(42)")))
    found = bench.spawnbench(["-n", "30" if QUICK else "150"], rows)
    latency_table("print(42) in Python", found, "python3 -c, bare")


def workloads(bench):
    """Something to compile, to commit, to pack; each a second or two."""
    source = os.path.join(bench.work, "big.c")
    with open(source, "w", encoding="utf-8") as out:
        out.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
        for n in range(250):
            out.write(f"int f{n}(int x, char *s) {{ int y = x * {n} + (int)strlen(s);\n"
                      f"  for (int i = 0; i < x; i++) {{ y += s[i % {n + 1}] ^ i; "
                      f"if (y % {n + 2} == 3) printf(\"%d\\n\", y); }} return y; }}\n")
    return {
        "compile": "gcc -O2 -c big.c -o /tmp/big-$$.o && rm /tmp/big-$$.o",
        "git": "d=repo-$$ && mkdir $d && cd $d && git init -q . && for i in $(seq 1 80); do "
               "seq $i 2000 >f$i && git add f$i && git -c user.name=x -c user.email=x@x commit -qm $i; "
               "done && cd .. && rm -rf $d",
        "tar": "tar c /usr/include /usr/lib/gcc 2>/dev/null | gzip -1 | wc -c",
    }


def section_work(bench):
    """What the sandbox costs the program inside."""
    rows = []
    for name, script in workloads(bench).items():
        if name != "tar" and not shutil.which({"compile": "gcc"}.get(name, name)):
            print(f"left out: {name}: not installed")
            continue
        found = bench.spawnbench(["-n", "3" if QUICK else "11", "-w", "1"], [
            ("bare", 1, ["/bin/sh", "-c", script]),
            ("cloche", 1, [bench.cloche, "run", "--cpus", "2", "--", "/bin/sh", "-c", script])])
        if len(found) == 2:
            (_, low, p50, _), (_, low_in, p50_in, _) = found["bare"], found["cloche"]
            rows.append((name, ms(p50), ms(p50_in), f"{p50 / p50_in:.3f}", f"{low / low_in:.3f}"))
    table("The command itself",
          ["", "bare p50 ms", "in cloche p50 ms", "speed inside (p50)", "(best runs)"], rows,
          "Start-up included; 1.000 is as fast as outside.")


def section_syscalls(bench):
    """System calls under the filter."""
    rows = []
    commands = [("bare", [bench.payload, "syscalls"]),
                ("cloche", bench.run(bench.payload, "syscalls"))]
    if shutil.which("bwrap"):
        commands.append(("bubblewrap (no filter)", bench.bwrap(bench.payload, "syscalls")))
    for name, command in commands:
        done = subprocess.run(command, cwd=bench.work, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            rows.append((name, *done.stdout.split()))
    table("System calls", ["", "getppid ns", "open+close ns"], rows)


def start_sleepers(bench, count):
    """Sandboxes that do nothing but live; returns when every one of them runs."""
    sleepers = []
    for _ in range(count):
        p = subprocess.Popen([bench.cloche, "run", "--timeout", "20m", "--", bench.payload, "sleep"],
                             cwd=bench.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        bench.children.append(p)
        sleepers.append(p)
    alive = sum(p.stdout.readline() == b"ready\n" for p in sleepers)
    return sleepers, alive


def stop_sleepers(bench, sleepers):
    for p in sleepers:
        p.send_signal(signal.SIGTERM)
    for p in sleepers:
        p.wait(60)
        p.stdout.close()
        bench.children.remove(p)


def private_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        return sum(int(line.split()[1]) for line in text if line.startswith("Private_"))


def section_crowd(bench):
    """With many other sandboxes alive, and what each of them holds."""
    count = 100 if QUICK else 1000
    rows = [("floor: vfork+exec", 1, [bench.payload]), ("cloche run", 1, bench.run(bench.payload))]
    if shutil.which("bwrap"):
        rows.append(("bubblewrap", 1, bench.bwrap(bench.payload)))
    options = ["-n", "40" if QUICK else "200"]
    alone = bench.spawnbench(options, rows)
    sleepers, alive = start_sleepers(bench, count)
    try:
        crowd = bench.spawnbench(options, rows)
        memory = sorted(private_kb(p.pid) for p in sleepers if p.poll() is None)
    finally:
        stop_sleepers(bench, sleepers)
    table(f"With {alive} other sandboxes alive", ["", "alone p50 ms", "in the crowd p50 ms", "x alone"],
          [(name, ms(alone[name][2]), ms(crowd[name][2]), ratio(crowd[name][2], alone[name][2]))
           for name in alone if name in crowd])
    if memory:
        print(f"\nPrivate memory of a keeper: median {memory[len(memory) // 2]} kB, "
              f"most {memory[-1]} kB.")


SECTIONS = {name[8:]: f for name, f in globals().items() if name.startswith("section_")}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        model = next((line.split(":")[1].strip() for line in text if "model name" in line), "?")
    return f"{os.cpu_count()} x {model}, Linux {os.uname().release}"


def main(wanted):
    unknown = [w for w in wanted if w not in SECTIONS]
    if unknown:
        print(f"bench: no section '{unknown[0]}'; there are: {' '.join(SECTIONS)}", file=sys.stderr)
        return 2
    print(f"## cloche on {machine()}{' (quick)' if QUICK else ''}")
    bench = Bench()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        why = works(bench, bench.run(bench.payload))
        if why:
            print(f"bench: cloche itself does not run: {why}", file=sys.stderr)
            return 1
        for name in wanted or SECTIONS:
            SECTIONS[name](bench)
    finally:
        bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
