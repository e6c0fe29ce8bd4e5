#!/usr/bin/env python3
"""The same attacks against cloche, bubblewrap and docker, as a table of who refuses what.

    tests/escape/compare.py [--without NAME...] [CASE...]

Needs root: it works in mount, pid and network namespaces of its own, so that nothing that a
contestant starts or changes outlives it. Every contestant shows the probe the same directories,
/workspace (writable), /ro (read-only) and /rw (writable), and is started by the same careless
caller. A contestant that cannot be had is left out, by name. Left out are also cases that are about
cloche's own options and records, and those that fail on the bare host as well: their refusal says
nothing.
The table goes to stdout and to compare-escape.md in the build directory (environment: B).
"""
import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docker  # noqa: E402
import run as runner  # noqa: E402
import stage as staging  # noqa: E402

BUILD = runner.BUILD
ENTERED = "CLOCHE_COMPARE_ENTERED"
REFUSED, THROUGH, OPEN = "refused", "got-through", "cannot-tell"
WORDS = {REFUSED: "refused", THROUGH: "**through**", OPEN: "-"}

# A theme begins with the case of this name, in the order of `cloche-probe --list`.
THEMES = [
    ("Layers", "ns-user"), ("Files of the host", "read-absolute"), ("Read-only files", "ro-write"),
    ("Set-id files in the workspace", "setid-chmod"), ("Control files", "control-hook"),
    ("Processes and terminals", "ptrace-supervisor"), ("System calls", "perf"),
    ("Foreign ABIs", "abi-i386"), ("Ways to execute", "exec-setuid"),
    ("Socket families", "family-vsock"), ("Network", "host-tcp"), ("Unix sockets", "host-socket"),
    ("What the host tells", "leak-kcore"), ("Kernel settings", "write-core-pattern"),
    ("Devices", "device-nodes"), ("Things shared", "peer-files"), ("Limits", "memory-private"),
    ("What outlives the sandbox", "act-survivor"),
]
# Not compared, and why.
SKIPPED = {
    "landlock-alone": "is the same as ro-fifo, for those who have Landlock",
    "inodes": "fills the memory of a host without a limit",
    "act-stopped": "needs a time limit", "act-deaf": "needs a time limit",
    "act-fork-bomb": "needs a time limit", "act-zombies": "needs a limit on pids to mean anything",
    "act-flood": "is about cloche's record", "act-names": "is about cloche's record",
    "act-control": "is about --apply",
}
# Where it is not refused, it changes the sandbox for those after it: each in one of its own.
ALONE = {"ro-remount", "open-tree-clone", "open-tree-attr", "move-mount", "fsopen", "fsmount",
         "fspick", "mount-setattr", "mount", "umount", "pivot-root", "chroot", "mount-types",
         "nested-userns", "setns", "unshare", "set-hostname", "write-hostname", "kill-all"}
HARDENED = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
            "--tmpfs", "/tmp", "--network", "none"]
BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr",
         "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
         "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
         "--tmpfs", "/tmp"]


# ---- contestants ---------------------------------------------------------------------------------
# Each is a function of stage, options of the case's sandbox (cloche's words for limits) and the
# probe's arguments; it returns a command line.


def cloche(stage, options, args):
    return [stage.cloche, "run", "--workspace", stage.ws, "--mount", stage.ro + ":/ro:ro",
            "--mount", stage.rw + ":/rw:rw"] + options + ["--", "/workspace/cloche-probe"] + args


def bubblewrap(stage, _, args):
    return BWRAP + ["--bind", stage.ws, "/workspace", "--ro-bind", stage.ro, "/ro",
                    "--bind", stage.rw, "/rw", "--chdir", "/workspace",
                    "/workspace/cloche-probe"] + args


def docker_run(daemon, flags, args, stage):
    """stdin is passed on: a terminal as well, though not as a terminal."""
    return daemon.client + ["run", "--rm", "-i", "-w", "/workspace", "-v", stage.ws + ":/workspace",
                            "-v", stage.ro + ":/ro:ro", "-v", stage.rw + ":/rw"] + flags + \
        [docker.IMAGE, "/cloche-probe"] + args


def docker_default(daemon):
    return lambda stage, _, args: docker_run(daemon, [], args, stage)


def docker_hardened(daemon):
    """Its limits are those of the case where there are any, so that they can be reached."""

    def argv(stage, options, args):
        asked = dict(zip(options[::2], options[1::2]))
        limits = ["--memory", asked.get("--memory", "512m"),
                  "--pids-limit", asked.get("--pids", "256")]
        return docker_run(daemon, HARDENED + limits, args, stage)

    return argv


class Contestant:
    def __init__(self, name, stage, command):
        self.name, self.stage, self.command = name, stage, command
        self.results = {}

    def argv(self, args, options=()):
        return self.command(self.stage, list(options), args)

    def works(self):
        """None, or why not."""
        ended = self.stage.run(self.argv(["--whoami"]), stdin=subprocess.DEVNULL, timeout=60)
        if ended.status == 0 and "euid=" in ended.out:
            return None
        return "status %s: %s" % (ended.status, ended.err.strip()[-200:])

    def note(self, cases, text, hits, status, err):
        found = staging.parse_results(text)
        for case in cases:
            verdict, detail = found.get(case.name, (OPEN, "no answer, status %s: %s" % (
                status, err.strip()[-100:])))
            if case.name not in found and "kill-ok" in case.flags and status == 137:
                verdict, detail = REFUSED, "the sandbox was killed"
            elif case.name not in found and case.setup == "stdin-dir":
                verdict, detail = REFUSED, "does not start: " + err.strip()[-100:]
            if case.name in hits:
                verdict, detail = THROUGH, "the planted process was reached"
            self.results[case.name] = (verdict, detail)

    def run(self, cases, options=(), peer=None, stdout=None, **how):
        if not cases:
            return
        canaries = self.stage.canaries("/ro", "/workspace", "/rw", peer)
        argv = self.argv(canaries + [c.name for c in cases], options)
        if stdout is None:
            ended = self.stage.run(argv, timeout=200, **how)
            text = ended.out
        else:
            self.stage.write(stdout, self.stage.token + "\n", 0o600)
            with open(stdout, "ab") as f:
                ended = self.stage.run(argv, timeout=60, stdout=f.fileno(), **how)
            with open(stdout, encoding="utf-8", errors="replace") as f:
                text = f.read()
        self.note(cases, text, ended.hits, ended.status, ended.err)

    def peer(self):
        tag = secrets.token_hex(6)
        p = self.stage.start(self.argv(["--plant", tag]), stdin=subprocess.PIPE)
        found = {}
        for raw in p.stdout:
            name, eq, value = raw.decode(errors="replace").strip().partition("=")
            if name == "planted":
                break
            found.update({name: value} if eq else {})
        return p, {"peer": tag, "peer-has": found.get("has", ""), "peer-tcp": found.get("tcp")}

    def act(self, case):
        tag = secrets.token_hex(8)
        ended = self.stage.run(self.argv(["--act", case.name, tag]), stdin=subprocess.DEVNULL,
                               timeout=60)
        left = staging.wait_gone(self.stage, tag, 0.3)
        staging.end(left)
        verdict = THROUGH if left else REFUSED if ended.status == 0 else OPEN
        self.results[case.name] = (verdict, "%d alive, status %s" % (len(left), ended.status))

    def all(self, cases):
        def pick(setup):
            return [c for c in cases if c.setup == setup]

        p, peer = self.peer()
        try:
            self.run([c for c in pick("common") if c.name not in ALONE], peer=peer)
        finally:
            p.stdin.close()
            p.wait(timeout=30)
        self.run(pick("group"), group=True, stdin=subprocess.DEVNULL)
        with open_directory(self.stage.outside) as fd:
            self.run(pick("stdin-dir"), stdin=fd)
        self.run(pick("stdout-file"), stdout=self.stage.path("out"))
        self.run(pick("workspace") + pick("writable"))
        for case in pick("solo") + [c for c in pick("common") if c.name in ALONE]:
            self.run([case], case.options)
        for case in pick("act"):
            self.act(case)
        self.stage.tidy()


class open_directory:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self):
        return self.fd

    def __exit__(self, *exc):
        os.close(self.fd)


class Stage(staging.Stage):
    """A stage whose workspace and read-only directory can be made new for the next contestant."""

    def tidy(self):
        self.reset_ro()
        for name in os.listdir(self.ws):
            path = os.path.join(self.ws, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        self.fill_workspace()
        subprocess.run(["chown", "-hR", "%d:%d" % (self.uid, self.uid), self.ws], check=True)


# ---- the table -----------------------------------------------------------------------------------


def themes_of(cases):
    """[(title, [case...])...] in the order of the list."""
    found, starts = [], {first: title for title, first in THEMES}
    for case in cases:
        if case.name in starts:
            found.append((starts[case.name], []))
        if found:
            found[-1][1].append(case)
    return found


def row(cells):
    return "| " + " | ".join(cells) + " |"


def totals(contestants, cases):
    lines = [row(["", "refused", "got through", "cannot tell"]), row(["---"] * 4)]
    for c in contestants:
        counts = {v: sum(c.results[x.name][0] == v for x in cases) for v in WORDS}
        lines.append(row([c.name, "%d of %d" % (counts[REFUSED], len(cases)),
                          str(counts[THROUGH]), str(counts[OPEN])]))
    return lines


def by_theme(contestants, grouped):
    """Refused, of how many, theme by theme."""
    lines = [row(["refused", "of"] + [c.name for c in contestants]),
             row(["---"] * (2 + len(contestants)))]
    for title, cases in grouped:
        if cases:
            lines.append(row([title, str(len(cases))] + [
                str(sum(c.results[x.name][0] == REFUSED for x in cases)) for c in contestants]))
    return lines


def table(contestants, cases):
    names = [c.name for c in contestants]
    lines = [row(["case", "the attempt"] + names), row(["---"] * (2 + len(names)))]
    for case in cases:
        lines.append(row([case.name, case.title] +
                         [WORDS[c.results[case.name][0]] for c in contestants]))
    return lines


def details(contestants, cases):
    """Why something got through or could not be told, for whoever doubts the table."""
    lines = []
    for c in contestants:
        for case in cases:
            verdict, detail = c.results[case.name]
            if verdict != REFUSED:
                lines.append("- %s, %s: %s (%s)" % (c.name, case.name, WORDS[verdict], detail))
    return lines


def report(contestants, grouped, notes):
    compared = [case for _, cases in grouped for case in cases]
    lines = ["# Who refuses what", ""] + notes + [""] + totals(contestants, compared) + [""] + \
        by_theme(contestants, grouped)
    for title, cases in grouped:
        if cases:
            lines += ["", "## " + title, ""] + table(contestants, cases)
    return lines + ["", "## Details", ""] + details(contestants, compared)


# ---- putting it together -------------------------------------------------------------------------


def version_of(argv):
    try:
        text = subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout
    except OSError:
        return None
    found = re.search(r"\d+(\.\d+)+", text)
    return found.group(0) if found else "unknown"


def line_up(root, user, daemon):
    """Everybody who can be had, and notes about the versions and about those who cannot."""
    rows = [("cloche (root)", root, cloche), ("cloche (user)", user, cloche),
            ("bubblewrap (root)", root, bubblewrap), ("bubblewrap (user)", user, bubblewrap)]
    notes = ["Linux %s, cloche %s, bubblewrap %s%s." % (
        os.uname().release, version_of([root.cloche, "version"]),
        version_of(["bwrap", "--version"]) or "(not installed)",
        ", docker " + daemon.version() if daemon else "")]
    if daemon:
        rows += [("docker", root, docker_default(daemon)),
                 ("docker, hardened", root, docker_hardened(daemon))]
    contestants = []
    for name, stage, command in rows:
        one = Contestant(name, stage, command)
        why = one.works()
        if why:
            notes.append("Left out: %s: %s" % (name, why))
        else:
            contestants.append(one)
    return contestants, notes


def choose(stage, wanted):
    cases = [c for c in staging.list_cases(stage.probe) if not wanted or c.name in wanted]
    vacuous = set(runner.control(stage, [c for c in cases if c.name not in SKIPPED]))
    left_out = {c.name for c in cases if c.name in SKIPPED or
                (c.name in vacuous and "no-control" not in c.flags)}
    # Whatever begins a theme has to stay in the list until the themes are known.
    grouped = [(title, [c for c in members if c.name not in left_out])
               for title, members in themes_of(cases)] if not wanted else \
        [("Chosen", [c for c in cases if c.name not in left_out])]
    vain = sorted(left_out - set(SKIPPED))
    notes = ["Not compared: %d cases that fail on the bare host as well%s." % (
        len(vain), " (%s)" % ", ".join(vain) if vain else "")]
    notes += ["Not compared: %s, which %s." % (name, why) for name, why in SKIPPED.items()
              if name in left_out]
    return grouped, notes


def compare(args, daemon, stages):
    grouped, skipped = choose(stages[0], args.case)
    contestants, notes = line_up(*stages, daemon)
    contestants = [c for c in contestants if not any(w in c.name for w in args.without)]
    cases = [case for _, members in grouped for case in members]
    for c in contestants:
        print("... %s" % c.name, file=sys.stderr, flush=True)
        c.all(cases)
    text = "\n".join(report(contestants, grouped, notes + skipped)) + "\n"
    with open(os.path.join(BUILD, "compare-escape.md"), "w", encoding="utf-8") as f:
        f.write(text)
    print(text, end="")
    return 0 if any("cloche" in c.name for c in contestants) else 1


def start_docker(args, stage):
    if "docker" in args.without:
        return None
    try:
        return docker.Daemon(stage.root, stage.probe)
    except (docker.NoDocker, subprocess.SubprocessError) as error:
        print("left out: docker: %s" % error, file=sys.stderr)
        return None


def enter_namespaces():
    """Mounts, processes and interfaces of the contestants end with us."""
    if os.environ.get(ENTERED) == os.readlink("/proc/self/ns/pid"):
        sys.exit("compare: no namespaces of our own")
    if os.environ.get(ENTERED):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
        return
    os.environ[ENTERED] = os.readlink("/proc/self/ns/pid")
    os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                          "--mount-proc", "--", sys.executable, os.path.abspath(__file__)] +
              sys.argv[1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[], metavar="NAME")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: compare-escape needs root, for docker and for namespaces")
        return 0
    enter_namespaces()
    with Stage(BUILD, 0) as root, Stage(BUILD, staging.ORDINARY_UID) as user:
        daemon = start_docker(args, root)
        try:
            return compare(args, daemon, (root, user))
        finally:
            if daemon:
                daemon.close()


if __name__ == "__main__":
    sys.exit(main())
