// The unmodified npm package e2b with nothing but E2B_DOMAIN: every URL is https, also those of ports.
import { Sandbox } from 'e2b'
import { equal, finish, match, ok, test, until } from './check.mjs'

const box = await Sandbox.create({ timeoutMs: 600_000 })

await test('commands and files', async () => {
  equal((await box.commands.run('echo over tls')).stdout, 'over tls\n')
  const big = 'x'.repeat(3_000_000)
  await box.files.write('big', big)
  equal((await box.files.read('big')).length, big.length)
})

await test('output as it comes', async () => {
  let seen = ''
  await box.commands.run('for i in 1 2 3; do echo $i; sleep 0.1; done', { onStdout: (t) => { seen += t } })
  equal(seen, '1\n2\n3\n')
})

await test('getHost is a URL that works', async () => {
  equal(box.getHost(8000), `8000-${box.sandboxId}.${process.env.E2B_DOMAIN}`)
  await box.files.write('index.html', 'a page from inside')
  await box.commands.run('python3 -m http.server 8000', { background: true })
  let text = ''
  await until('the page', async () => {
    const reply = await fetch(`https://${box.getHost(8000)}/index.html`)
    text = await reply.text()
    return reply.status === 200
  })
  match(text, /a page from inside/)
})

await test('a certificate that nobody vouches for is refused', async () => {
  const { execFileSync } = await import('node:child_process')
  const code = `fetch('https://api.${process.env.E2B_DOMAIN}/health').then(() => console.log('connected'), (e) => console.log(e.cause.code))`
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: '' }
  ok(/^(UNABLE_TO_VERIFY|SELF_SIGNED|UNABLE_TO_GET)/.test(execFileSync('node', ['-e', code], { env }).toString()), 'refused')
})

await box.kill()
finish()
