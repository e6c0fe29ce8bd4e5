// The way to a daemon: HTTP over TCP or its Unix socket.
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import path from 'node:path'

const SYSTEM_SOCKET = '/run/cloche/cloche.sock'

/** kind, field and fault as in the daemon's answers; fault says whether cloche or the caller is to blame. */
export class ClocheError extends Error {
  constructor(message, { kind = 'system', field = null, fault = 'cloche', retryable = false, status = null } = {}) {
    super(message)
    Object.assign(this, { name: 'ClocheError', kind, field, fault, retryable, status })
  }
}

export const callerError = (message, field) => new ClocheError(message, { kind: 'invalid', field, fault: 'caller' })

function asError(body, status) {
  try {
    const { error } = JSON.parse(body.toString())
    return new ClocheError(error.message, { ...error, status })
  } catch {
    return new ClocheError(`the daemon answered with status ${status}`, { status })
  }
}

async function bytes(answer) {
  const parts = []
  for await (const part of answer) parts.push(part)
  return Buffer.concat(parts)
}

/** The sockets of a daemon of this machine, one's own first. */
function sockets(env) {
  if (env.CLOCHE_RUNTIME_DIR) return [path.join(env.CLOCHE_RUNTIME_DIR, 'cloche.sock')]
  const own = env.XDG_RUNTIME_DIR ? [path.join(env.XDG_RUNTIME_DIR, 'cloche', 'cloche.sock')] : []
  return [...own, SYSTEM_SOCKET]
}

/** url: http://HOST:PORT, https://..., or unix:/path; by default CLOCHE_URL, then the sockets of this machine. */
export function connect({ url = process.env.CLOCHE_URL, token = process.env.CLOCHE_TOKEN } = {}) {
  if (url) return new Connection(url, token)
  const found = sockets(process.env).find((file) => fs.existsSync(file))
  if (!found) {
    throw new ClocheError('no cloche daemon is here; start `cloche serve`, or set CLOCHE_URL', { kind: 'unreachable' })
  }
  return new Connection('unix:' + found, token)
}

export class Connection {
  constructor(url, token) {
    const parsed = /^(unix:|https?:\/\/)/.test(url) ? new URL(url) : null
    if (!parsed) throw callerError(`${url}: try http://HOST:PORT or unix:/path`, 'url')
    this.url = url
    this.token = token
    this.client = parsed.protocol === 'https:' ? https : http
    this.prefix = parsed.protocol === 'unix:' ? '' : parsed.pathname.replace(/\/$/, '')
    this.target = parsed.protocol === 'unix:'
      ? { socketPath: parsed.pathname, host: 'localhost' }
      : { hostname: parsed.hostname.replace(/^\[|\]$/g, ''), port: parsed.port || undefined }
  }

  /** An answer whose body is still to be read; one that is an error is thrown. */
  open(method, where, body, { headers = {}, signal } = {}) {
    const options = { ...this.target, method, path: this.prefix + where, headers: { ...headers }, signal }
    if (this.token) options.headers.authorization = 'Bearer ' + this.token
    if (body !== undefined) options.headers['content-length'] = Buffer.byteLength(body)
    return new Promise((resolve, reject) => {
      const request = this.client.request(options, (answer) => {
        if (answer.statusCode < 400) resolve(answer)
        else bytes(answer).then((data) => reject(asError(data, answer.statusCode)), reject)
      })
      request.on('error', reject).end(body)
    }).catch((error) => this.failed(error, signal))
  }

  failed(error, signal) {
    if (error instanceof ClocheError || signal?.aborted) throw error
    throw new ClocheError(`no answer from ${this.url}: ${error.message}`, { kind: 'unreachable' })
  }

  /** The bytes of an answer. */
  async request(method, where, body, options = {}) {
    const answer = await this.open(method, where, body, options)
    return bytes(answer).catch((error) => this.failed(error, options.signal))
  }

  /** The same for JSON, both ways. */
  async json(method, where, body, options = {}) {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' }
    const data = await this.request(method, where, body === undefined ? undefined : JSON.stringify(body),
      { ...options, headers })
    return data.length ? JSON.parse(data.toString()) : null
  }
}
