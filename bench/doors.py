#!/usr/bin/env python3
"""Measures the daemon through a client's eyes: E2B's SDK, create + run('echo hi') + kill.

    bench/doors.py [AT_ONCE...]        1 10 100 unless named; BENCH_SECONDS=10 for each

Starts a daemon of its own (pool and all as configured by default), installs the SDK as the client
tests do, and prints a table in Markdown: how many a second, p50 and p99 of the whole round and of its
three parts, and failures, which must be none.
"""
import importlib.util
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PROGRAM = """
import { Sandbox } from 'e2b'
const atOnce = Number(process.argv[2])
const seconds = Number(process.argv[3])
const times = { whole: [], create: [], run: [], kill: [] }
let failed = 0
let why = ''
let until = Infinity

async function round(keep) {
  const t0 = performance.now()
  try {
    const sandbox = await Sandbox.create({ timeoutMs: 120_000, requestTimeoutMs: 120_000 })
    const t1 = performance.now()
    const result = await sandbox.commands.run('echo hi')
    const t2 = performance.now()
    if (result.stdout !== 'hi\\n') throw new Error('wrong output')
    if (!(await sandbox.kill())) throw new Error('not killed')
    const t3 = performance.now()
    if (keep) {
      times.whole.push(t3 - t0)
      times.create.push(t1 - t0)
      times.run.push(t2 - t1)
      times.kill.push(t3 - t2)
    }
  } catch (error) {
    failed++
    why = String(error)
  }
}

async function worker() {
  while (performance.now() < until) await round(true)
}

await Promise.all(Array.from({ length: Math.min(atOnce, 10) }, () => round(false)))
const begun = performance.now()
until = begun + seconds * 1000
await Promise.all(Array.from({ length: atOnce }, worker))
const took = (performance.now() - begun) / 1000
const at = (list, share) => {
  const sorted = [...list].sort((a, b) => a - b)
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] : NaN
}
const parts = {}
for (const name of Object.keys(times)) parts[name] = [at(times[name], 0.5), at(times[name], 0.99)]
console.log(JSON.stringify({ rounds: times.whole.length, perSecond: times.whole.length / took, failed, why, parts }))
process.exit(0)
"""


def clients():
    """tests/clients/run.py knows how to install the SDK and start a daemon."""
    path = os.path.join(TOP, "tests", "clients", "run.py")
    spec = importlib.util.spec_from_file_location("clients", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(daemon, where, key, at_once, seconds):
    url = f"http://127.0.0.1:{daemon.port}"
    env = dict(os.environ, E2B_API_KEY=key, E2B_API_URL=url, E2B_SANDBOX_URL=url)
    done = subprocess.run(["node", "doors-bench.mjs", str(at_once), str(seconds)], cwd=where, env=env,
                          capture_output=True, text=True, timeout=seconds + 300)
    if done.returncode or not done.stdout.strip():
        sys.exit("doors.py: the client failed: " + done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(args):
    counts = [int(a) for a in args] or [1, 10, 100]
    seconds = float(os.environ.get("BENCH_SECONDS", "10"))
    kit = clients()
    why = kit.install()
    if why:
        sys.exit("doors.py: " + why)
    with open(os.path.join(kit.CLIENTS, "doors-bench.mjs"), "w", encoding="utf-8") as out:
        out.write(PROGRAM)
    daemon = kit.harness.Daemon()
    try:
        daemon.start()
        key = daemon.token("bench", "--e2b")
        print("E2B SDK: create + run('echo hi') + kill; p50 / p99 in ms\n")
        print("| at once | rounds/s | whole | create | run | kill | failed |")
        print("|---:|---:|---:|---:|---:|---:|---:|")
        failed = 0
        for at_once in counts:
            row = measure(daemon, kit.CLIENTS, key, at_once, seconds)
            cells = ["{:.1f} / {:.1f}".format(*row["parts"][name])
                     for name in ("whole", "create", "run", "kill")]
            print(f"| {at_once} | {row['perSecond']:.1f} | " + " | ".join(cells) +
                  f" | {row['failed']} |", flush=True)
            if row["failed"]:
                print(f"<!-- {row['why']} -->")
            failed += row["failed"]
    finally:
        daemon.stop()
        kit.shutil.rmtree(kit.cl.base_dir(), ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
