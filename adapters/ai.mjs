// Vercel's AI SDK (package ai): tools run in a cloche sandbox.
//
//     import { generateText } from 'ai'
//     import { sandboxSession, bashToolSandbox } from './ai.mjs'
//     await generateText({ model, tools, prompt, experimental_sandbox: await sandboxSession({ limits: { memoryMB: 512 } }) })
//     const { tools } = await createBashTool({ sandbox: await bashToolSandbox() })              // package bash-tool
import { Readable, Writable } from 'node:stream'
import { SandboxManager } from 'cloche'

const FILE_TYPES = { file: 'file', directory: 'directory', symlink: 'symlink' }

const create = (config, manager = new SandboxManager()) => manager.createSandbox(config)

async function nullIfMissing(promise) {
  try {
    return await promise
  } catch (error) {
    if (error.kind === 'not_found' && error.field !== 'id') return null
    throw error
  }
}

/** What tools get as `experimental_sandbox`; `destroy` ends the sandbox. */
export async function sandboxSession(config, manager) {
  const sandbox = await create(config, manager)
  const options = ({ workingDirectory, env, abortSignal }) => ({ cwd: workingDirectory, env, signal: abortSignal })
  const readBinaryFile = async ({ path }) => {
    const data = await nullIfMissing(sandbox.readFile(path))
    return data && new Uint8Array(data)
  }

  return {
    description: 'A cloche sandbox: Linux, an own file system with the working directory /workspace, and no network unless ' +
      'one was given.',
    async run({ command, ...more }) {
      const { exitCode, stdout, stderr } = await sandbox.execute(command, null, options(more))
      return { exitCode, stdout, stderr }
    },
    async spawn({ command, stdin, ...more }) {
      const process = sandbox.spawn(command, null, options(more))
      if (!stdin) process.stdin.end()
      return { pid: process.pid, stdout: Readable.toWeb(process.stdout), stderr: Readable.toWeb(process.stderr),
        ...stdin && { stdin: Writable.toWeb(process.stdin) }, wait: async () => ({ exitCode: await process.wait() }),
        kill: async () => void process.kill('SIGKILL') }
    },
    readBinaryFile,
    async readFile(where) {
      const data = await readBinaryFile(where)
      return data && new Blob([data]).stream()
    },
    async readTextFile({ path, encoding = 'utf8', startLine = 1, endLine }) {
      const text = await nullIfMissing(sandbox.readFile(path, encoding))
      if (text === null || (startLine === 1 && endLine === undefined)) return text
      return text.split(/(?<=\n)/).slice(startLine - 1, endLine).join('')
    },
    writeFile: async ({ path, content }) => sandbox.writeFile(path, Buffer.from(await new Response(content).arrayBuffer())),
    writeBinaryFile: ({ path, content }) => sandbox.writeFile(path, content),
    writeTextFile: ({ path, content, encoding }) => sandbox.writeFile(path, Buffer.from(content, encoding)),
    async stat({ path }) {
      const found = await sandbox.execute('stat', ['-L', '-c', '%F,%s', '--', path])
      if (!found.success) return null
      const [kind, size] = found.stdout.trim().split(',')
      return { type: kind.endsWith('file') ? 'file' : kind === 'directory' ? kind : 'other', size: Number(size) }
    },
    async listDirectory({ path }) {
      const entries = await nullIfMissing(sandbox.listFiles(path))
      return entries && entries.map(({ name, type }) => ({ name, type: FILE_TYPES[type] ?? 'other' }))
    },
    deleteFile: async ({ path }) => await nullIfMissing(sandbox.deleteFile(path).then(() => true)) ?? false,
    destroy: () => sandbox.destroy()
  }
}

/** The `sandbox` of bash-tool's createBashTool(); its working directory is there from the start. */
export async function bashToolSandbox(config, manager) {
  const sandbox = await create(config, manager)
  return {
    async executeCommand(command) {
      const { exitCode, stdout, stderr } = await sandbox.execute(command)
      return { exitCode, stdout, stderr }
    },
    readFile: (path) => sandbox.readFile(path, 'utf8'),
    writeFiles: async (files) => {
      for (const { path, content } of files) await sandbox.writeFile(path, content)
    },
    destroy: () => sandbox.destroy()
  }
}
