// The unmodified npm package e2b with templates that are images of one's own: whose files, and who is root.
import { Sandbox, SandboxError } from 'e2b'
import { equal, finish, match, ok, rejects, test } from './check.mjs'

const keys = { plain: process.env.E2B_API_KEY, root: process.env.ROOT_API_KEY }
const made = []
async function create(template, apiKey) {
  const sandbox = await Sandbox.create(template, { apiKey, timeoutMs: 120_000 })
  made.push(sandbox)
  return sandbox
}

async function out(sandbox, line, opts) {
  return (await sandbox.commands.run(line, opts)).stdout.trim()
}

await test('an image is a template', async () => {
  const s = await create('tool:1', keys.plain)
  equal(await out(s, 'cat /etc/marker; pwd; id -u; echo $GREETING'), 'of the image\n/home/user\n1000\nhello')
  equal((await s.getInfo()).templateId, 'tool:1')
})

await test('without the right root is a name', async () => {
  const s = await create('tool:1', keys.plain)
  equal(await out(s, 'id -u', { user: 'root' }), '1000')
})

await test('with the right root is root, and user is not', async () => {
  const s = await create('tool:1', keys.root)
  equal(await out(s, 'id -u; echo $HOME', { user: 'root' }), '0\n/root')
  equal(await out(s, 'id -u; echo $HOME; pwd'), '1000\n/home/user\n/home/user')
  await s.commands.run('touch /etc/mine && chown 33 /etc/mine', { user: 'root' })
  equal(await out(s, 'stat -c %u /etc/mine'), '33')
  const failed = await s.commands.run('touch /etc/not-mine').catch(e => e)
  ok(failed.exitCode !== 0, 'the ordinary user may not')
})

await test('files belong to whose directory it is', async () => {
  const s = await create('tool:1', keys.root)
  await s.files.write('/home/user/deep/a.txt', 'one')
  await s.files.write('/etc/b.txt', 'two', { user: 'root' })
  equal(await out(s, 'stat -c %u /home/user/deep /home/user/deep/a.txt /etc/b.txt'), '1000\n1000\n0')
  equal(await out(s, 'echo more >> deep/a.txt && cat deep/a.txt'), 'onemore')
  await s.files.write('/home/user/deep/a.txt', 'new')
  equal(await out(s, 'stat -c %u deep/a.txt && rm deep/a.txt && echo gone'), '1000\ngone')
})

await test('a snapshot keeps the image and its root', async () => {
  const s = await create('tool:1', keys.root)
  await s.files.write('/home/user/kept.txt', 'kept')
  const snapshot = await s.createSnapshot()
  const again = await create(snapshot.snapshotId, keys.root)
  equal(await out(again, 'cat /etc/marker kept.txt'), 'of the image\nkept')
  equal(await out(again, 'id -u', { user: 'root' }), '0')
  await Sandbox.deleteSnapshot(snapshot.snapshotId, { apiKey: keys.root })
})

await test('another token does not have it', async () => {
  await rejects(Sandbox.create('tool:1', { apiKey: process.env.OTHER_API_KEY }), SandboxError, /404.*tool:1/)
  match(String(await Sandbox.create('host', { apiKey: keys.plain }).catch(e => e.message)), /404/)
})

for (const sandbox of made) await sandbox.kill()
finish()
