// The unmodified npm package e2b against our door: sandboxes, commands, terminals.
import {
  Sandbox, E2B, SandboxError, AuthenticationError, InvalidArgumentError, NotFoundError,
  SandboxNotFoundError, TimeoutError, CommandExitError,
} from 'e2b'
import { equal, finish, match, ok, rejects, test, until } from './check.mjs'

const made = []
async function create(...args) {
  const sandbox = await Sandbox.create(...args)
  made.push(sandbox)
  return sandbox
}
const unique = `run-${Date.now()}-${process.pid}`
const box = await create({ timeoutMs: 600_000, metadata: { run: unique, odd: 'b c&d=é/%' }, envs: { FROM_CREATE: 'yes' } })

// ---- the control plane ---------------------------------------------------------------------------

await test('create', async () => {
  match(box.sandboxId, /^[a-z0-9]{16,}$/, 'id')
  ok(await box.isRunning(), 'it runs')
  const info = await box.getInfo()
  equal(info.sandboxId, box.sandboxId)
  equal(info.templateId, 'base')
  equal(info.metadata, { run: unique, odd: 'b c&d=é/%' })
  equal(info.state, 'running')
  equal(info.envdVersion, '0.6.13')
  equal(info.lifecycle, { onTimeout: 'kill', autoResume: false })
  ok(info.cpuCount >= 1 && info.memoryMB > 0, 'resources are told')
  ok(info.startedAt instanceof Date && info.endAt > info.startedAt, 'times are told')
  equal(box.getHost(3000), `3000-${box.sandboxId}.localhost:${new URL(process.env.E2B_API_URL).port}`)
})

await test('create refuses', async () => {
  await rejects(Sandbox.create('no-such-template'), SandboxError, /404.*no-such-template/)
  await rejects(Sandbox.create({ network: { allowOut: ['example.com'] } }), SandboxError, /400.*ALL_TRAFFIC/)
  await rejects(Sandbox.create({ network: { denyOut: ['example.com'] } }), SandboxError, /400.*denyOut/)
  await rejects(Sandbox.create({ timeoutMs: 400 * 86400 * 1000 }), SandboxError, /400.*timeout|ttl/)
  await rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  await rejects(Sandbox.create({ apiKey: 'nonsense' }), AuthenticationError)
})

await test('network none is given', async () => {
  const s = await create({ allowInternetAccess: false, network: { denyOut: ['0.0.0.0/0'] } })
  const info = await s.getInfo()
  equal(info.allowInternetAccess, false)
  await s.updateNetwork({ denyOut: ['1.1.1.1/32'] })
  equal((await s.getInfo()).network.denyOut, ['1.1.1.1/32'])
  equal((await s.getInfo()).allowInternetAccess, true)
  ok(await s.kill(), 'killed')
})

await test('kill', async () => {
  const s = await create()
  equal(await s.kill(), true)
  equal(await s.isRunning(), false)
  equal(await Sandbox.kill(s.sandboxId), false)
  equal(await Sandbox.kill('nosuchsandbox0123456'), false)
  await rejects(Sandbox.getInfo(s.sandboxId), SandboxNotFoundError)
  await rejects(Sandbox.connect(s.sandboxId), SandboxNotFoundError)
  await rejects(Sandbox.setTimeout(s.sandboxId, 1000), SandboxError)
  await rejects(s.commands.run('true'), SandboxNotFoundError)
  await rejects(s.files.read('x'), TimeoutError)
})

await test('timeout is set and extended', async () => {
  const s = await create({ timeoutMs: 60_000 })
  const first = (await s.getInfo()).endAt
  await s.setTimeout(300_000)
  const longer = (await s.getInfo()).endAt
  ok(longer - first > 200_000, 'longer')
  await Sandbox.setTimeout(s.sandboxId, 30_000)
  ok(longer - (await s.getInfo()).endAt > 200_000, 'shorter again')
  await Sandbox.connect(s.sandboxId, { timeoutMs: 500_000 })
  const extended = (await s.getInfo()).endAt
  ok(extended > longer, 'connect extends')
  await Sandbox.connect(s.sandboxId, { timeoutMs: 10_000 })
  equal((await s.getInfo()).endAt, extended, 'connect never shortens')
  await s.setTimeout(1)
  await until('it ends by itself', async () => !(await s.isRunning()))
  ok(true, 'ended')
})

await test('another client of the same sandbox', async () => {
  const other = await Sandbox.connect(box.sandboxId)
  equal(other.sandboxId, box.sandboxId)
  await box.files.write('/tmp/shared', 'seen')
  equal(await other.files.read('/tmp/shared'), 'seen')
  equal((await other.connect()).sandboxId, box.sandboxId)
  const bound = new E2B({ apiKey: process.env.E2B_API_KEY, apiUrl: process.env.E2B_API_URL, sandboxUrl: process.env.E2B_SANDBOX_URL })
  equal((await bound.Sandbox.getInfo(box.sandboxId)).sandboxId, box.sandboxId)
})

await test('list: filters, order, pages', async () => {
  const two = await create({ metadata: { run: unique, n: '2' } })
  const three = await create({ metadata: { run: unique, n: '3' } })
  const all = await Sandbox.list({ query: { metadata: { run: unique } } }).nextItems()
  equal(all.map((s) => s.sandboxId), [three, two, box].map((s) => s.sandboxId), 'newest first')
  const one = await Sandbox.list({ query: { metadata: { run: unique, n: '2' } } }).nextItems()
  equal(one.map((s) => s.sandboxId), [two.sandboxId])
  const odd = await Sandbox.list({ query: { metadata: { odd: 'b c&d=é/%', run: unique } } }).nextItems()
  equal(odd.map((s) => s.sandboxId), [box.sandboxId], 'odd characters')
  const none = await Sandbox.list({ query: { metadata: { run: 'other' } } }).nextItems()
  equal(none, [])
  const paused = await Sandbox.list({ query: { metadata: { run: unique }, state: ['paused'] } }).nextItems()
  equal(paused, [])
  const pages = Sandbox.list({ query: { metadata: { run: unique } }, limit: 2 })
  equal((await pages.nextItems()).length, 2)
  equal(pages.hasNext, true)
  equal((await pages.nextItems()).map((s) => s.sandboxId), [box.sandboxId])
  equal(pages.hasNext, false)
  const single = Sandbox.list({ query: { metadata: { run: unique } }, limit: 1 })
  const seen = []
  while (single.hasNext) seen.push(...(await single.nextItems()).map((s) => s.sandboxId))
  equal(seen, [three, two, box].map((s) => s.sandboxId), 'page by page')
  await two.kill()
  await three.kill()
})

await test('pause and resume', async () => {
  const s = await create({ metadata: { run: unique } })
  await s.files.write('kept.txt', 'kept')
  const command = await s.commands.run('sleep 600', { background: true, timeoutMs: 0 })
  const cut = command.wait().catch((error) => error)
  equal(await s.pause(), true)
  ok((await cut) instanceof Error, 'a stream that was open is cut')
  equal(await s.isRunning(), false)
  equal((await s.getInfo()).state, 'paused')
  equal(await s.pause(), false, 'already paused')
  const paused = await Sandbox.list({ query: { metadata: { run: unique }, state: ['paused'] } }).nextItems()
  equal(paused.map((p) => p.sandboxId), [s.sandboxId])
  await rejects(s.commands.run('true'), SandboxNotFoundError)
  const again = await Sandbox.connect(s.sandboxId)
  equal(await again.isRunning(), true)
  equal(await s.files.read('kept.txt'), 'kept', 'the old client goes on: same token')
  ok((await s.commands.list()).some((p) => p.pid === command.pid), 'the command survived')
  equal(await s.commands.kill(command.pid), true)
  equal(await s.kill(), true)
})

await test('pause without memory', async () => {
  const s = await create()
  await s.files.write('kept.txt', 'kept')
  await s.commands.run('sleep 600', { background: true, timeoutMs: 0 })
  equal(await s.pause({ keepMemory: false }), true)
  equal((await s.getInfo()).state, 'paused')
  await s.connect()
  equal(await s.files.read('kept.txt'), 'kept')
  equal((await s.commands.list()).length, 0, 'processes are gone')
  equal(await s.kill(), true)
})

await test('auto-pause and auto-resume', async () => {
  const s = await create({ timeoutMs: 120_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  equal((await s.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
  await s.files.write('kept.txt', 'kept')
  await s.setTimeout(1)
  await until('it is paused by itself', async () => (await s.getInfo()).state === 'paused')
  ok(true, 'paused')
  equal(await s.files.read('kept.txt'), 'kept', 'traffic wakes it')
  equal((await s.getInfo()).state, 'running')
  equal(await s.kill(), true)
})

await test('killed while paused', async () => {
  const s = await create()
  await s.pause()
  equal(await s.kill(), true)
  await rejects(s.getInfo(), SandboxNotFoundError)
})

await test('snapshots', async () => {
  const s = await create({ metadata: { run: unique } })
  await s.files.write('/home/user/snap.txt', 'from the snapshot')
  const snapshot = await s.createSnapshot({ name: unique })
  match(snapshot.snapshotId, /./, 'id')
  await s.files.write('/home/user/snap.txt', 'changed later')
  const listed = await s.listSnapshots().nextItems()
  ok(listed.some((one) => one.snapshotId === snapshot.snapshotId), 'listed')
  const copy = await create(snapshot.snapshotId)
  equal(await copy.files.read('/home/user/snap.txt'), 'from the snapshot')
  equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  await rejects(Sandbox.create(snapshot.snapshotId), SandboxError, /404/)
  const unnamed = await s.createSnapshot()
  equal(await Sandbox.deleteSnapshot(unnamed.snapshotId), true)
  await copy.kill()
  await s.kill()
})

await test('fork', async () => {
  const s = await create()
  await s.files.write('/home/user/parent.txt', 'parent')
  const forks = await s.fork({ count: 2 })
  equal(forks.length, 2)
  for (const fork of forks) {
    ok(!(fork instanceof Error), `a sandbox: ${fork}`)
    equal(await fork.files.read('/home/user/parent.txt'), 'parent')
  }
  await forks[0].files.write('/home/user/parent.txt', 'changed')
  equal(await forks[1].files.read('/home/user/parent.txt'), 'parent')
  equal(await s.files.read('/home/user/parent.txt'), 'parent')
  for (const one of [...forks, s]) equal(await one.kill(), true)
  await rejects(Sandbox.fork('nosuchsandbox0123456'), SandboxError)
})

await test('metrics', async () => {
  const samples = await until('a sample', async () => {
    const found = await box.getMetrics()
    return found.length && found
  })
  const m = samples.at(-1)
  ok(m.timestamp instanceof Date, 'time')
  ok(m.memUsed >= 0 && m.memTotal >= m.memUsed && m.memTotal > 0, 'memory') // 0 without a cgroup
  ok(m.cpuCount >= 1 && m.cpuUsedPct >= 0, 'processor')
  ok(m.diskTotal > 0 && m.diskUsed >= 0, 'disk')
  equal(await box.getMetrics({ end: new Date(0) }), [], 'nothing before it was there')
  equal(await box.getMetrics({ start: new Date(Date.now() + 3600_000) }), [], 'nothing to come')
  await rejects(Sandbox.getMetrics('nosuchsandbox0123456'), SandboxNotFoundError)
})

// ---- commands --------------------------------------------------------------------------------------

await test('commands', async () => {
  const r = await box.commands.run('echo out; echo err >&2; echo $FROM_CREATE $GIVEN $E2B_SANDBOX $E2B_SANDBOX_ID; pwd; whoami', { envs: { GIVEN: 'too' } })
  equal(r.exitCode, 0)
  equal(r.stdout, `out\nyes too true ${box.sandboxId}\n/home/user\nuser\n`)
  equal(r.stderr, 'err\n')
  equal((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  equal((await box.commands.run('echo $FROM_CREATE', { envs: { FROM_CREATE: 'no' } })).stdout, 'no\n')
  equal((await box.commands.run('cat')).stdout, '', 'stdin is empty unless asked for')
  equal((await box.commands.run('echo $HOME:$USER:$LOGNAME')).stdout, '/home/user:user:user\n')
  equal((await box.commands.run('echo $USER', { user: 'root' })).stdout, 'root\n')
})

await test('commands that fail', async () => {
  const three = await rejects(box.commands.run('echo a; echo b >&2; exit 3'), CommandExitError, /exit status 3/)
  equal([three.exitCode, three.stdout, three.stderr], [3, 'a\n', 'b\n'])
  const killed = await rejects(box.commands.run('kill -9 $$'), CommandExitError, /signal: killed/)
  equal(killed.exitCode, -1)
  await rejects(box.commands.run('true', { cwd: '/no/such/dir' }), InvalidArgumentError, /cwd '\/no\/such\/dir' does not exist/)
  await rejects(box.commands.run('true', { user: 'nobody-here' }), AuthenticationError, /invalid username: 'nobody-here'/)
  await rejects(box.commands.run('sleep 600', { timeoutMs: 1000 }), TimeoutError)
  await until('the timed out command is gone', async () => !(await box.commands.list()).some((p) => p.args.join(' ').includes('sleep 600')))
  ok(true, 'killed at its deadline')
})

await test('output', async () => {
  const parts = []
  const r = await box.commands.run('for i in 1 2 3; do echo $i; done; printf "\\xc3"; printf "\\xa9\\n"', { onStdout: (text) => { parts.push(text) } })
  equal(r.stdout, '1\n2\n3\né\n', 'also a character in two pieces')
  equal(parts.join(''), r.stdout)
  const large = await box.commands.run('head -c 5000000 /dev/zero | tr "\\0" x')
  equal(large.stdout.length, 5_000_000)
  const both = await box.commands.run('for i in $(seq 500); do echo o$i; echo e$i >&2; done')
  equal(both.stdout.split('\n').length, 501)
  equal(both.stderr.split('\n').length, 501)
})

await test('background, list, connect, kill', async () => {
  const h = await box.commands.run('echo begun; sleep 600', { background: true, timeoutMs: 0 })
  ok(h.pid > 0, 'pid')
  equal((await box.commands.run(`kill -0 ${h.pid} && echo there`)).stdout, 'there\n', 'the pid is the one inside')
  const listed = (await box.commands.list()).find((p) => p.pid === h.pid)
  equal(listed.cmd, '/bin/bash')
  equal(listed.args, ['-l', '-c', 'echo begun; sleep 600'])
  const other = await box.commands.connect(h.pid)
  equal(other.pid, h.pid)
  equal(await h.kill(), true)
  await rejects(other.wait(), CommandExitError, /signal: killed/)
  await rejects(h.wait(), CommandExitError, /signal: killed/)
  equal(await box.commands.kill(h.pid), false)
  equal(await box.commands.kill(999999), false)
  await rejects(box.commands.connect(999999), NotFoundError, /process with pid 999999 not found/)
})

await test('a command outlives its client', async () => {
  const h = await box.commands.run('for i in $(seq 400); do echo $i; sleep 0.05; done; exit 5', { background: true, timeoutMs: 0 })
  await h.disconnect()
  const again = await box.commands.connect(h.pid, { timeoutMs: 0 })
  await until('new output', () => again.stdout.length > 0)
  ok(true, 'it goes on')
  equal(await again.kill(), true)
})

await test('an end is kept for a while', async () => {
  const h = await box.commands.run('read x; exit 7', { background: true, stdin: true, timeoutMs: 0 })
  await h.sendStdin('go\n')
  await rejects(h.wait(), CommandExitError, /exit status 7/)
  const late = await box.commands.connect(h.pid)
  await rejects(late.wait(), CommandExitError, /exit status 7/)
})

await test('stdin', async () => {
  const cat = await box.commands.run('cat', { background: true, stdin: true, timeoutMs: 0 })
  await box.commands.sendStdin(cat.pid, 'hello ')
  await cat.sendStdin(new TextEncoder().encode('world é\n'))
  await until('the echo', () => cat.stdout === 'hello world é\n')
  const big = 'x'.repeat(300_000)
  await cat.sendStdin(big)
  await until('the large echo', () => cat.stdout.length === 14 + big.length)
  await cat.closeStdin()
  equal((await cat.wait()).exitCode, 0)
  const deaf = await box.commands.run('sleep 600', { background: true, timeoutMs: 0 })
  await rejects(deaf.sendStdin('x'), SandboxError)
  await deaf.kill()
  await rejects(box.commands.sendStdin(999999, 'x'), NotFoundError)
})

await test('many at once', async () => {
  const all = await Promise.all(Array.from({ length: 30 }, (_, i) => box.commands.run(`echo ${i}`)))
  equal(all.map((r) => r.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`))
})

await test('a sandbox killed under a command', async () => {
  const s = await create()
  const h = await s.commands.run('sleep 600', { background: true, timeoutMs: 0 })
  const end = h.wait().catch((error) => error)
  await s.kill()
  ok((await end) instanceof TimeoutError, 'the client is told that the sandbox is gone')
})

// ---- terminals -------------------------------------------------------------------------------------

await test('terminals', async () => {
  let seen = ''
  const decoder = new TextDecoder()
  const pty = await box.pty.create({ cols: 80, rows: 24, timeoutMs: 0, cwd: '/tmp', envs: { PTY_VAR: 'here' }, onData: (data) => { seen += decoder.decode(data, { stream: true }) } })
  const type = (text) => box.pty.sendInput(pty.pid, new TextEncoder().encode(text))
  await type('echo "[$PTY_VAR]" $(pwd) $(tty | cut -c1-8) $(stty size)\n')
  await until('the answer', () => seen.includes('[here] /tmp /dev/pts 24 80'))
  ok(true, 'a terminal of that size')
  await box.pty.resize(pty.pid, { cols: 100, rows: 30 })
  await type('echo size:$(stty size)\n')
  await until('the new size', () => seen.includes('size:30 100'))
  ok(true, 'resized')
  const other = await box.pty.connect(pty.pid, { onData: () => {}, timeoutMs: 0 })
  equal(other.pid, pty.pid)
  await rejects(box.commands.closeStdin(pty.pid), SandboxError)
  await type('exit 4\n')
  await rejects(pty.wait(), CommandExitError, /exit status 4/)
  const second = await box.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: () => {} })
  equal(await box.pty.kill(second.pid), true)
  await until('it is gone', async () => !(await box.pty.kill(second.pid)))
  ok(true, 'what is gone cannot be killed')
})

await test('git, as far as it needs no network', async () => {
  if ((await box.commands.run('command -v git || true')).stdout === '') return
  await box.git.init('/home/user/repo')
  await box.git.configureUser('A', 'a@example.com', { scope: 'local', path: '/home/user/repo' })
  await box.files.write('/home/user/repo/a', 'a')
  await box.git.add('/home/user/repo')
  await box.git.commit('/home/user/repo', 'first')
  equal((await box.git.status('/home/user/repo')).isClean, true)
})

await Promise.allSettled(made.map((s) => s.kill()))
finish()
