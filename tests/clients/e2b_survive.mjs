// What clients have survives the daemon: run.py kills that with SIGKILL between "before" and "after".
import fs from 'node:fs'
import { Sandbox } from '@e2b/code-interpreter'
import { equal, finish, ok, test } from './check.mjs'

const notes = process.env.NOTES

await test('before', async () => {
  if (process.argv[2] !== 'before') return
  const s = await Sandbox.create({ timeoutMs: 600_000, metadata: { k: 'v' }, envs: { KEPT: 'env' } })
  await s.files.write('f', 'kept')
  const command = await s.commands.run('read x; echo got $x; exit 6', { background: true, stdin: true, timeoutMs: 0 })
  await s.runCode('x = 5')
  const context = await s.createCodeContext({ language: 'bash', cwd: '/tmp' })
  await s.runCode('y=6', { context })
  const paused = await Sandbox.create({ timeoutMs: 600_000 })
  await paused.files.write('f', 'paused')
  await paused.pause()
  fs.writeFileSync(notes, JSON.stringify({ id: s.sandboxId, pid: command.pid, url: await s.downloadUrl('f'), context, paused: paused.sandboxId }))
  ok(true, 'made')
})

await test('after', async () => {
  if (process.argv[2] !== 'after') return
  const was = JSON.parse(fs.readFileSync(notes))
  const signed = new URL(was.url)
  signed.host = new URL(process.env.E2B_SANDBOX_URL).host
  equal(await (await fetch(signed)).text(), 'kept', 'a signed address')
  const s = await Sandbox.connect(was.id)
  const info = await s.getInfo()
  equal([info.state, info.templateId, info.metadata], ['running', 'code-interpreter-v1', { k: 'v' }])
  equal((await s.commands.run('echo $KEPT')).stdout, 'env\n')
  const command = await s.commands.connect(was.pid)
  await s.commands.sendStdin(was.pid, 'this\n')
  const end = await command.wait().catch((error) => error)
  equal([end.exitCode, end.stdout], [6, 'got this\n'])
  equal((await s.runCode('x')).text, '5', "the kernel's state")
  ok((await s.listCodeContexts()).some((c) => c.id === was.context.id), 'a context')
  equal((await s.runCode('echo $y', { context: was.context })).logs.stdout.join(''), '6\n')
  equal((await Sandbox.getInfo(was.paused)).state, 'paused')
  const paused = await Sandbox.connect(was.paused)
  equal(await paused.files.read('f'), 'paused')
  equal(await paused.kill(), true)
  equal(await s.kill(), true)
})

finish()
