// The unmodified npm package e2b builds templates: from an image, with files, commands, and services that start.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BuildError, Sandbox, Template } from 'e2b'
import { equal, finish, match, ok, rejects, test } from './check.mjs'

const root = { apiKey: process.env.ROOT_API_KEY }
const plain = { apiKey: process.env.E2B_API_KEY }
const other = { apiKey: process.env.OTHER_API_KEY }
const made = []
async function create(template, opts = root) {
  const sandbox = await Sandbox.create(template, { ...opts, timeoutMs: 120_000 })
  made.push(sandbox)
  return sandbox
}
async function out(sandbox, line, opts) {
  return (await sandbox.commands.run(line, opts)).stdout.trim()
}

const context = mkdtempSync(join(tmpdir(), 'cloche-template-'))
mkdirSync(join(context, 'app'))
writeFileSync(join(context, 'app', 'manifest.json'), '{"a": "$HOME"}')
writeFileSync(join(context, 'app', 'tool'), '#!/bin/sh\necho tool', { mode: 0o755 })
writeFileSync(join(context, 'one file.txt'), 'one')

const logs = []
function template() {
  return Template({ fileContextPath: context }).fromImage('tool:1')
    .setEnvs({ GREETING: 'hi "there"', BOTH: '$GREETING!' })
    .copy('app', '/srv/app')
    .copy('one file.txt', 'copied.txt', { mode: 0o600 })
    .runCmd(['echo $BOTH > said', 'id -u > who', 'echo "from a step"'])
    .runCmd('id -u > /etc/who; chown 33 /etc/who', { user: 'root' })
    .setWorkdir('/srv')
    .setStartCmd('id -u > /tmp/started; sleep 1000', '[ -f /tmp/started ]')
}

let info
await test('a template is built', async () => {
  info = await Template.build(template(), 'mine', { ...root, cpuCount: 1, memoryMB: 512, onBuildLogs: l => logs.push(l) })
  equal(info.name, 'mine')
  const text = logs.map(l => l.message).join('\n')
  match(text, /^from a step$/m)
  match(text, /RUN echo \$BOTH/)
})

await test('what its steps made is in its sandboxes', async () => {
  const s = await create('mine')
  equal(await out(s, 'cat /home/user/said /home/user/who /etc/who'), 'hi "there"!\n1000\n0')
  equal(await out(s, 'cat app/manifest.json; app/tool; cat ~/copied.txt; pwd'), '{"a": "$HOME"}tool\none/srv')
  equal(await out(s, 'stat -c "%u %a" /srv/app/tool /home/user/copied.txt /etc/who'), '1000 755\n1000 600\n33 644')
  equal(await out(s, 'echo $GREETING'), 'hi "there"')
  equal((await s.getInfo()).memoryMB, 512)
})

await test('its start command has been started, and it was ready', async () => {
  const s = await create(info.templateId)
  equal(await out(s, 'cat /tmp/started'), '1000')
})

await test('names, tags and aliases', async () => {
  equal(await Template.exists('mine', root), true)
  equal(await Template.exists('mine', other), false)
  equal(await Template.exists('nobody', root), false)
  await Template.assignTags('mine', ['v1', 'prod'], root)
  equal((await Template.getTags('mine', root)).map(t => t.tag).sort(), ['default', 'prod', 'v1'])
  await Template.removeTags('mine', 'prod', root)
  equal((await Template.getTags(info.templateId, root)).map(t => t.tag).sort(), ['default', 'v1'])
  equal(await Template.exists('mine:prod', root), false)
  equal(await out(await create('mine:v1'), 'cat /home/user/who'), '1000')
})

await test('the second build takes what was there, and its files', async () => {
  const again = []
  await Template.build(template(), 'mine:v2', { ...root, onBuildLogs: l => again.push(l.message) })
  const text = again.join('\n')
  match(text, /already cached/)
  match(text, /as before/)
  ok(!/^from a step$/m.test(text), 'the step ran again')
})

await test('one is built from another', async () => {
  await Template.build(Template().fromTemplate('mine').runCmd('cat said >> more'), 'child', root)
  equal(await out(await create('child'), 'cat /home/user/more'), 'hi "there"!')
})

await test('a step that fails says which and why', async () => {
  const bad = Template().fromImage('tool:1').runCmd('true').runCmd('echo oh no >&2; exit 3')
  const lines = []
  const e = await Template.build(bad, 'bad', { ...root, onBuildLogs: l => lines.push(l.message) }).catch(x => x)
  ok(e instanceof BuildError, String(e))
  match(e.message, /exit status 3/)
  ok(lines.includes('oh no'), lines.join('\n'))
  equal(await Template.exists('bad', root), false)
})

await test('what is refused', async () => {
  await rejects(Template.build(Template().fromImage('tool:1'), 'base', root), BuildError, /operator/)
  await rejects(Template.build(Template().fromImage('tool:1'), 'x', plain), BuildError, /root inside/)
  await rejects(Template.build(Template().fromImage('tool:1').runCmd('true'), 'Not A Name', root), BuildError, /name/)
  await rejects(Template.build(Template().fromTemplate('base'), 'x', root), BuildError, /host/)
  await rejects(Template.build(Template().fromTemplate('nobody'), 'x', root), BuildError, /nobody/)
  await rejects(Template.build(Template().fromImage('registry.example/x:1'), 'x', root), BuildError, /operator|registr/)
})

await test('others have nothing of it', async () => {
  await rejects(Sandbox.create('mine', other), Error, /404/)
  await rejects(Sandbox.create(info.templateId, other), Error, /404/)
  await rejects(Template.getTags('mine', other), Error, /404/)
  await rejects(Template.getBuildStatus({ templateId: info.templateId, buildId: info.buildId }, other), Error, /not found/)
})

const url = process.env.E2B_API_URL
const headers = { 'X-API-Key': root.apiKey, 'Content-Type': 'application/json' }
const call = (method, path, body) =>
  fetch(url + path, { method, headers, body: body && JSON.stringify(body) })

await test('files go only where a build waits for them', async () => {
  const at = await (await call('POST', '/v3/templates', { name: 'loose' })).json()
  const hash = 'ab'.repeat(32)
  const files = await (await call('GET', `/templates/${at.templateID}/files/${hash}`)).json()
  equal(files.present, false)
  const put = (address, body) => fetch(address, { method: 'PUT', body })
  equal((await put(files.url.replace(/key=.*/, 'key=' + '0'.repeat(32)), 'x')).status, 403)
  ok((await put(files.url, 'this is no tar at all'.repeat(100))).status >= 400, 'no tar was taken')
  const steps = [{ type: 'COPY', args: ['a', 'b', '', ''], filesHash: hash }]
  const started = await call('POST', `/v2/templates/${at.templateID}/builds/${at.buildID}`, { fromImage: 'tool:1', steps })
  equal(started.status, 400)
  match((await started.json()).message, /not uploaded/)
})

await test('lists and removes, as the command line of E2B does', async () => {
  const all = await (await call('GET', '/templates')).json()
  equal(all.map(t => t.names[0]).sort(), ['child', 'mine', 'tool'])
  const child = all.find(t => t.names[0] === 'child')
  equal((await call('DELETE', '/templates/' + child.templateID)).status, 204)
  equal(await Template.exists('child', root), false)
  equal((await call('DELETE', '/templates/mine')).status, 204)
  const images = await (await call('GET', '/v1/images')).json()
  equal(images.images.map(i => i.name).filter(n => n.startsWith('cloche/') || n.startsWith('mine')), [])
})

for (const sandbox of made) await sandbox.kill()
finish()
