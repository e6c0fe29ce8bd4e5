// The unmodified npm package e2b against our door: files, signed addresses, watches, ports.
import { Sandbox, FileNotFoundError, FileType, FilesystemEventType, InvalidArgumentError, AuthenticationError } from 'e2b'
import http from 'node:http'
import { equal, finish, match, ok, rejects, skip, test, until } from './check.mjs'

const box = await Sandbox.create({ timeoutMs: 600_000 })
const second = await Sandbox.create({ timeoutMs: 600_000 })
const api = new URL(process.env.E2B_SANDBOX_URL)
const sh = async (cmd) => (await box.commands.run(cmd)).stdout

await test('write and read', async () => {
  const info = await box.files.write('a.txt', 'hello é')
  equal([info.path, info.name, info.type], ['/home/user/a.txt', 'a.txt', 'file'])
  equal(await box.files.read('a.txt'), 'hello é')
  equal(await box.files.read('/home/user/a.txt'), 'hello é')
  equal(await sh('cat a.txt; stat -c " %a %U" a.txt'), 'hello é 644 user\n')
  await box.files.write('/tmp/deep/er/b.txt', 'parents are made')
  equal(await box.files.read('/tmp/deep/er/b.txt'), 'parents are made')
  await box.files.write('a.txt', 'shorter')
  equal(await box.files.read('a.txt'), 'shorter')
  await box.files.write('empty', '')
  equal(await box.files.read('empty'), '')
  await box.files.write('~/tilde.txt', 'home')
  equal(await box.files.read('tilde.txt'), 'home')
  await box.files.write('odd "name" + é %20.txt', 'odd')
  equal(await box.files.read('odd "name" + é %20.txt'), 'odd')
})

await test('formats', async () => {
  const bytes = new Uint8Array(70_000).map((_, i) => i * 7)
  await box.files.write('bytes', bytes.buffer)
  equal(Buffer.from(await box.files.read('bytes', { format: 'bytes' })).equals(Buffer.from(bytes)), true)
  equal((await (await box.files.read('bytes', { format: 'blob' })).arrayBuffer()).byteLength, bytes.length)
  let size = 0
  for await (const chunk of await box.files.read('bytes', { format: 'stream' })) size += chunk.length
  equal(size, bytes.length)
  await box.files.write('blob', new Blob(['from a blob']))
  equal(await box.files.read('blob'), 'from a blob')
})

await test('encodings of uploads', async () => {
  await box.files.write('octet', 'raw body', { useOctetStream: true })
  equal(await box.files.read('octet'), 'raw body')
  await box.files.write('gzip', 'squeezed '.repeat(10_000), { gzip: true })
  equal((await box.files.read('gzip')).length, 90_000)
  equal((await box.files.read('gzip', { gzip: true })).length, 90_000)
  const stream = new ReadableStream({
    start(controller) {
      for (let i = 0; i < 64; i++) controller.enqueue(new Uint8Array(65_536).fill(i))
      controller.close()
    },
  })
  await box.files.write('stream', stream)
  equal(await sh('stat -c %s stream'), `${64 * 65_536}\n`)
})

await test('large', async () => {
  const large = Buffer.alloc(20_000_000, 'abcdefg')
  await box.files.write('large', new Blob([large]))
  const back = Buffer.from(await box.files.read('large', { format: 'bytes' }))
  equal(back.equals(large), true)
  await box.files.remove('large')
})

await test('several at once', async () => {
  const infos = await box.files.write([{ path: 'm/1', data: 'one' }, { path: '/tmp/m2', data: new Blob(['two']) }, { path: 'm/3', data: new TextEncoder().encode('three').buffer }])
  equal(infos.map((i) => i.path), ['/home/user/m/1', '/tmp/m2', '/home/user/m/3'])
  equal(await box.files.read('m/1'), 'one')
  equal(await box.files.read('/tmp/m2'), 'two')
  equal(await box.files.read('m/3'), 'three')
  const many = await box.files.writeFiles(Array.from({ length: 50 }, (_, i) => ({ path: `many/${i}`, data: `${i}` })))
  equal(many.length, 50)
  equal((await box.files.list('many')).length, 50)
})

await test('metadata', async () => {
  // Kept as extended attributes, which a tmpfs has since Linux 6.6.
  const able = await sh('touch able; python3 -c "import os; os.setxattr(\'able\', \'user.a\', b\'b\')" 2>/dev/null && echo yes || true')
  if (able === '') skip("the sandbox's file system has no user attributes")
  const info = await box.files.write('marked', 'x', { metadata: { kind: 'report', 'By-Whom': 'me' } })
  equal(info.metadata, { kind: 'report', 'by-whom': 'me' })
  equal((await box.files.getInfo('marked')).metadata, { kind: 'report', 'by-whom': 'me' })
  equal((await box.files.list('.')).find((e) => e.name === 'marked').metadata, { kind: 'report', 'by-whom': 'me' })
  await box.files.write('marked', 'y')
  equal((await box.files.getInfo('marked')).metadata, undefined, 'each upload replaces them')
})

await test('what cannot be read or written', async () => {
  await rejects(box.files.read('no-such-file'), FileNotFoundError)
  await rejects(box.files.read('/tmp'), InvalidArgumentError)
  await rejects(box.files.write('/tmp', 'x'), InvalidArgumentError)
  await rejects(box.files.write('~other/x', 'x'), InvalidArgumentError)
  await rejects(box.files.read('x', { user: 'stranger' }), AuthenticationError, /invalid username/)
})

await test('exists, info, directories', async () => {
  equal(await box.files.exists('a.txt'), true)
  equal(await box.files.exists('no-such-file'), false)
  equal(await box.files.makeDir('d/e/f'), true)
  equal(await box.files.makeDir('d/e/f'), false)
  await rejects(box.files.makeDir('a.txt'), InvalidArgumentError)
  await box.files.write('d/file', '12345')
  const file = await box.files.getInfo('d/file')
  equal([file.name, file.path, file.type, file.size, file.mode, file.permissions, file.owner, file.group],
    ['file', '/home/user/d/file', FileType.FILE, 5, 0o644, '-rw-r--r--', 'user', 'user'])
  ok(Math.abs(file.modifiedTime - Date.now()) < 3600_000, 'time')
  const dir = await box.files.getInfo('d')
  equal([dir.type, dir.permissions], [FileType.DIR, 'drwxr-xr-x'])
  await sh('ln -sf /home/user/d/file link; ln -sf /nowhere dangling; ln -sf d/file near')
  const link = await box.files.getInfo('link')
  equal([link.type, link.symlinkTarget, link.permissions[0]], [FileType.FILE, '/home/user/d/file', 'L'])
  equal((await box.files.getInfo('near')).symlinkTarget, '/home/user/d/file')
  await rejects(box.files.getInfo('no-such-file'), FileNotFoundError)
})

await test('list', async () => {
  await sh('rm -rf tree; mkdir -p tree/a/b tree/c; touch tree/a/b/deep tree/a/x tree/z; ln -s nowhere tree/gone')
  equal((await box.files.list('tree')).map((e) => e.name), ['a', 'c', 'z'], 'a link that leads nowhere is left out')
  equal((await box.files.list('tree', { depth: 3 })).map((e) => e.path.replace('/home/user/tree/', '')),
    ['a', 'a/b', 'a/b/deep', 'a/x', 'c', 'z'])
  await rejects(box.files.list('no-such-dir'), FileNotFoundError)
  await rejects(box.files.list('a.txt'), InvalidArgumentError)
  await rejects(box.files.list('tree', { depth: 0 }), InvalidArgumentError)
  await sh('rm -rf crowd; mkdir crowd; cd crowd; for i in $(seq 300); do mkdir d$i; done')
  equal((await box.files.list('crowd')).length, 300)
})

await test('rename and remove', async () => {
  await box.files.write('from', 'moved')
  const info = await box.files.rename('from', 'new/parents/to')
  equal([info.path, info.name], ['/home/user/new/parents/to', 'to'])
  equal(await box.files.read('new/parents/to'), 'moved')
  equal(await box.files.exists('from'), false)
  await rejects(box.files.rename('from', 'elsewhere'), FileNotFoundError)
  await box.files.remove('new')
  equal(await box.files.exists('new'), false)
  await box.files.remove('new')
  ok(true, 'what is not there is removed')
})

await test('signed addresses', async () => {
  await box.files.write('signed.txt', 'by address')
  const url = await box.downloadUrl('signed.txt')
  equal(await (await fetch(url)).text(), 'by address')
  const short = await box.downloadUrl('signed.txt', { useSignatureExpiration: 3600 })
  equal(await (await fetch(short)).text(), 'by address')
  const past = await box.downloadUrl('signed.txt', { useSignatureExpiration: -10 })
  const expired = await fetch(past)
  equal([expired.status, (await expired.json()).message], [401, 'signature is already expired'])
  const forged = new URL(url)
  forged.searchParams.set('path', 'a.txt')
  const wrong = await fetch(forged)
  equal([wrong.status, (await wrong.json()).message], [401, 'invalid signature'])
  forged.searchParams.delete('signature')
  const bare = await fetch(forged)
  equal([bare.status, (await bare.json()).message], [401, 'missing signature query parameter'])
  const form = new FormData()
  form.append('file', new Blob(['uploaded']))
  const up = await fetch(await box.uploadUrl('up.txt'), { method: 'POST', body: form })
  equal([up.status, (await up.json())[0].path], [200, '/home/user/up.txt'])
  equal(await box.files.read('up.txt'), 'uploaded')
  const other = await second.downloadUrl('signed.txt')
  equal((await fetch(other)).status, 404, "another sandbox's address leads to that one")
})

await test('watch', async () => {
  await box.files.makeDir('w')
  const events = []
  const handle = await box.files.watchDir('w', (event) => { events.push(event) })
  const seen = (name, type) => until(`${type} of ${name}`, () => events.some((e) => e.name === name && e.type === type))
  await box.files.write('w/one', 'x')
  await seen('one', FilesystemEventType.CREATE)
  await sh('echo more >> w/one')
  await seen('one', FilesystemEventType.WRITE)
  await sh('chmod 600 w/one')
  await seen('one', FilesystemEventType.CHMOD)
  await box.files.rename('w/one', 'w/two')
  await seen('one', FilesystemEventType.RENAME)
  await seen('two', FilesystemEventType.CREATE)
  await box.files.remove('w/two')
  await seen('two', FilesystemEventType.REMOVE)
  ok(true, 'all kinds were seen')
  await handle.stop()
  await rejects(box.files.watchDir('no-such-dir', () => {}), FileNotFoundError)
  await rejects(box.files.watchDir('a.txt', () => {}), InvalidArgumentError)
})

await test('watch, recursively and with entries', async () => {
  await box.files.makeDir('r')
  const events = []
  const handle = await box.files.watchDir('r', (event) => { events.push(event) }, { recursive: true, includeEntry: true })
  await box.files.makeDir('r/later')
  await until('the directory', () => events.some((e) => e.name === 'later'))
  await until('what is in it', async () => {
    await box.files.write(`r/later/f`, 'x')
    return events.some((e) => e.name === 'later/f')
  })
  const entry = await until('an entry', () => events.find((e) => e.name === 'later/f' && e.entry)?.entry)
  equal([entry.path, entry.type], ['/home/user/r/later/f', FileType.FILE])
  await handle.stop()
  const ended = await new Promise((resolve) => {
    box.files.watchDir('r', () => {}, { timeoutMs: 500, onExit: (error) => resolve(error ?? 'no error') }).catch(resolve)
  })
  ok(ended instanceof Error, 'a watch ends at its deadline')
})

// ---- ports: by header and by host name ----------------------------------------------------------------

// fetch would not let us choose the Host.
function request(headers, { method = 'GET', path = '/', body } = {}) {
  return new Promise((resolve, reject) => {
    const r = http.request({ host: api.hostname, port: api.port, method, path, headers }, (answer) => {
      let text = ''
      answer.on('data', (chunk) => { text += chunk })
      answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, text }))
      answer.on('error', reject)
    })
    r.on('error', reject)
    r.end(body)
  })
}

const SERVER = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        text = (self.command + ' ' + self.path + '\\n' + str(self.headers)).encode()
        n = int(self.headers.get('Content-Length') or 0)
        text += self.rfile.read(n)
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H).serve_forever()
`

await test('ports', async () => {
  if ((await sh('command -v python3 || true')) === '') skip('python3 is not installed')
  const host = `3000-${box.sandboxId}.localhost:${api.port}`
  const closed = await request({ Host: host })
  equal([closed.status, JSON.parse(closed.text)], [502, { sandboxId: box.sandboxId, message: 'The sandbox is running but port is not open', port: 3000, code: 502 }])
  await box.files.write('/tmp/server.py', SERVER)
  const server = await box.commands.run('python3 /tmp/server.py', { background: true, timeoutMs: 0 })
  const answer = await until('the server', async () => {
    const a = await request({ Host: host, 'X-Access-Token': 'secret', Authorization: 'Bearer secret' }, { path: '/a/b?c=d' })
    return a.status === 200 && a
  })
  match(answer.text, /^GET \/a\/b\?c=d\n/, 'path and query')
  ok(!answer.text.includes('secret'), 'our own keys stay outside')
  const byHeader = await request({ 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '3000' }, { method: 'POST', path: '/post', body: 'a body' })
  equal(byHeader.status, 200)
  match(byHeader.text, /^POST \/post\n[^]*a body$/, 'body')
  const gone = await request({ Host: `3000-nosuchsandbox0123456.localhost:${api.port}` })
  equal([gone.status, JSON.parse(gone.text).message], [502, 'The sandbox was not found'])
  await server.kill()
})

await test('ports behind a token', async () => {
  const s = await Sandbox.create({ network: { allowPublicTraffic: false } })
  match(s.trafficAccessToken, /./, 'a token is given')
  const host = `3000-${s.sandboxId}.localhost:${api.port}`
  for (const key of [{}, { 'e2b-traffic-access-token': 'wrong' }]) {
    const hidden = await request({ Host: host, ...key })
    equal([hidden.status, JSON.parse(hidden.text).code], [403, 403])
  }
  equal((await request({ Host: host, 'e2b-traffic-access-token': s.trafficAccessToken })).status, 502, 'nothing listens there yet')
  equal(await s.kill(), true)
})

await Promise.allSettled([box.kill(), second.kill()])
finish()
