// deepagents for JavaScript: the agent's shell and files live in a cloche sandbox.
//
//     import { createDeepAgent } from 'deepagents'
//     import { clocheBackend } from './deepagents.mjs'
//     const agent = createDeepAgent({ backend: await clocheBackend({ limits: { memoryMB: 1024 } }) })
import { BaseSandbox } from 'deepagents'
import { SandboxManager } from 'cloche'

const ERRORS = { not_found: 'file_not_found', denied: 'permission_denied' }

/** One file that fails does not fail the others; the protocol's paths are absolute. */
async function attempt(path, action) {
  if (!path.startsWith('/')) return { path, content: null, error: 'invalid_path' }
  try {
    return { path, content: await action() ?? null, error: null }
  } catch (error) {
    const isDirectory = error.message.includes('Is a directory')
    return { path, content: null, error: isDirectory ? 'is_directory' : ERRORS[error.kind] ?? 'invalid_path' }
  }
}

/** ls, read, write, edit, grep and glob are built on these three by the base class. */
class ClocheBackend extends BaseSandbox {
  constructor(sandbox) {
    super()
    this.sandbox = sandbox
    this.id = sandbox.id
  }

  async execute(command) {
    try {
      const { stdout, stderr, exitCode, record } = await this.sandbox.execute(command)
      return { output: stdout + stderr, exitCode, truncated: Boolean(record.stdout_truncated || record.stderr_truncated) }
    } catch (error) {
      return { output: error.message, exitCode: 1, truncated: false }
    }
  }

  async uploadFiles(files) {
    const done = await Promise.all(files.map(([path, data]) => attempt(path, () => this.sandbox.writeFile(path, data))))
    return done.map(({ path, error }) => ({ path, error }))
  }

  downloadFiles(paths) {
    return Promise.all(paths.map((path) => attempt(path, () => this.sandbox.readFile(path))))
  }

  destroy() {
    return this.sandbox.destroy()
  }
}

export async function clocheBackend(config, manager = new SandboxManager()) {
  return new ClocheBackend(await manager.createSandbox(config))
}
