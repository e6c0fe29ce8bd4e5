// Agents in sandboxes: one, or a swarm of them, each in a sandbox of its own.
import { callerError, ClocheError, connect } from './connection.js'
import { limitsOf } from './sandbox.js'

const TRIES = 3
const KNOWN = ['agentName', 'agentType', 'systemPrompt', 'sandboxConfig', 'autoCleanup', 'captureFiles', 'capturePatterns',
  'env', 'files', 'limits']

const cancelled = () => new ClocheError('the agent was cancelled', { kind: 'cancelled', fault: 'caller' })
const base64 = (data) => Buffer.from(data).toString('base64')

/** What `POST /mcp/agents/TYPE` takes. A config narrows what the agent type says; it cannot replace it. */
function asRequest(task, config) {
  const unknown = Object.keys(config).find((name) => !KNOWN.includes(name))
  if (unknown) throw callerError(`config: unknown name '${unknown}'`, unknown)
  const { limits, env, provider, image, e2b, ...more } = config.sandboxConfig ?? {}
  const [foreign] = Object.keys(more)
  if (foreign) throw callerError(`sandboxConfig: '${foreign}' is the agent type's to say`, foreign)
  return {
    task,
    agent_name: config.agentName,
    system_prompt: config.systemPrompt,
    capture: config.captureFiles === false ? undefined : config.capturePatterns,
    env: env || config.env ? { ...env, ...config.env } : undefined,
    files: config.files && Object.entries(config.files).map(([path, data]) => ({ path, content_base64: base64(data) })),
    ...limitsOf({ ...limits, ...config.limits })
  }
}

function asAgentResult(agentName, answer) {
  const record = answer.record ?? {}
  const files = new Map((record.files ?? []).filter((file) => file.content_base64 != null)
    .map((file) => [file.path, Buffer.from(file.content_base64, 'base64')]))
  return { agentName, output: answer.output ?? null, files, record, success: true, error: null }
}

/** concurrency: at most so many agents at one time. agentType: for configs that name none; `cloche agent ls` lists them. */
export class SandboxedAgentExecutor {
  constructor({ url, token, connection, agentType = 'claude-code', concurrency = 8 } = {}) {
    this.connection = connection ?? connect({ url, token })
    this.agentType = agentType
    this.concurrency = concurrency
    this.running = 0
    this.active = new Map()
    this.waiting = []
    this.numbers = 0
  }

  /** Runs one agent to its end; a failure is thrown. */
  async execute(task, config = {}) {
    const request = asRequest(task, config)
    await this.#turn()
    const id = ++this.numbers
    const context = { id, agentName: config.agentName ?? 'agent', agentType: config.agentType ?? this.agentType }
    const abort = new AbortController()
    this.active.set(id, { context, abort })
    try {
      return asAgentResult(context.agentName, await this.#ask(context.agentType, request, abort.signal))
    } finally {
      this.active.delete(id)
      const next = this.waiting.shift()
      if (next) next.resolve()
      else this.running--
    }
  }

  /** Results in the order of the tasks, { task, config } each; one that fails does not stop the rest. */
  executeParallel(tasks) {
    return Promise.all(tasks.map(({ task, config = {} }) => this.execute(task, config).catch((error) => (
      { agentName: config.agentName ?? 'agent', output: null, files: new Map(), record: {}, success: false, error }))))
  }

  async #turn() {
    if (this.running < this.concurrency) this.running++
    else await new Promise((resolve, reject) => this.waiting.push({ resolve, reject }))
  }

  /** Only what cloche could not do is tried again: an agent that ran may have had effects. */
  async #ask(type, request, signal) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.connection.json('POST', '/mcp/agents/' + encodeURIComponent(type), request, { signal })
      } catch (error) {
        if (signal.aborted) throw cancelled()
        if (error.fault !== 'cloche' || attempt === TRIES) throw error
        await new Promise((resolve) => setTimeout(resolve, 100 * 4 ** (attempt - 1)))
      }
    }
  }

  /** What runs now. */
  listActive() {
    return [...this.active.values()].map(({ context }) => context)
  }

  getContext(id) {
    return this.active.get(id)?.context ?? null
  }

  /** Ends all that runs, and their sandboxes with them; those that wait for a turn never run. How many there were. */
  cancelAll() {
    const waiting = this.waiting.splice(0)
    for (const { reject } of waiting) reject(cancelled())
    for (const { abort } of this.active.values()) abort.abort()
    return waiting.length + this.active.size
  }

  /** The same, and waits for their ends. */
  async cleanupAll() {
    const count = this.cancelAll()
    while (this.active.size) await new Promise((resolve) => setTimeout(resolve, 10))
    return count
  }
}
