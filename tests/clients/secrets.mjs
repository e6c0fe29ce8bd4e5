// The unmodified npm packages openai and @anthropic-ai/sdk inside a sandbox: all that they have is a placeholder, and
// the servers of those names want the real keys.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { equal, finish, match, ok, rejects, test } from './check.mjs'

await test('openai', async () => {
  match(process.env.OPENAI_API_KEY, /^sk-[A-Za-z0-9]{40}$/)
  const client = new OpenAI({ maxRetries: 0 })
  const answer = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: '2+2?' }] })
  equal(answer.choices[0].message.content, 'four')
  equal((await client.models.list()).data[0].id, 'm')
})

await test('anthropic, as a stream', async () => {
  match(process.env.ANTHROPIC_API_KEY, /^sk-ant-api03-[A-Za-z0-9]{40}$/)
  const client = new Anthropic({ maxRetries: 0 })
  const stream = client.messages.stream({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content: '2+3?' }] })
  equal(await stream.finalText(), 'five')
})

await test('another key is not this one', async () => {
  const client = new OpenAI({ maxRetries: 0, apiKey: 'sk-' + 'x'.repeat(40) })
  await rejects(client.models.list(), OpenAI.AuthenticationError)
  ok(!JSON.stringify(process.env).includes('real'), 'no value is in the environment')
})

finish()
