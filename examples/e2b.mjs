// E2B's own SDK, unmodified, against your own machine.
//
//   cloche serve &
//   export E2B_API_KEY=$(cloche token create --e2b example | tail -1)
//   export E2B_API_URL=http://127.0.0.1:7070 E2B_SANDBOX_URL=http://127.0.0.1:7070
//   npm install e2b @e2b/code-interpreter
//   node e2b.mjs
import { Sandbox } from '@e2b/code-interpreter'

for (const name of ['E2B_API_KEY', 'E2B_API_URL', 'E2B_SANDBOX_URL']) {
  if (!process.env[name]) {
    console.error(`${name} is not set: see the first lines of this file`)
    process.exit(1)
  }
}

const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
try {
  console.log('sandbox', sandbox.sandboxId)

  const command = await sandbox.commands.run('uname -s; id -un; pwd')
  console.log('command:', command.stdout.trim().split('\n').join(', '))

  await sandbox.files.write('data.csv', 'name,count\napples,3\npears,4\n')
  const run = await sandbox.runCode(`
import csv
rows = list(csv.DictReader(open("data.csv")))
print("read", len(rows), "rows")
sum(int(row["count"]) for row in rows)
`)
  console.log('code:', run.logs.stdout.join('').trim(), '- result', run.text)

  const failed = await sandbox.runCode('open("/etc/shadow").read()')
  console.log('refused:', failed.error.name, failed.error.value)
} finally {
  await sandbox.kill()
}
