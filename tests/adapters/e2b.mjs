// Packages that speak to E2B's service, through our door.
import { e2b } from '@computesdk/e2b'
import { equal, finish, ok, test } from './check.mjs'

await test('@computesdk/e2b', async () => {
  const provider = e2b({ apiKey: process.env.E2B_API_KEY })
  const sandbox = await provider.sandbox.create({ timeout: 120_000 })
  const done = await sandbox.runCommand('echo $((6 * 7)); exit 3')
  equal([done.stdout.trim(), done.exitCode], ['42', 3])
  await sandbox.filesystem.writeFile('/home/user/a.txt', 'text')
  equal(await sandbox.filesystem.readFile('/home/user/a.txt'), 'text')
  ok((await sandbox.filesystem.readdir('/home/user')).some((entry) => entry.name === 'a.txt'), 'listed')
  equal(await sandbox.filesystem.exists('/home/user/b.txt'), false)
  await provider.sandbox.destroy(sandbox.sandboxId)
})

finish()
