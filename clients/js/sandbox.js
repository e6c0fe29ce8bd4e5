// Sandboxes that live on between commands, and single runs.
import { callerError, ClocheError, connect } from './connection.js'
import { Process } from './process.js'

const MB = 1024 * 1024

/** Limits by the names of this client, and what they are called in a request. */
const LIMITS = {
  memoryMB: (n) => ({ memory: `${n}M` }),
  cpuCores: (n) => ({ cpus: n }),
  diskMB: (n) => ({ disk: `${n}M` }),
  networkMbps: (n) => ({ net_rate: `${n}Mbit` }),
  timeoutSeconds: (n) => ({ timeout: `${Math.round(n * 1000)}ms` }),
  pids: (n) => ({ pids: n }),
  lifeSeconds: (n) => ({ ttl: `${n}s` })
}

/** Other settings: none, isolated and bridge are the names of Docker's modes. */
const NETWORKS = { none: 'none', isolated: 'isolated', bridge: 'public', public: 'public', allow: 'allow' }

export function limitsOf(limits = {}) {
  return Object.entries(limits).reduce((fields, [name, value]) => {
    if (!LIMITS[name]) throw callerError(`limits: unknown name '${name}'`, name)
    return value == null ? fields : { ...fields, ...LIMITS[name](value) }
  }, {})
}

/** A config of this client as the body of POST /v1/sandboxes. `options` go there as they are. */
function asRequest({ provider, image, limits, networkMode, allow, env, workdir, metadata, volumes, snapshot, user, e2b,
  options, ...unknown }) {
  const [name] = Object.keys(unknown)
  if (name) throw callerError(`config: unknown name '${name}'`, name)
  if (networkMode && !NETWORKS[networkMode]) throw callerError(`networkMode: '${networkMode}' is not known`, 'networkMode')
  const request = { ...limitsOf(limits), image: image ?? e2b?.templateId, env, workdir, metadata, volumes, snapshot, user,
    allow, net: networkMode && NETWORKS[networkMode], ...options }
  // A bound for a network that is not there bounds nothing.
  if (networkMode === 'none') delete request.net_rate
  // Docker is the usual name for "here": that is what a daemon does anyway.
  if (provider && provider !== 'docker') request.provider = provider
  return request
}

/** How a command ended: the record of cloche; its own names are in `record`. */
export function asResult(record) {
  const exitCode = record.exit_code ?? (record.timed_out ? 124 : 128 + (record.signal || 9))
  return { stdout: record.stdout ?? '', stderr: record.stderr ?? '', exitCode, success: exitCode === 0,
    timedOut: Boolean(record.timed_out), oomKilled: Boolean(record.oom_killed), durationMs: record.duration_ms,
    denials: record.denials ?? [], layers: record.layers ?? {}, record }
}

const wordsOf = (command, args) => Array.isArray(command) ? { cmd: [...command, ...args ?? []] }
  : args ? { cmd: [command, ...args] } : { shell: command }

const asCommand = (command, args, { env, cwd, user, timeoutSeconds }) => (
  { ...wordsOf(command, args), env, cwd, user, ...limitsOf({ timeoutSeconds }) })

/** One run in a sandbox of its own: run({ code: 'print(42)' }), run({ cmd: ['ls'] }), with any field of POST /v1/run. */
export async function run(request, { connection = connect(), limits, signal } = {}) {
  return asResult(await connection.json('POST', '/v1/run', { ...limitsOf(limits), ...request }, { signal }))
}

export class Sandbox {
  constructor(manager, info) {
    this.manager = manager
    this.id = info.id
    this.info = info
  }

  path(action = '', query = {}) {
    const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined)).toString()
    return `/v1/sandboxes/${encodeURIComponent(this.id)}${action}${text && '?' + text}`
  }

  json(method, action, body, { query, signal } = {}) {
    return this.manager.connection.json(method, this.path(action, query), body, { signal })
  }

  /** A program and its arguments, or without them a line for a shell. */
  async execute(command, args, { stdin, signal, ...options } = {}) {
    const request = asCommand(command, args, options)
    if (stdin !== undefined) request.stdin_base64 = Buffer.from(stdin).toString('base64')
    return asResult(await this.json('POST', '/exec', request, { signal }))
  }

  /** The same with streams, at once: stdin, stdout, stderr, kill(), wait(), and the event 'exit'. */
  spawn(command, args, { signal, ...options } = {}) {
    return new Process(this, asCommand(command, args, options), signal)
  }

  async writeFile(path, content) {
    await this.manager.connection.request('PUT', this.path('/files', { path }), Buffer.from(content),
      { headers: { 'content-type': 'application/octet-stream' } })
  }

  /** As a Buffer; with an encoding as a string. */
  async readFile(path, encoding) {
    const data = await this.manager.connection.request('GET', this.path('/files', { path }))
    return encoding ? data.toString(encoding) : data
  }

  async listFiles(path = '.', depth = 1) {
    return (await this.json('GET', '/files', undefined, { query: { path, list: 1, depth } })).entries
  }

  async deleteFile(path, { recursive = false } = {}) {
    await this.json('DELETE', '/files', undefined, { query: { path, recursive: recursive ? 1 : undefined } })
  }

  /** A sandbox runs from its creation on: this is for one that was stopped. */
  async start() {
    const { state } = await this.refresh()
    if (state !== 'running') this.info = await this.json('POST', state === 'paused' ? '/resume' : '/start', {})
  }

  async stop() {
    this.info = await this.json('POST', '/stop', {})
  }

  async pause() {
    this.info = await this.json('POST', '/pause', {})
  }

  /** The snapshot's row; `manager.createSandbox({ snapshot: row.id })` starts from its files. */
  snapshot(name) {
    return this.json('POST', '/snapshot', { name })
  }

  async destroy() {
    try {
      await this.json('DELETE', '')
    } catch (error) {
      if (error.kind !== 'not_found') throw error
    }
  }

  async refresh() {
    this.info = await this.json('GET', '')
    return this.info
  }

  async getStats() {
    return asStats(await this.json('GET', '/stats'))
  }

  async healthCheck() {
    try {
      return (await this.json('GET', '/health')).healthy
    } catch (error) {
      if (error.kind === 'not_found') return false
      throw error
    }
  }
}

function asStats(row) {
  return { memoryUsageMB: row.memory_bytes / MB, memoryLimitMB: row.memory_limit_bytes / MB, cpuPercent: row.cpu_percent,
    diskUsageMB: (row.disk_bytes ?? 0) / MB, networkRxMB: row.net_rx_bytes / MB, networkTxMB: row.net_tx_bytes / MB,
    processes: row.pids }
}

/** config holds for each sandbox that does not say otherwise; url and token: see connect(). */
export class SandboxManager {
  constructor({ url, token, connection, ...config } = {}) {
    this.connection = connection ?? connect({ url, token })
    this.config = config
    asRequest(config)
  }

  async createSandbox(config = {}) {
    const whole = { ...this.config, ...config, limits: { ...this.config.limits, ...config.limits } }
    return new Sandbox(this, await this.connection.json('POST', '/v1/sandboxes', asRequest(whole)))
  }

  async getSandbox(id) {
    const info = await this.connection.json('GET', `/v1/sandboxes/${encodeURIComponent(id)}`)
    if (info.state === 'destroyed') throw new ClocheError(`sandbox ${id} is destroyed`, { kind: 'not_found', fault: 'caller' })
    return new Sandbox(this, info)
  }

  /** All of this token's that are not destroyed. */
  async listSandboxes() {
    const found = []
    let cursor
    do {
      const answer = await this.connection.json('GET', '/v1/sandboxes' + (cursor ? '?cursor=' + encodeURIComponent(cursor) : ''))
      found.push(...answer.sandboxes.filter((row) => row.state !== 'destroyed').map((row) => new Sandbox(this, row)))
      cursor = answer.cursor
    } while (cursor)
    return found
  }

  async destroySandbox(id) {
    await (await this.getSandbox(id)).destroy()
  }

  /** How many there were. */
  async destroyAll() {
    const all = await this.listSandboxes()
    await Promise.all(all.map((sandbox) => sandbox.destroy()))
    return all.length
  }

  /** getStats() of each that runs, by id. */
  async getAllStats() {
    const { sandboxes } = await this.connection.json('GET', '/v1/stats')
    return new Map(sandboxes.map((row) => [row.id, asStats(row)]))
  }

  /** healthCheck() of each, by id. */
  async healthCheckAll() {
    const all = await this.listSandboxes()
    return new Map(await Promise.all(all.map(async (sandbox) => [sandbox.id, await sandbox.healthCheck()])))
  }
}
