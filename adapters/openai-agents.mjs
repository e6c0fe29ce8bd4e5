// OpenAI Agents SDK: a SandboxAgent's shell and files live in a cloche sandbox.
//
//     import { run } from '@openai/agents'
//     import { SandboxAgent } from '@openai/agents/sandbox'
//     import { clocheSandboxClient } from './openai-agents.mjs'
//     await run(agent, 'fix the bug', { sandbox: { client: clocheSandboxClient({ limits: { memoryMB: 1024 } }) } })
import fs from 'node:fs/promises'
import { posix } from 'node:path'
import { applyDiff, UserError } from '@openai/agents'
import { normalizeSandboxClientCreateArgs } from '@openai/agents/sandbox'
import { SandboxManager } from 'cloche'

const IMAGE_TYPES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp' }
const OUTPUT_BYTES_PER_TOKEN = 4
const TYPES = { file: 'file', directory: 'dir' }

class ClocheSession {
  constructor(sandbox, manifest, environment) {
    this.sandbox = sandbox
    this.root = manifest.root
    this.environment = environment
    this.state = { manifest, workspaceReady: true, environment, sandboxId: sandbox.id }
  }

  path(path = '.') {
    return posix.resolve(this.root, path)
  }

  async exec({ cmd, workdir, shell = '/bin/sh', tty, maxOutputTokens, runAs }) {
    if (tty) throw new UserError('This session has no terminals: leave tty out.')
    const done = await this.sandbox.execute(shell, ['-c', cmd], { cwd: this.path(workdir), env: this.environment, user: runAs })
    const all = done.stdout + done.stderr
    const most = (maxOutputTokens ?? Infinity) * OUTPUT_BYTES_PER_TOKEN
    const output = all.length > most ? `${all.slice(0, most / 2)}\n[...]\n${all.slice(-most / 2)}` : all
    return { ...done, output, wallTimeSeconds: done.durationMs / 1000 }
  }

  async execCommand(args) {
    const { exitCode, output, wallTimeSeconds } = await this.exec(args)
    return `Wall time: ${wallTimeSeconds.toFixed(4)} seconds\nProcess exited with code ${exitCode}\nOutput:\n${output}`
  }

  async readFile({ path, maxBytes }) {
    return (await this.sandbox.readFile(this.path(path))).subarray(0, maxBytes)
  }

  async listDir({ path }) {
    const entries = await this.sandbox.listFiles(this.path(path))
    return entries.map((entry) => ({ name: entry.name, path: entry.path, type: TYPES[entry.type] ?? 'other' }))
  }

  async pathExists(path) {
    return (await this.sandbox.execute('test', ['-e', this.path(path)])).success
  }

  async directoryExists(path) {
    return (await this.sandbox.execute('test', ['-d', this.path(path)])).success
  }

  async viewImage({ path }) {
    const mediaType = IMAGE_TYPES[path.split('.').pop().toLowerCase()]
    if (!mediaType) throw new UserError(`${path}: not a png, jpeg, gif or webp image`)
    const data = await this.sandbox.readFile(this.path(path))
    return { type: 'image', image: { data: new Uint8Array(data), mediaType } }
  }

  /** What apply_patch calls. */
  createEditor() {
    const { sandbox } = this
    return {
      createFile: async ({ path, diff }) => sandbox.writeFile(this.path(path), applyDiff('', diff, 'create')),
      updateFile: async ({ path, diff, moveTo }) => {
        const text = applyDiff(await sandbox.readFile(this.path(path), 'utf8'), diff)
        await sandbox.writeFile(this.path(moveTo ?? path), text)
        if (moveTo && moveTo !== path) await sandbox.deleteFile(this.path(path))
      },
      deleteFile: async ({ path }) => sandbox.deleteFile(this.path(path))
    }
  }

  async materializeEntry({ path, entry }) {
    const where = this.path(path)
    if (entry.type === 'dir') {
      await this.sandbox.execute('mkdir', ['-p', '--', where])
      for (const [name, child] of Object.entries(entry.children ?? {})) {
        await this.materializeEntry({ path: posix.join(path, name), entry: child })
      }
    } else if (entry.type === 'file') {
      await this.sandbox.writeFile(where, entry.content)
    } else if (entry.type === 'local_file') {
      await this.sandbox.writeFile(where, await fs.readFile(entry.src))
    } else {
      throw new UserError(`${path}: entries of type ${entry.type} are not brought into a cloche sandbox`)
    }
  }

  async applyManifest(manifest) {
    await this.sandbox.execute('mkdir', ['-p', '--', this.root])
    for (const [path, entry] of Object.entries(manifest.entries)) await this.materializeEntry({ path, entry })
  }

  running() {
    return this.sandbox.healthCheck()
  }

  delete() {
    return this.sandbox.destroy()
  }
}

/** config: as createSandbox() takes it. */
export function clocheSandboxClient({ manager = new SandboxManager(), ...config } = {}) {
  return {
    backendId: 'cloche',
    async create(args, given) {
      const { manifest, options } = normalizeSandboxClientCreateArgs(args, given)
      const sandbox = await manager.createSandbox({ ...config, ...options })
      try {
        const session = new ClocheSession(sandbox, manifest, await manifest.resolveEnvironment())
        await session.applyManifest(manifest)
        return session
      } catch (error) {
        await sandbox.destroy()
        throw error
      }
    },
    delete: async (state) => (await manager.getSandbox(state.sandboxId)).destroy(),
    resume: async (state) => new ClocheSession(await manager.getSandbox(state.sandboxId), state.manifest, state.environment)
  }
}
