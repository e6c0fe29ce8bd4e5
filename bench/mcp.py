#!/usr/bin/env python3
"""Measures a plain MCP run_code through the SDK's own client, over HTTP and over stdio.

    bench/mcp.py [AT_ONCE...]        1 10 100 unless named; BENCH_SECONDS=10 for each

Each client has a session and a sandbox of its own, made beforehand; a round is one run_code of
print(6*7), a new Python each time. Prints a table in Markdown; failures must be none.
"""
import sys

import sdk

PROGRAM = """
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
const [door, url, key, atOnce, seconds] = process.argv.slice(2)
const headers = { Authorization: `Bearer ${key}` }
const env = { ...process.env, CLOCHE_URL: url, CLOCHE_TOKEN: key }
const times = []
let failed = 0
let why = ''

async function open() {
  const client = new Client({ name: 'bench', version: '1' })
  await client.connect(door === 'http'
    ? new StreamableHTTPClientTransport(new URL(url + '/mcp'), { requestInit: { headers } })
    : new StdioClientTransport({ command: process.env.CLOCHE, args: ['mcp'], env, stderr: 'inherit' }))
  return client
}
async function round(client, keep) {
  const begun = performance.now()
  try {
    const r = await client.callTool({ name: 'run_code', arguments: { code: 'print(6*7)' } }, undefined, { timeout: 120_000 })
    if (r.structuredContent?.stdout !== '42\\n') throw new Error(JSON.stringify(r))
    if (keep) times.push(performance.now() - begun)
  } catch (error) {
    failed++
    why = String(error)
  }
}

const clients = await Promise.all(Array.from({ length: Number(atOnce) }, open))
await Promise.all(clients.map((client) => round(client, false)))
const begun = performance.now()
const until = begun + Number(seconds) * 1000
await Promise.all(clients.map(async (client) => { while (performance.now() < until) await round(client, true) }))
const took = (performance.now() - begun) / 1000
times.sort((a, b) => a - b)
const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? NaN
for (const client of clients) {
  await client.transport.terminateSession?.()
  await client.close()
}
console.log(JSON.stringify({ perSecond: times.length / took, p50: at(0.5), p99: at(0.99), failed, why }))
process.exit(0)
"""


def main(args):
    failed = 0
    with sdk.bench(PROGRAM) as b:
        key = b.daemon.token("bench")
        print("MCP SDK: run_code print(6*7), each client with a sandbox of its own; ms\n")
        print("| door | clients at once | calls/s | p50 | p99 | failed |\n|---|---:|---:|---:|---:|---:|")
        for door in ("http", "stdio"):
            for at_once in [int(a) for a in args] or [1, 10, 100]:
                r = b.measure(door, b.url, key, at_once, b.seconds)
                print(f"| {door} | {at_once} | {r['perSecond']:.1f} | {r['p50']:.1f} | {r['p99']:.1f} | "
                      f"{r['failed']} |", flush=True)
                if r["failed"]:
                    print(f"<!-- {r['why']} -->")
                failed += r["failed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
