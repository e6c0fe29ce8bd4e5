"""For benches with clients that others wrote: installs them as the client tests do, runs them in node."""
import contextlib
import importlib.util
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load_clients():
    """tests/clients/run.py knows how to install the SDKs and start a daemon."""
    path = os.path.join(TOP, "tests", "clients", "run.py")
    spec = importlib.util.spec_from_file_location("clients", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """A daemon of its own, and a program beside the installed packages."""

    def __init__(self, daemon, where):
        self.daemon, self.where = daemon, where
        self.url = f"http://127.0.0.1:{daemon.port}"
        self.seconds = float(os.environ.get("BENCH_SECONDS", "10"))

    def measure(self, *args, **env):
        """The program's last line, which is JSON."""
        done = subprocess.run(["node", "bench.mjs", *map(str, args)], cwd=self.where,
                              env=dict(os.environ, **env), capture_output=True, text=True,
                              timeout=self.seconds + 300)
        if done.returncode or not done.stdout.strip():
            sys.exit("the client failed: " + done.stderr[-2000:])
        return json.loads(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def bench(program):
    kit = load_clients()
    why = kit.install()
    if why:
        sys.exit(why)
    with open(os.path.join(kit.CLIENTS, "bench.mjs"), "w", encoding="utf-8") as out:
        out.write(program)
    daemon = kit.harness.Daemon()
    try:
        daemon.start()
        yield Bench(daemon, kit.CLIENTS)
    finally:
        daemon.stop()
        kit.shutil.rmtree(kit.cl.base_dir(), ignore_errors=True)
