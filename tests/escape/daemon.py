#!/usr/bin/env python3
"""The attacks of cloche-probe from inside sandboxes of the daemon.

    tests/escape/daemon.py [--user] [-v] [CASE...]

Three kinds: a sandbox that lives on (`sandbox`), and warm ones, as a command (`command`) and as a
fork of the warm interpreter (`python`), into which the probe gets by its standard input. Besides the
host there is a neighbour to be reached: another sandbox with things planted in it.
Environment: B, the build directory.
"""
import argparse
import base64
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "daemon"))
import run as escape  # noqa: E402
import stage as staging  # noqa: E402

KINDS = ("sandbox", "command", "python")
PROBE = "/tmp/p/cloche-probe"
HAS_WARM = os.path.exists(os.path.join(escape.BUILD, "cloche-zygote.so"))
NOT_WARM = "a build with sanitizers has nothing warm"
SHELL = 'mkdir -p /tmp/p && cat >"$0" && chmod 755 "$0" && cd /workspace && exec "$0" "$@" </dev/null'
PYTHON = """
import os, sys
os.makedirs("/tmp/p")
with open(%r, "wb") as f:
    f.write(sys.stdin.buffer.read())
os.chmod(%r, 0o755)
os.chdir("/workspace")
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.execv(%r, [%r] + sys.argv[1:])
""" % (PROBE, PROBE, PROBE, PROBE)


class Kind(escape.Level):
    """One kind of sandbox of one daemon."""

    def __init__(self, stage, kind, tally, cases, daemon):
        super().__init__(stage, "container", tally, cases)
        self.kind, self.d = kind, daemon
        self.ws = "/workspace"
        with open(stage.probe, "rb") as f:
            self.probe = f.read()
        self.box = None

    def label(self, case):
        return "%s %s" % (self.kind, case.name)

    # ---- running the probe

    def ask(self, args):
        stdin = base64.b64encode(self.probe).decode()
        if self.kind == "sandbox":
            reply = self.d.post(self.box_path() + "/exec", {"cmd": [PROBE] + args, "cwd": "/workspace"})
        elif self.kind == "command":
            reply = self.d.post("/v1/run", {"cmd": ["sh", "-c", SHELL, PROBE] + args, "stdin_base64": stdin})
        else:
            reply = self.d.post("/v1/run", {"code": PYTHON, "args": args, "stdin_base64": stdin})
        return reply.json if reply.status == 200 else {"error": reply}

    def box_path(self):
        if self.box is None:
            self.box = self.new_box()
        return self.box

    def new_box(self, **options):
        made = self.d.post("/v1/sandboxes", options)
        if made.status != 201:
            raise AssertionError("create: %r" % made)
        path = "/v1/sandboxes/" + made.json["id"]
        put = self.d.put(path + "/files?path=" + PROBE + "&mode=755", self.probe)
        if put.status not in (200, 201, 204):
            raise AssertionError("put: %r" % put)
        self.d.post(path + "/files/chmod", {"path": PROBE, "mode": "755"})
        return path

    def is_warm(self):
        record = self.ask(["--whoami"])
        return self.kind == "sandbox" or record.get("layers", {}).get("recycled")

    def try_cases(self, cases, peer=None):
        names = [c.name for c in cases]
        record = self.ask(self.stage.canaries("/ro", self.ws, peer=peer) + names)
        hits = self.stage.hits()
        if "stdout" not in record:
            self.judge_all(cases, {}, hits, ": %r" % record)
            return
        results = staging.parse_results(record["stdout"])
        for case in cases:
            if case.name not in results and "kill-ok" in case.flags and record["status"] == "oom":
                results[case.name] = ("refused", "the sandbox was killed for memory")
        self.judge_all(cases, results, hits, " (%s, %s)" % (record["status"], record["stderr"][-200:]))
        if self.kind != "sandbox" and not record["layers"]["recycled"]:
            self.ran_cold()

    def ran_cold(self):
        if HAS_WARM:
            self.tally.fail(self.kind, "it ran cold")
        else:
            self.tally.skip(self.kind + " warm", NOT_WARM)

    # ---- the neighbour

    def plant(self):
        tag = secrets.token_hex(6)
        path = self.new_box()
        # It stays as long as its standard input does.
        line = "sleep 100000 | %s --plant %s" % (PROBE, tag)
        eid = self.d.post(path + "/exec", {"shell": line, "background": True}).json["id"]
        end = time.monotonic() + 30
        text = ""
        while "planted\n" not in text and time.monotonic() < end:
            text = self.d.get("%s/logs?exec=%s" % (path, eid)).json["logs"][0]["text"]
            time.sleep(0.05)
        if "planted\n" not in text:
            self.tally.fail(self.kind, "there is no neighbour: %r" % text)
        found = dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line)
        return path, {"peer": tag, "peer-has": found.get("has", ""), "peer-tcp": found.get("tcp")}

    def applies(self, case):
        # Nothing of the host's is shown that it could be tried on.
        if case.name == "landlock-alone" or case.name.startswith("ro-"):
            return False
        # The root of a sandbox that lives on can be written, if the daemon is root.
        return not (case.name == "system-flags" and self.kind == "sandbox" and not self.stage.uid)

    def all(self):
        end = time.monotonic() + 30
        while HAS_WARM and not self.is_warm() and time.monotonic() < end:
            time.sleep(0.2)
        record = self.ask(["--whoami"])
        self.missing = set(record["layers"]["missing"])
        allowed = escape.NO_CGROUP if self.stage.uid else set()
        self.tally.check(self.kind + " layers", self.missing <= allowed,
                         "missing: " + ",".join(sorted(self.missing)))
        neighbour, peer = self.plant()
        self.try_cases([c for c in self.pick("common") if self.applies(c)], peer)
        self.d.delete(neighbour)
        if self.box:
            self.d.delete(self.box)


def as_user():
    """Starts this program again as an ordinary user, with copies of all it needs."""
    private = tempfile.mkdtemp(prefix="cloche-escape-user-")
    try:
        os.makedirs(os.path.join(private, "work", "base"))
        os.makedirs(os.path.join(private, "build", "tests"))
        for name in ("cloche", "cloched", "cloche-guest", "cloche-boot", "cloche-zygote.so", "cloche-probe"):
            if os.path.exists(os.path.join(escape.BUILD, name)):
                shutil.copy(os.path.join(escape.BUILD, name), os.path.join(private, "build"))
        shutil.copytree(os.path.join(escape.BUILD, "tests/helpers"),
                        os.path.join(private, "build/tests/helpers"))
        for name in ("escape", "e2e"):
            shutil.copytree(os.path.join(escape.TOP, "tests", name),
                            os.path.join(private, "tests", name),
                            ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(os.path.join(escape.TOP, "policies"), os.path.join(private, "policies"))
        uid = str(staging.ORDINARY_UID)
        subprocess.run(["chown", "-R", uid + ":" + uid, private], check=True)
        os.chmod(private, 0o755)
        work = os.path.join(private, "work")
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": work, "TMPDIR": work,
               "LANG": "C.UTF-8", "B": os.path.join(private, "build"),
               "CLOCHE": os.path.join(private, "build/cloche"),
               "CLOCHE_E2E_DIR": os.path.join(work, "base")}
        env.update({k: v for k, v in os.environ.items() if k == "ASAN_OPTIONS"})
        argv = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all",
                sys.executable, os.path.join(private, "tests/escape/daemon.py")]
        argv += [a for a in sys.argv[1:] if a != "--user"]
        return subprocess.run(argv, cwd=work, env=env).returncode
    finally:
        shutil.rmtree(private, ignore_errors=True)




def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    if args.user:
        return as_user()
    os.environ.setdefault("CLOCHE", os.path.join(escape.BUILD, "cloche"))
    import harness

    tally = escape.Tally(args.verbose)
    with staging.Stage(escape.BUILD, os.geteuid()) as stage:
        cases = staging.list_cases(stage.probe)
        if args.case:
            cases = [c for c in cases if c.name in args.case]
        before = stage.fingerprint()
        daemon = harness.shared()
        try:
            for kind in KINDS:
                Kind(stage, kind, tally, cases, daemon).all()
        finally:
            harness.stop_shared()
        after = stage.fingerprint()
        changed = [k for k in before if before[k] != after.get(k)]
        tally.check("host afterwards", not changed, "changed: %s" % changed)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
