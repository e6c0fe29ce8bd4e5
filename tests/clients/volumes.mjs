// Volumes with the unmodified npm package e2b: made, listed, mounted by name, written by one sandbox after the other.
import { Sandbox, SandboxError, Volume, VolumeError } from 'e2b'
import { equal, finish, match, ok, rejects, skip, test } from './check.mjs'

const name = `shared-${process.pid}`
let volume

await test('create', async () => {
  try {
    volume = await Volume.create(name)
  } catch (error) {
    if (/needs a daemon that is root|mkfs|loop devices/.test(error.message)) skip(error.message)
    throw error
  }
  match(volume.volumeId, /^[a-z0-5]{20}$/)
  equal(volume.name, name)
  await rejects(Volume.create(name), VolumeError, /409.*already/s)
  await rejects(Volume.create('a/b'), Error)
})

if (volume) {
  await test('list and connect', async () => {
    const all = await Volume.list()
    equal(all.filter((v) => v.volumeId === volume.volumeId).map((v) => v.name), [name])
    const again = await Volume.connect(volume.volumeId)
    equal([again.volumeId, again.name], [volume.volumeId, name])
    await rejects(Volume.connect('a'.repeat(20)), Error, /not found|no such|404/i)
  })

  await test('one sandbox after the other writes', async () => {
    const first = await Sandbox.create({ volumeMounts: { '/mnt/data': volume } })
    await first.files.write('/mnt/data/f', 'one')
    await rejects(Sandbox.create({ volumeMounts: { '/mnt/data': name } }), SandboxError, /409.*attached/s)
    await rejects(Volume.destroy(volume.volumeId), VolumeError, /409/)
    await first.kill()
    const second = await Sandbox.create({ volumeMounts: { '/mnt/other': name } })
    equal(await second.files.read('/mnt/other/f'), 'one')
    await second.kill()
  })

  await test('mounts are refused', async () => {
    const mounts = (volumeMounts) => Sandbox.create({ volumeMounts })
    await rejects(mounts({ '/a': 'no-such-volume' }), SandboxError, /there is no/)
    await rejects(mounts({ 'rel': name }), SandboxError, /400.*clean/s)
    await rejects(mounts({ '/a/../b': name }), SandboxError, /400.*clean/s)
  })

  await test('destroy', async () => {
    ok(await Volume.destroy(volume.volumeId), 'it is gone')
    ok(!(await Volume.destroy(volume.volumeId)), 'it was gone')
  })
}

finish()
