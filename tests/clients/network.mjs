// Networks of E2B's client, in the laboratory: what is allowed answers, and nothing else.
import { Sandbox, SandboxError, ALL_TRAFFIC } from 'e2b'
import { equal, match, ok, rejects, test, finish } from './check.mjs'

const boxes = []
const create = async (...options) => { const s = await Sandbox.create(...options); boxes.push(s); return s }
const code = async (s, url) => {
  try {
    return (await s.commands.run(`curl -sS -m 10 -o /dev/null -w '%{http_code}' ${url}`)).stdout
  } catch (e) {
    return e.stdout
  }
}

await test('open unless asked otherwise', async () => {
  for (const options of [{}, { allowInternetAccess: true }]) {
    const s = await create(options)
    equal(await code(s, 'https://example.com/'), '200')
    equal(await code(s, 'http://10.0.0.5/'), '000')
    equal((await s.getInfo()).allowInternetAccess, true)
  }
})

await test('closed', async () => {
  const s = await create({ allowInternetAccess: false })
  equal(await code(s, 'https://example.com/'), '000')
  equal((await s.getInfo()).allowInternetAccess, false)
})

await test('lists', async () => {
  const s = await create({ network: { allowOut: ['example.com'], denyOut: [ALL_TRAFFIC ?? '0.0.0.0/0'] } })
  equal(await code(s, 'https://example.com/'), '200')
  equal(await code(s, 'https://example.org/'), '000')
  await s.updateNetwork({ allowOut: ['93.184.216.34'], denyOut: ['93.184.216.0/24'] })
  equal(await code(s, 'http://93.184.216.34/'), '200')
  equal(await code(s, 'http://93.184.216.35/'), '000')
  equal(await code(s, 'https://example.org/'), '200')
  equal((await s.getInfo()).network.denyOut, ['93.184.216.0/24'])
  await s.updateNetwork({})
  equal(await code(s, 'http://93.184.216.35/'), '200')
  await s.updateNetwork({ allowInternetAccess: false })
  equal(await code(s, 'http://93.184.216.35/'), '000')
  await rejects(s.updateNetwork({ denyOut: ['example.com'] }), SandboxError, /400/)
})

await test('a narrower ceiling is no error', async () => {
  const s = await create({ allowInternetAccess: true, apiKey: process.env.NARROW_API_KEY })
  const info = await Sandbox.getInfo(s.sandboxId, { apiKey: process.env.NARROW_API_KEY })
  equal(info.allowInternetAccess, false)
  equal(await code(s, 'https://example.com/'), '000')
})

for (const s of boxes) await s.kill()
finish()
