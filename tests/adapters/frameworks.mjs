// Each adapter with the framework it is for, unmodified; models are scripted.
import { run } from '@openai/agents'
import { SandboxAgent, Manifest, dir, file } from '@openai/agents/sandbox'
import { ScriptedModel, assistantMessage, functionCall } from '@openai/agents/testing'
import { query } from '@anthropic-ai/claude-agent-sdk'
import { generateText, tool, stepCountIs, jsonSchema } from 'ai'
import { MockLanguageModelV4 as MockModel } from 'ai/test'
import { createBashTool } from 'bash-tool'
import { SandboxManager } from 'cloche'
import { clocheBackend } from './adapters/deepagents.mjs'
import { bashToolSandbox, sandboxSession } from './adapters/ai.mjs'
import { clocheSpawn } from './adapters/claude-agent.mjs'
import { clocheSandboxClient } from './adapters/openai-agents.mjs'
import { equal, finish, match, ok, rejects, test } from './check.mjs'

const manager = new SandboxManager({ limits: { memoryMB: 256, timeoutSeconds: 60 } })
const config = { env: { WHO: 'inside' } }

await test('OpenAI Agents SDK: a SandboxAgent works in the sandbox', async () => {
  const model = new ScriptedModel([
    [functionCall('exec_command', { cmd: 'cat notes/a.txt; echo $WHO $MINE; exit 3' }, { callId: '1' })],
    [assistantMessage('done')]
  ])
  const agent = new SandboxAgent({ name: 'worker', model, instructions: 'work',
    defaultManifest: new Manifest({ environment: { MINE: 'yes' },
      entries: { notes: dir({ children: { 'a.txt': file({ content: 'from the manifest\n' }) } }) } }) })
  const result = await run(agent, 'go', { sandbox: { client: clocheSandboxClient({ manager, ...config }) } })
  equal(result.finalOutput, 'done')
  const output = JSON.stringify(result.history.find((item) => item.type === 'function_call_result').output)
  match(output, /from the manifest\\ninside yes/)
  match(output, /exited with code 3/)
  equal(await manager.listSandboxes().then((all) => all.length), 0, 'sandboxes left')
})

await test('OpenAI Agents SDK: files, patches and images of a session', async () => {
  const client = clocheSandboxClient({ manager })
  const session = await client.create({ manifest: new Manifest({ entries: {} }) })
  const editor = session.createEditor()
  await editor.createFile({ type: 'create_file', path: 'a.txt', diff: '+one\n+two\n' })
  await editor.updateFile({ type: 'update_file', path: 'a.txt', diff: '@@\n one\n-two\n+three\n' })
  equal(Buffer.from(await session.readFile({ path: 'a.txt' })).toString().trim(), 'one\nthree')
  equal((await session.listDir({ path: '.' })).map(({ name, type }) => [name, type]), [['a.txt', 'file']])
  equal([await session.pathExists('a.txt'), await session.directoryExists('a.txt')], [true, false])
  await session.exec({ cmd: 'printf "\\211PNG" > b.png' })
  equal((await session.viewImage({ path: 'b.png' })).image.mediaType, 'image/png')
  const again = await client.resume(session.state)
  await again.createEditor().deleteFile({ type: 'delete_file', path: 'a.txt' })
  equal(await session.pathExists('a.txt'), false)
  match((await session.exec({ cmd: 'seq 10000', maxOutputTokens: 10 })).output, /^1\n[^]*\[\.\.\.\][^]*10000\n$/)
  await rejects(session.exec({ cmd: 'true', tty: true }), Error, /terminal/)
  await client.delete(session.state)
  equal(await session.running(), false)
  await rejects(client.create({ manifest: new Manifest({ entries: { x: { type: 'git_repo', repo: 'a/b' } } }) }), Error, /git_repo/)
  equal(await manager.listSandboxes().then((all) => all.length), 0, 'sandboxes left')
})

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }
const answers = (...list) => new MockModel({ doGenerate: async () => list.shift() })
const call = (toolName, input) => ({ content: [{ type: 'tool-call', toolCallId: toolName, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: 'tool-calls' }, usage, warnings: [] })
const say = (text) => ({ content: [{ type: 'text', text }], finishReason: { unified: 'stop' }, usage, warnings: [] })

await test('AI SDK: tools get the sandbox', async () => {
  const sandbox = await sandboxSession(config, manager)
  let seen
  const shell = tool({ inputSchema: jsonSchema({ type: 'object', properties: { command: { type: 'string' } } }),
    execute: async ({ command }, { experimental_sandbox: box, abortSignal }) => {
      seen = await box.run({ command, env: { A: 'b' }, workingDirectory: '/tmp', abortSignal })
      return seen
    } })
  const result = await generateText({ model: answers(call('shell', { command: 'echo $WHO $A; pwd; exit 2' }), say('ok')),
    tools: { shell }, prompt: 'go', stopWhen: stepCountIs(3), experimental_sandbox: sandbox })
  equal([result.text, seen], ['ok', { exitCode: 2, stdout: 'inside b\n/tmp\n', stderr: '' }])
  await sandbox.writeTextFile({ path: 'd/a.txt', content: 'one\ntwo\nthree\n' })
  equal(await sandbox.readTextFile({ path: 'd/a.txt', startLine: 2, endLine: 2 }), 'two\n')
  equal(await sandbox.readTextFile({ path: 'no' }), null)
  equal(await sandbox.readFile({ path: 'no' }), null)
  equal(await new Response(await sandbox.readFile({ path: 'd/a.txt' })).text(), 'one\ntwo\nthree\n')
  await sandbox.writeFile({ path: 'b.bin', content: new Blob(['xyz']).stream() })
  equal([...await sandbox.readBinaryFile({ path: 'b.bin' })], [120, 121, 122])
  equal([await sandbox.stat({ path: 'b.bin' }), await sandbox.stat({ path: 'd' }), await sandbox.stat({ path: 'no' })],
    [{ type: 'file', size: 3 }, { type: 'directory', size: (await sandbox.stat({ path: 'd' })).size }, null])
  equal((await sandbox.listDirectory({ path: '.' })).map((entry) => entry.name).sort(), ['b.bin', 'd'])
  equal([await sandbox.deleteFile({ path: 'b.bin' }), await sandbox.deleteFile({ path: 'b.bin' })], [true, false])
  const cat = await sandbox.spawn({ command: 'cat; exit 5', stdin: true })
  const writer = cat.stdin.getWriter()
  await writer.write(new TextEncoder().encode('through'))
  await writer.close()
  equal([await new Response(cat.stdout).text(), await cat.wait()], ['through', { exitCode: 5 }])
  const sleep = await sandbox.spawn({ command: 'sleep 100' })
  await sleep.kill()
  ok((await sleep.wait()).exitCode > 128, 'killed')
  await sandbox.destroy()
})

await test('bash-tool: its tools in the sandbox', async () => {
  const sandbox = await bashToolSandbox(config, manager)
  const { tools } = await createBashTool({ sandbox, destination: '/workspace', files: { 'src/a.txt': 'given\n' } })
  const options = { toolCallId: '1', messages: [] }
  equal((await tools.bash.execute({ command: 'cat src/a.txt; pwd' }, options)).stdout, 'given\n/workspace\n')
  await tools.writeFile.execute({ path: '/workspace/b.txt', content: 'written' }, options)
  equal((await tools.readFile.execute({ path: '/workspace/b.txt' }, options)).content, 'written')
  await sandbox.destroy()
})

await test('deepagents: a backend', async () => {
  const backend = await clocheBackend(config, manager)
  const written = await backend.write('/workspace/d/a.py', 'print("hi")\nprint(6 * 7)\n')
  ok(!written.error, 'written')
  match(JSON.stringify(await backend.read('/workspace/d/a.py')), /6 \* 7/)
  ok(!(await backend.edit('/workspace/d/a.py', '6 * 7', '7 * 8')).error, 'edited')
  equal((await backend.execute('python3 /workspace/d/a.py; exit 3')), { output: 'hi\n56\n', exitCode: 3, truncated: false })
  match(JSON.stringify(await backend.ls('/workspace')), /\/workspace\/d/)
  match(JSON.stringify(await backend.glob('**/*.py', '/workspace')), /a\.py/)
  match(JSON.stringify(await backend.grep('7 \\* 8|7 * 8', '/workspace')), /a\.py|matches/)
  const bytes = new TextEncoder().encode('x')
  equal((await backend.uploadFiles([['/workspace/x', bytes], ['relative', bytes], ['/workspace/d', bytes]])).map((row) => row.error),
    [null, 'invalid_path', 'is_directory'])
  equal((await backend.downloadFiles(['/workspace/x', '/no', '/workspace/d'])).map((row) => row.error),
    [null, 'file_not_found', 'is_directory'])
  await backend.destroy()
})

const CLAUDE = `import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "control_request":
        print(json.dumps({"type": "control_response", "response": {"subtype": "success", "request_id": m["request_id"],
              "response": {"commands": [], "models": []}}}), flush=True)
    elif m["type"] == "user":
        text = "%s %s key=%s args=%d" % (os.uname().nodename, os.environ["WHO"], os.environ.get("ANTHROPIC_API_KEY"),
                                         "--output-format" in sys.argv)
        ids = {"session_id": "s", "uuid": "u"}
        print(json.dumps({"type": "assistant", "parent_tool_use_id": None, "message": {"role": "assistant", "id": "m", "type": "message",
              "model": "x", "content": [{"type": "text", "text": text}]}, **ids}), flush=True)
        print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": text, "duration_ms": 1,
              "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0, "usage": {}, "permission_denials": [], **ids}), flush=True)
`

await test('Claude Agent SDK: the program itself is inside', async () => {
  const sandbox = await manager.createSandbox(config)
  await sandbox.writeFile('/workspace/bin/claude', '#!/usr/bin/python3\n' + CLAUDE)
  await sandbox.execute(['chmod', '+x', 'bin/claude'])
  const results = []
  for await (const message of query({ prompt: 'who are you', options: { cwd: process.cwd(), pathToClaudeCodeExecutable: '/usr/bin/claude.js',
    env: { ...process.env, ANTHROPIC_API_KEY: 'sk-ant-secret' },
    spawnClaudeCodeProcess: clocheSpawn(sandbox, { command: '/workspace/bin/claude' }) } })) {
    if (message.type === 'result') results.push(message.result)
  }
  equal(results, ['cloche inside key=None args=1'])
  await sandbox.destroy()
})

equal(await manager.destroyAll(), 0, 'sandboxes left')
finish()
