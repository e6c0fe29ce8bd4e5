// Sandboxes that a daemon of ours has a service run (provider e2b), seen from both sides: by its REST
// API (PROVIDER_URL, PROVIDER_KEY), and at the service by the official SDK, which did not make them.
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { equal, finish, match, ok, rejects, test, until } from './check.mjs'

const base = process.env.PROVIDER_URL + '/v1/sandboxes'

async function ask(method, path, body, raw) {
  const reply = await fetch(base + path, {
    method,
    headers: { Authorization: `Bearer ${process.env.PROVIDER_KEY}`, ...(raw ? {} : { 'Content-Type': 'application/json' }) },
    body: raw ?? (body && JSON.stringify(body)),
  })
  const text = await reply.text()
  let json
  try {
    json = JSON.parse(text)
  } catch {
    json = undefined
  }
  return { status: reply.status, text, json }
}

async function create(options = {}) {
  const made = await ask('POST', '', { provider: 'e2b', ...options })
  if (made.status !== 201) throw new Error(`create: ${made.status} ${made.text}`)
  return made.json
}

async function sh(id, shell, more = {}) {
  const done = await ask('POST', `/${id}/exec`, { shell, ...more })
  if (done.status !== 200) throw new Error(`exec: ${done.status} ${done.text}`)
  return done.json
}

// The SDK's view of the sandbox that has our id in its metadata.
async function there(id) {
  const pages = Sandbox.list({ query: { metadata: { cloche: id } } })
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}

await test('made here, seen there', async () => {
  const made = await create()
  equal([made.provider, made.level, made.state], ['e2b', 'remote', 'running'])
  equal(made.layers.missing.includes('seccomp'), true, 'nothing is claimed')
  const found = await there(made.id)
  equal(found.length, 1, 'sandboxes there')
  equal([found[0].state, found[0].templateId, found[0].metadata.cloche], ['running', 'base', made.id])
  ok(found[0].endAt > new Date(), 'it has time left')
  equal((await ask('DELETE', `/${made.id}`)).status, 204)
  equal((await there(made.id)).length, 0, 'gone there, too')
})

await test('used from both sides', async () => {
  const made = await create({ env: { FROM: 'here' } })
  const s = await Sandbox.connect((await there(made.id))[0].sandboxId)
  equal(await s.isRunning(), true)
  equal((await ask('PUT', `/${made.id}/files?path=/home/user/a.txt`, null, 'written here')).status, 200)
  equal(await s.files.read('/home/user/a.txt'), 'written here')
  await s.files.write('/home/user/b.txt', 'written there')
  equal((await ask('GET', `/${made.id}/files?path=b.txt`)).text, 'written there')
  equal((await s.commands.run('cat a.txt b.txt')).stdout, 'written herewritten there')
  const record = await sh(made.id, 'echo $FROM; cat b.txt; echo oops >&2; exit 7')
  equal([record.stdout, record.stderr, record.exit_code], ['here\nwritten there', 'oops\n', 7])
  const processes = (await s.commands.list()).map((p) => [p.cmd, ...p.args].join(' '))
  ok(processes.some((p) => p.includes('bridge')), 'our bridge is a process like any other')
  equal((await s.files.list('/home/user')).map((e) => e.name).filter((n) => n.endsWith('.txt')).sort(), ['a.txt', 'b.txt'])
  equal((await ask('DELETE', `/${made.id}`)).status, 204)
  equal(await s.isRunning(), false)
})

await test('commands in the background, and their end', async () => {
  const made = await create()
  const s = await Sandbox.connect((await there(made.id))[0].sandboxId)
  const started = await ask('POST', `/${made.id}/exec`, { shell: 'sleep 1000 & echo $! >pid; echo up; wait', background: true })
  equal(started.status, 201)
  await until('its pid there', async () => s.files.exists('/home/user/pid'))
  match((await s.commands.run('ps -eo args | cat')).stdout, /sleep 1000/)
  equal((await ask('DELETE', `/${made.id}/execs/${started.json.id}`)).status, 204)
  await until('no sleep there', async () => !(await s.commands.run('ps -eo args | cat')).stdout.includes('sleep 1000'))
  const ended = await ask('GET', `/${made.id}/execs/${started.json.id}`)
  equal([ended.json.running, ended.json.signal], [false, 9])
  const tty = await sh(made.id, 'stty size', { tty: true, rows: 24, cols: 90 })
  match(tty.stdout, /24 90/)
  await ask('DELETE', `/${made.id}`)
})

await test('paused here, paused there', async () => {
  const made = await create()
  await sh(made.id, 'echo kept >f')
  equal((await ask('POST', `/${made.id}/pause`, {})).json.state, 'paused')
  equal((await there(made.id))[0].state, 'paused')
  equal((await ask('POST', `/${made.id}/resume`, {})).json.state, 'running')
  equal((await there(made.id))[0].state, 'running')
  equal((await sh(made.id, 'cat f')).stdout, 'kept\n')
  await ask('DELETE', `/${made.id}`)
})

await test('killed there, failed here', async () => {
  const made = await create()
  const id = (await there(made.id))[0].sandboxId
  equal(await Sandbox.kill(id), true)
  await rejects(Sandbox.getInfo(id), SandboxNotFoundError)
  const failed = await until('it fails', async () => {
    const seen = (await ask('GET', `/${made.id}`)).json
    return seen.state === 'failed' && seen
  })
  match(failed.reason, /E2B service/)
  equal((await ask('POST', `/${made.id}/exec`, { cmd: ['true'] })).status, 409)
  equal((await ask('DELETE', `/${made.id}`)).status, 204)
})

await test('ten at once', async () => {
  const made = await Promise.all(Array.from({ length: 10 }, () => create()))
  const said = await Promise.all(made.map((m, i) => sh(m.id, `echo ${i}; head -c 200000 /dev/zero | tr '\\0' x | wc -c`)))
  equal(said.map((r) => r.stdout.split('\n').map(Number).slice(0, 2)), made.map((_, i) => [i, 200000]))
  const ends = await Promise.all(made.map((m) => ask('DELETE', `/${m.id}`)))
  equal(ends.map((e) => e.status), made.map(() => 204))
  const left = await Promise.all(made.map((m) => there(m.id)))
  equal(left.flat().length, 0, 'nothing is left there')
})

finish()
