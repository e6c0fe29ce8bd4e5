// A command whose input and output are streams, as a ChildProcess of Node.js has them.
import { EventEmitter } from 'node:events'
import { PassThrough, Writable } from 'node:stream'

const INPUT_MAX = 1 << 20

/** Pairs of name and data of a stream of events. */
async function* events(answer) {
  let rest = ''
  let name = null
  answer.setEncoding('utf8')
  for await (const part of answer) {
    const lines = (rest + part).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      if (line.startsWith('event: ')) name = line.slice(7)
      else if (line.startsWith('data: ')) yield [name, JSON.parse(line.slice(6))]
    }
  }
}

/** Emits 'exit' (code, signal) once, or 'error' if the command could not be started or followed to its end. Ends the command
 * when it is killed or its signal is aborted. */
export class Process extends EventEmitter {
  constructor(sandbox, request, signal) {
    super()
    Object.assign(this, { sandbox, pid: undefined, exitCode: null, signalCode: null, killed: false, result: null })
    this.abort = new AbortController()
    signal?.addEventListener('abort', () => this.kill('SIGKILL'), { once: true })
    this.stdout = new PassThrough()
    this.stderr = new PassThrough()
    this.started = new Promise((resolve) => { this.begun = resolve })
    this.stdin = new Writable({
      write: (data, _encoding, done) => this.#send(data).then(() => done(), done),
      final: (done) => this.#act('/close_stdin', {}).then(() => done(), done)
    })
    this.stdin.on('error', () => {}) // The command's end says more than that it does not read any more.
    this.#follow(request, signal).catch((error) => this.#fail(error))
  }

  async #follow(request, signal) {
    if (signal?.aborted) throw signal.reason
    const answer = await this.sandbox.manager.connection.open('POST', this.sandbox.path('/exec'),
      JSON.stringify({ ...request, interactive: true }), { signal: this.abort.signal,
        headers: { accept: 'text/event-stream', 'content-type': 'application/json' } })
    for await (const [name, data] of events(answer)) {
      if (name === 'start') this.#start(data)
      else if (name === 'exit') this.#end(data)
      else if (name === 'error') throw new Error(data.error?.message ?? data.message ?? 'the command was lost')
      else if (this[name] instanceof PassThrough) await this.#give(this[name], data)
    }
    if (!this.result) throw new Error('the connection to the daemon was lost')
  }

  #start({ id, pid }) {
    this.pid = pid
    this.begun(id)
  }

  /** Reads no faster than the output is used. */
  async #give(stream, { text, base64 }) {
    if (stream.write(base64 === undefined ? text : Buffer.from(base64, 'base64')) || stream.destroyed) return
    await new Promise((resolve) => {
      const go = () => resolve(stream.off('drain', go).off('close', go))
      stream.on('drain', go).on('close', go)
    })
  }

  #end(result) {
    this.result = result
    this.exitCode = result.exit_code ?? (result.timed_out ? 124 : null)
    this.signalCode = result.signal ?? null
    this.#close()
    this.emit('exit', this.exitCode, this.signalCode)
  }

  #fail(error) {
    this.#close()
    if (this.killed) this.emit('exit', this.exitCode ?? null, this.signalCode ?? 9)
    else this.emit('error', error)
  }

  #close() {
    this.begun(null)
    this.stdout.end()
    this.stderr.end()
    this.stdin.destroy()
  }

  async #act(action, body) {
    const id = await this.started
    if (id !== null && !this.result) await this.sandbox.json('POST', `/execs/${id}${action}`, body)
  }

  async #send(data) {
    for (let at = 0; at < data.length; at += INPUT_MAX) {
      await this.#act('/stdin', { base64: data.subarray(at, at + INPUT_MAX).toString('base64') })
    }
  }

  /** Sends a signal; true, as there was something to send it to. SIGKILL ends the command and all that it started. */
  kill(signal = 'SIGTERM') {
    if (this.result) return false
    this.killed = true
    if (signal === 'SIGKILL') this.abort.abort()
    else this.#act('/signal', { signal: String(signal).replace(/^SIG/, '') }).catch(() => this.abort.abort())
    return true
  }

  /** The exit code, 128 and the signal's number if a signal ended it. */
  wait() {
    const code = () => this.exitCode ?? 128 + (this.signalCode ?? 9)
    if (this.result) return Promise.resolve(code())
    return new Promise((resolve, reject) => this.once('exit', () => resolve(code())).once('error', reject))
  }
}
