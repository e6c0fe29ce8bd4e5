// A sandbox as tools for a model: the MCP SDK's client, unmodified, starts `cloche mcp`.
//
//   npm install @modelcontextprotocol/sdk
//   node mcp.mjs
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'

// What the model may do is said here, and nowhere else.
const transport = new StdioClientTransport({
  command: process.env.CLOCHE ?? 'cloche',
  args: ['mcp', '--memory', '512M', '--timeout', '30s'],
})
const client = new Client({ name: 'example', version: '1.0.0' })
await client.connect(transport)

try {
  const { tools } = await client.listTools()
  console.log('tools:', tools.map((tool) => tool.name).join(' '))

  // A model would choose these calls; tools and results are what it is shown.
  await client.callTool({ name: 'write_file', arguments: { path: 'data.csv', content: 'apples,3\npears,4\n' } })
  const code = 'print(sum(int(line.split(",")[1]) for line in open("data.csv")))'
  const sum = await client.callTool({ name: 'run_code', arguments: { code } })
  console.log('sum:', sum.structuredContent.stdout.trim())

  const curl = await client.callTool({ name: 'run_command', arguments: { command: 'curl -sS https://example.com' } })
  for (const denial of curl.structuredContent.denials) console.log('refused:', denial.target, '-', denial.explain)

  const wider = await client.callTool({ name: 'run_command', arguments: { command: 'id', net: 'public' } })
  console.log('asked for more:', wider.content[0].text)
} finally {
  await client.close()
}
