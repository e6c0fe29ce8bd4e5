#!/usr/bin/env python3
"""Measures the daemon through a client's eyes: E2B's SDK, create + run('echo hi') + kill.

    bench/doors.py [AT_ONCE...]        1 10 100 unless named; BENCH_SECONDS=10 for each

Starts a daemon of its own (pool and all as configured by default), installs the SDK as the client
tests do, and prints a table in Markdown: how many a second, p50 and p99 of the whole round and of its
three parts, and failures, which must be none.
"""
import sys

import sdk

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


def main(args):
    failed = 0
    with sdk.bench(PROGRAM) as b:
        key = b.daemon.token("bench", "--e2b")
        print("E2B SDK: create + run('echo hi') + kill; p50 / p99 in ms\n")
        print("| at once | rounds/s | whole | create | run | kill | failed |")
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for at_once in [int(a) for a in args] or [1, 10, 100]:
            row = b.measure(at_once, b.seconds, E2B_API_KEY=key, E2B_API_URL=b.url,
                            E2B_SANDBOX_URL=b.url)
            cells = ["{:.1f} / {:.1f}".format(*row["parts"][name])
                     for name in ("whole", "create", "run", "kill")]
            print(f"| {at_once} | {row['perSecond']:.1f} | " + " | ".join(cells) +
                  f" | {row['failed']} |", flush=True)
            if row["failed"]:
                print(f"<!-- {row['why']} -->")
            failed += row["failed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
