// Our own client for JavaScript, with the names of its documentation, and its types.
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { ClocheError, run, SandboxedAgentExecutor, SandboxManager } from 'cloche'
import { equal, finish, match, ok, rejects, skip, test, until } from './check.mjs'

const options = { url: process.env.CLOCHE_URL, token: process.env.CLOCHE_TOKEN }
const manager = new SandboxManager({ ...options, provider: 'docker', networkMode: 'none',
  limits: { memoryMB: 256, cpuCores: 1, timeoutSeconds: 60 } })
const sandbox = await manager.createSandbox({ limits: { diskMB: 64, networkMbps: 100 }, env: { GREETING: 'hello' } })

await test('limits of manager and sandbox hold together', async () => {
  equal([sandbox.info.limits.memory, sandbox.info.limits.disk, sandbox.info.limits.timeout], [256 << 20, 64 << 20, 60])
  equal(sandbox.info.network, 'none')
  const { message, field } = await rejects(manager.createSandbox({ limits: { memoryGB: 1 } }), ClocheError)
  match(message, /memoryGB/)
  equal(field, 'memoryGB')
  match((await rejects(manager.createSandbox({ colour: 'red' }), ClocheError)).message, /colour/)
  equal((await rejects(manager.createSandbox({ limits: { memoryMB: 'a' } }), ClocheError)).fault, 'caller')
})

await test('commands: words are words, a line is for a shell', async () => {
  await sandbox.start()
  equal((await sandbox.execute('echo', ['$GREETING', '; id'])).stdout, '$GREETING ; id\n')
  const shell = await sandbox.execute('echo $GREETING; echo oops >&2; exit 3')
  equal([shell.stdout, shell.stderr, shell.exitCode, shell.success], ['hello\n', 'oops\n', 3, false])
  equal((await sandbox.execute(['od', '-An', '-tx1'], null, { stdin: Buffer.from([0, 255, 10]) })).stdout, ' 00 ff 0a\n')
  const late = await sandbox.execute('sleep 60', null, { timeoutSeconds: 0.2 })
  equal([late.timedOut, late.exitCode], [true, 124])
  equal((await sandbox.execute('pwd; echo $A', null, { cwd: '/tmp', env: { A: 'b' } })).stdout, '/tmp\nb\n')
})

await test('a call that is given up ends its command', async () => {
  const abort = new AbortController()
  const call = sandbox.execute('echo $$ > /tmp/pid; exec sleep 100', null, { signal: abort.signal })
  await until('the command runs', async () => (await sandbox.execute('test -s /tmp/pid')).success)
  abort.abort()
  equal((await rejects(call, Error)).name, 'AbortError')
  await until('its end', async () => !(await sandbox.execute('kill -0 $(cat /tmp/pid)')).success)
})

await test('streams of a command', async () => {
  const cat = sandbox.spawn('cat; echo done >&2; exit 4')
  const text = async (stream) => Buffer.concat(await stream.toArray()).toString()
  const data = Buffer.alloc(3 << 20, 'line\n')
  cat.stdin.write('first\n')
  cat.stdin.end(data)
  const [out, err, code] = await Promise.all([text(cat.stdout), text(cat.stderr), cat.wait()])
  ok(out === 'first\n' + data.toString(), 'all of it came back')
  equal([err, code, cat.exitCode, await cat.wait()], ['done\n', 4, 4, 4])
  const sleep = sandbox.spawn('sleep', ['100'])
  ok(sleep.kill() && sleep.killed, 'there is something to kill')
  equal([await sleep.wait(), sleep.signalCode, sleep.kill()], [143, 15, false])
  const stubborn = sandbox.spawn('trap "" TERM; echo ready; while :; do sleep 100; done')
  equal(String((await stubborn.stdout.iterator({ destroyOnReturn: false }).next()).value), 'ready\n')
  stubborn.kill()
  stubborn.kill('SIGKILL')
  equal(await stubborn.wait(), 137)
  await rejects(sandbox.spawn('pwd', null, { cwd: '/nowhere' }).wait(), ClocheError, /nowhere/)
  const abort = new AbortController()
  const late = sandbox.spawn('sleep', ['100'], { signal: abort.signal })
  abort.abort()
  equal(await late.wait(), 137)
})

await test('files', async () => {
  const data = Buffer.from(Array.from({ length: 70000 }, (_, i) => i % 256))
  await sandbox.writeFile('/workspace/deep/a ü.bin', data)
  ok(data.equals(await sandbox.readFile('/workspace/deep/a ü.bin')), 'the same bytes')
  await sandbox.writeFile('b.txt', 'text')
  equal(await sandbox.readFile('b.txt', 'utf8'), 'text')
  equal((await sandbox.listFiles()).map((row) => row.name).sort(), ['b.txt', 'deep'])
  await sandbox.deleteFile('deep', { recursive: true })
  const missing = await rejects(sandbox.readFile('deep'), ClocheError)
  equal([missing.kind, missing.fault, missing.status], ['not_found', 'caller', 404])
})

await test('stats, health and life', async () => {
  const stats = (await manager.getAllStats()).get(sandbox.id)
  equal(stats.memoryLimitMB, 256)
  ok(stats.memoryUsageMB > 0 && stats.diskUsageMB > 0, 'something is used')
  equal((await manager.healthCheckAll()).get(sandbox.id), true)
  await sandbox.stop()
  equal([await sandbox.healthCheck(), sandbox.info.state], [false, 'stopped'])
  await sandbox.start()
  equal(await sandbox.readFile('b.txt', 'utf8'), 'text')
  const copy = await manager.createSandbox({ snapshot: (await sandbox.snapshot('base')).id })
  equal(await copy.readFile('b.txt', 'utf8'), 'text')
  await manager.destroySandbox(copy.id)
  await rejects(manager.getSandbox(copy.id), ClocheError)
  equal(await copy.healthCheck(), false)
  await copy.destroy()
})

await test('one run', async () => {
  equal((await run({ code: 'print(6 * 7)' }, { connection: manager.connection })).stdout, '42\n')
  const refused = await run({ cmd: ['sh', '-c', 'unshare -U true'] }, { connection: manager.connection })
  ok(refused.denials.some((denial) => denial.target === 'unshare'), 'what was refused is told')
})

await test('agents, one and many', async () => {
  const executor = new SandboxedAgentExecutor({ ...options, agentType: 'shell', concurrency: 2 })
  const one = await executor.execute("echo $A; echo '$(id)'; echo x > out.txt",
    { agentName: 'writer', env: { A: 'b' }, capturePatterns: ['*.txt'], limits: { memoryMB: 128 } })
  equal([one.output.trim(), one.files.get('out.txt').toString()], ['b\n$(id)', 'x\n'])
  const many = await executor.executeParallel([
    ...['a', 'b', 'c'].map((word) => ({ task: `echo ${word}` })), { task: 'true', config: { agentType: 'nothing' } }])
  equal(many.map((result) => result.success && result.output.trim()), ['a', 'b', 'c', false])
  equal(many[3].error.fault, 'caller')
  await rejects(executor.execute('true', { sandboxConfig: { privileged: true } }), ClocheError, /privileged/)
})

await test('agents that are ended, and those that wait', async () => {
  const executor = new SandboxedAgentExecutor({ ...options, agentType: 'shell', concurrency: 1 })
  const all = executor.executeParallel([{ task: 'sleep 100', config: { agentName: 'slow' } }, { task: 'echo never' }])
  await until('one runs', () => executor.listActive().length)
  equal(executor.getContext(executor.listActive()[0].id).agentName, 'slow')
  equal(await executor.cleanupAll(), 2)
  equal((await all).map((result) => result.error?.kind), ['cancelled', 'cancelled'])
})

await test('another token sees nothing of it', async () => {
  const other = new SandboxManager({ ...options, token: process.env.OTHER_TOKEN })
  equal(await other.listSandboxes(), [])
  equal((await rejects(other.getSandbox(sandbox.id), ClocheError)).kind, 'not_found')
  equal((await rejects(new SandboxManager({ ...options, token: 'no' }).listSandboxes(), ClocheError)).status, 401)
  equal((await rejects(new SandboxManager({ url: 'http://127.0.0.1:1' }).listSandboxes(), ClocheError)).kind, 'unreachable')
})

await test('the types are those of this daemon', async () => {
  const text = await manager.connection.request('GET', '/openapi.json')
  const made = execFileSync(path.join(process.env.TOP, 'tools/openapi-types'), { input: text })
  ok(made.equals(fs.readFileSync('node_modules/cloche/openapi.d.ts')),
    'clients/js/openapi.d.ts is what tools/openapi-types makes of /openapi.json')
})

await test('a program with types compiles, one with mistakes does not', async () => {
  if (!fs.existsSync('node_modules/typescript/bin/tsc')) skip('typescript is not installed')
  const compile = (text) => {
    fs.writeFileSync('types.mts', text)
    return spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '--noEmit', '--strict', '--skipLibCheck', 'false',
      '--target', 'es2022', '--module', 'nodenext', '--types', 'node', 'types.mts'], { encoding: 'utf8' })
  }
  const good = `import { SandboxManager, SandboxedAgentExecutor, type SandboxStats } from 'cloche'
    const manager = new SandboxManager({ provider: 'docker', limits: { memoryMB: 512 } })
    const sandbox = await manager.createSandbox({ networkMode: 'none' })
    const code: number = (await sandbox.execute('node', ['-v'])).exitCode
    const stats: Map<string, SandboxStats> = await manager.getAllStats()
    const agent = await new SandboxedAgentExecutor().execute('x', { agentName: 'a', capturePatterns: ['*.js'] })
    console.log(code, stats.size, agent.files.size, agent.record.stdout?.length, sandbox.info.limits.memory)`
  equal(compile(good).stdout, '')
  match(compile(good.replace('memoryMB', 'memoryGB').replace('exitCode', 'exit')).stdout, /memoryGB[^]*'exit'/)
})

equal(await manager.destroyAll(), 1, 'sandboxes left')
finish()
