#!/usr/bin/env node
/*
 * A kernel for JavaScript: keeps the state of code between executions. The protocol is at the top of
 * guest/python/kernel.py.
 *
 * Node cannot move its own standard streams, so there are two processes: this one, which the protocol
 * is spoken to, and a child that runs the code. The child reads requests from fd 3 (our stdin) and
 * writes answers to fd 4, is told by fd 5 to stop waiting; its fds 1 and 2 are pipes that we turn into
 * messages.
 *
 * Cells are scripts of one global scope. Declarations at the top of a cell become variables of it, so
 * that a cell can be run again; await and import work at the top; the value of a cell is that of its
 * last expression. display(value) shows more. Rich forms: an object's [Symbol.for('Jupyter.display')]()
 * or _toMime() gives {mime: data}; display.html(text), display.markdown, display.svg, ... make such
 * objects.
 */
'use strict'
const fs = require('fs')
const net = require('net')
const path = require('path')
const vm = require('vm')
const util = require('util')
const { spawn } = require('child_process')

const STREAM_MAX = 64 << 10
const TEXT_MAX = 256 << 10
const BINARY_MAX = 6 << 20
const GRACE = 5000 // ms that an interrupted cell has
const MIME_KEYS = {
	'text/plain': 'text',
	'text/html': 'html',
	'text/markdown': 'markdown',
	'image/svg+xml': 'svg',
	'image/png': 'png',
	'image/jpeg': 'jpeg',
	'application/pdf': 'pdf',
	'text/latex': 'latex',
	'application/json': 'json',
	'application/javascript': 'javascript',
}
const BINARY = new Set(['png', 'jpeg', 'pdf'])

const toLine = (message) =>
	JSON.stringify(message).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')) + '\n'

// ---- the outer process ----------------------------------------------------------------------------

/*
 * Interrupts. A script that runs is ended by SIGINT (breakOnSigint), one that waits by a word on fd 5:
 * a signal in the moment between the two would be lost, or kill the child. So the child says in which
 * phase it is, and a signal is sent only if the script has been running for a while. Code that runs on
 * after an await can be ended by neither; then the child is replaced, and its state is lost.
 */
class Outer {
	constructor() {
		this.count = 0
		this.send = (line) => process.stdout.write(line)
		process.on('SIGINT', () => this.running && this.interrupt(this.count, Date.now() + GRACE))
		for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => this.child.kill('SIGKILL'))
		this.start()
	}

	start() {
		const child = spawn(process.execPath, [...process.execArgv, __filename, '--inner', String(this.count)], {
			stdio: ['ignore', 'pipe', 'pipe', 0, 'pipe', 'pipe'],
			detached: true,
		})
		let rest = ''
		this.child = child
		this.running = false
		this.id = null
		for (const name of ['stdout', 'stderr']) {
			child[name].setEncoding('utf8')
			child[name].on('data', (text) => {
				for (let i = 0; i < text.length; i += STREAM_MAX)
					this.send(toLine({ id: this.id, type: name, text: text.slice(i, i + STREAM_MAX) }))
			})
		}
		child.stdio[5].on('error', () => {})
		child.stdio[4].setEncoding('utf8')
		child.stdio[4].on('data', (text) => {
			const lines = (rest + text).split('\n')
			rest = lines.pop()
			lines.forEach((line) => this.pass(line))
		})
		child.on('close', (code) => this.ended(code))
	}

	pass(line) {
		const message = parse(line)
		if (message.type === 'phase') {
			this.phase = { name: message.name, since: Date.now() }
			return
		}
		if (message.type === 'started') {
			this.id = message.id ?? null
			this.count = message.execution_count
			this.phase = null
			this.running = true
		}
		// What the cell's own child processes printed is on its way; let it pass.
		if (message.type === 'end') {
			this.running = false
			setTimeout(() => this.send(line + '\n'), 5)
		} else if (message.type !== 'ready' || !this.known) {
			this.known = true
			this.send(line + '\n')
		}
	}

	/* Again and again until this very cell has ended; a signal only now and then. */
	interrupt(cell, deadline, quiet = 0) {
		const now = Date.now()
		const since = this.phase ? now - this.phase.since : 0
		if (!this.running || this.count !== cell) return
		if (now > deadline) return void this.child.kill('SIGKILL')
		if (this.phase?.name === 'waits') this.child.stdio[5].write('interrupt\n')
		else if (since > 100 && now >= quiet) {
			this.child.kill('SIGINT')
			quiet = now + 2000
		}
		setTimeout(() => this.interrupt(cell, deadline, quiet), 60)
	}

	ended(code) {
		if (!this.running) process.exit(code === null ? 1 : code)
		const text = 'the interpreter ended; its state is lost'
		this.send(toLine({ id: this.id, type: 'error', name: 'KernelEnded', value: text, traceback: text }))
		this.send(toLine({ id: this.id, type: 'end', status: 'error', execution_count: this.count }))
		this.start()
	}
}

function parse(line) {
	try {
		return JSON.parse(line)
	} catch {
		return {}
	}
}

// ---- cells ----------------------------------------------------------------------------------------

/* Where the top level of a cell is: 1 for each character outside of brackets, strings, comments. */
function topLevel(code) {
	const top = new Uint8Array(code.length)
	const templates = []
	let depth = 0
	let i = 0
	const skipTo = (pattern) => {
		pattern.lastIndex = i
		i = pattern.test(code) ? pattern.lastIndex : code.length
	}
	const skipTemplate = () => {
		while (i < code.length) {
			if (code[i] === '\\') i += 2
			else if (code[i] === '`') return void i++
			else if (code.startsWith('${', i)) {
				templates.push(depth++)
				return void (i += 2)
			} else i++
		}
	}
	while (i < code.length) {
		const c = code[i]
		if (code.startsWith('//', i)) skipTo(/\n|$/g)
		else if (code.startsWith('/*', i)) skipTo(/\*\//g)
		else if (c === '"') skipTo(/"(?:[^"\\\n]|\\[^])*"?/g)
		else if (c === "'") skipTo(/'(?:[^'\\\n]|\\[^])*'?/g)
		else if (c === '`') i++, skipTemplate()
		else if (c === '/' && /(?:^|[=(,:;!&|?{}\[+\n])\s*$/.test(code.slice(Math.max(0, i - 20), i)))
			skipTo(/\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/?[a-z]*/g)
		else if ('([{'.includes(c)) depth++, i++
		else if (')]}'.includes(c)) {
			depth--
			i++
			if (c === '}' && templates[templates.length - 1] === depth) templates.pop(), skipTemplate()
		} else top[i++] = depth === 0 ? 1 : 0
	}
	return top
}

function importCode(what, from) {
	const parts = []
	const named = /\{([^}]*)\}/.exec(what)
	const all = /\*\s+as\s+([\w$]+)/.exec(what)
	const plain = /^\s*([\w$]+)\s*(?:,|$)/.exec(what)
	if (all) parts.push(`${all[1]} = __module`)
	if (plain) parts.push(`${plain[1]} = __module.default`)
	if (named) parts.push(`{${named[1].replace(/\bas\b/g, ':')}} = __module`)
	return `var __module = await import(${from})${parts.length ? '; var ' + parts.join(', ') : ''}`
}

/* Declarations at the top of a cell as variables; also their names, for a cell that has to wait. */
function rewrite(code) {
	code = code.replace(/(^|;)[ \t]*import\s+(?:([^'"();]+?)\s+from\s+)?(['"][^'"\n]+['"])[ \t]*(?=;|$)/gm, (_all, start, what, from) =>
		start + (what ? importCode(what, from) : `await import(${from})`)
	)
	const top = topLevel(code)
	const names = new Set()
	const out = code.replace(/\b(const|let|var|class|function\*?|async function\*?)\s+([\w$]+|[{[][^=]*[}\]])/g, (all, kind, name, at) => {
		const before = code.slice(0, at).replace(/\/\*[^]*?\*\/|\/\/.*$/gm, '').trimEnd()
		if (!top[at] || (before && !/[;}\n)]$/.test(before) && !/\n\s*$/.test(code.slice(0, at)))) return all
		if (!/^[{[]/.test(name)) names.add(name)
		else for (const part of name.matchAll(/([\w$]+)\s*(?=[,}\]=]|$)/g)) names.add(part[1])
		if (kind === 'const' || kind === 'let') return `var ${name}`
		return kind === 'class' ? `var ${name} = class ${name}` : all
	})
	return { code: out, names: [...names].filter((name) => /^[A-Za-z_$][\w$]*$/.test(name)) }
}

function compiles(code) {
	try {
		new vm.Script(code)
		return true
	} catch {
		return false
	}
}

/* A cell with await at its top: an async function that leaves its variables in the global scope. */
function wrap({ code, names }) {
	const lines = code.split('\n')
	const keep = names.map((name) => `try { globalThis.${name} = ${name} } catch {}`).join(';')
	const whole = (body) => `(async () => { try {\n${body}\n} finally { ${keep} } })()`

	for (let i = lines.length - 1; i >= 0; i--) {
		const tail = lines.slice(i).join('\n').replace(/;\s*$/, '')
		const semicolon = tail.lastIndexOf(';')
		const tries = [[lines.slice(0, i).join('\n'), tail]]
		if (semicolon >= 0)
			tries.push([lines.slice(0, i).join('\n') + '\n' + tail.slice(0, semicolon + 1), tail.slice(semicolon + 1)])
		for (const [head, last] of tries)
			if (last.trim() && compiles(`(async () => (${last}\n))`) && compiles(whole(head)))
				return whole(`${head}\nreturn (${last}\n)`)
	}
	return whole(code)
}

// ---- results --------------------------------------------------------------------------------------

const cut = (text) =>
	text.length <= TEXT_MAX ? text : text.slice(0, TEXT_MAX) + `\n... [truncated, ${text.length} characters in all]`

function bundleOf(value) {
	for (const name of [Symbol.for('Jupyter.display'), '_toMime']) {
		try {
			if (value && typeof value[name] === 'function') return value[name]()
		} catch {}
	}
	return {}
}

function jsonOf(value) {
	if (value === null || typeof value !== 'object') return undefined
	const proto = Object.getPrototypeOf(value)
	if (!Array.isArray(value) && proto !== Object.prototype && proto !== null) return undefined
	try {
		const text = JSON.stringify(value)
		return text.length <= TEXT_MAX ? JSON.parse(text) : undefined
	} catch {
		return undefined
	}
}

function collect(value) {
	const forms = {}
	const extra = {}
	for (const [mime, data] of Object.entries(bundleOf(value) || {})) {
		const key = MIME_KEYS[mime]
		let form = Buffer.isBuffer(data) || data instanceof Uint8Array ? Buffer.from(data).toString('base64') : data
		if (typeof form === 'string') form = BINARY.has(key) ? (form.length <= BINARY_MAX ? form : undefined) : cut(form)
		if (key) forms[key] = form
		else extra[mime] = form
	}
	if (forms.text === undefined) forms.text = cut(typeof value === 'string' ? value : util.inspect(value))
	if (forms.json === undefined && Object.keys(forms).length === 1) forms.json = jsonOf(value)
	if (Object.keys(extra).length) forms.extra = extra
	return forms
}

// ---- the inner process ----------------------------------------------------------------------------

class Kernel {
	constructor(count) {
		this.count = count
		this.id = null
		this.interrupt = null
		this.queue = Promise.resolve()
	}

	write(line) {
		let data = Buffer.from(line)
		while (data.length) {
			try {
				data = data.subarray(fs.writeSync(4, data))
			} catch (error) {
				if (error.code !== 'EAGAIN') process.exit(1)
				Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
			}
		}
	}

	send(type, fields) {
		this.write(toLine({ id: this.id, type, ...fields }))
	}

	print(name, chunk) {
		const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8')
		for (let i = 0; i < text.length; i += STREAM_MAX) this.send(name, { text: text.slice(i, i + STREAM_MAX) })
	}

	prepare() {
		for (const name of ['stdout', 'stderr'])
			process[name].write = (chunk, encoding, done) => {
				this.print(name, chunk)
				const callback = typeof encoding === 'function' ? encoding : done
				if (callback) process.nextTick(callback)
				return true
			}
		const display = (...values) => values.forEach((value) => this.show(value, false))
		for (const [mime, key] of Object.entries(MIME_KEYS))
			display[key] = (data) => display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/plain': '', [mime]: data }) })
		const require = require_('module').createRequire(path.join(process.cwd(), 'cell.js'))
		Object.assign(globalThis, { display, require, module: { exports: {} }, exports: {} })
		for (const event of ['uncaughtException', 'unhandledRejection'])
			process.on(event, (error) => this.print('stderr', `${util.inspect(error)}\n`))
		process.removeAllListeners('warning')
		process.on('warning', (warning) => {
			if (warning.name !== 'ExperimentalWarning') this.print('stderr', `${warning.name}: ${warning.message}\n`)
		})
		process.on('SIGINT', () => {})
		openInput(5).on('data', () => this.interrupt && this.interrupt())
		process.argv.splice(1)
	}

	show(value, isMain) {
		this.send('result', { is_main_result: isMain, ...collect(value) })
	}

	report(error) {
		const isError = error && typeof error === 'object' && 'message' in error
		const stack = isError && typeof error.stack === 'string' ? error.stack : util.inspect(error)
		const own = stack.split('\n').filter((line) => !line.includes(__filename) && !/\bnode:(vm|internal)/.test(line))
		this.send('error', {
			name: String((isError && error.name) || 'Error'),
			value: cut(String(isError ? error.message : util.inspect(error))),
			traceback: cut(own.join('\n')),
		})
	}

	/* The value of a cell; runs it in a way that an interrupt ends. */
	async evaluate(source) {
		const cell = rewrite(source)
		let code = cell.code
		if (!compiles(code) && /\bawait\b/.test(code)) code = wrap(cell)
		const options = { filename: `<cell ${this.count}>`, breakOnSigint: true }
		if (vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER)
			options.importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER
		const stopped = new Promise((_, reject) => {
			this.interrupt = () => reject(interrupted())
		})
		const alive = setInterval(() => {}, 1 << 30)
		try {
			this.send('phase', { name: 'runs' })
			const value = vm.runInThisContext(code, options)
			this.send('phase', { name: 'waits' })
			return await Promise.race([value, stopped])
		} catch (error) {
			throw error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interrupted() : error
		} finally {
			stopped.catch(() => {})
			clearInterval(alive)
			this.interrupt = null
		}
	}

	enter(request) {
		const saved = Object.keys(request.env || {}).map((name) => [name, process.env[name]])
		Object.assign(process.env, request.env || {})
		if (request.cwd) process.chdir(request.cwd)
		return saved
	}

	async execute(request) {
		let status = 'ok'
		let saved = []
		this.id = request.id ?? null
		this.count++
		this.send('started', { execution_count: this.count })
		try {
			saved = this.enter(request)
			const value = await this.evaluate(request.code)
			if (value !== undefined) this.show(value, true)
		} catch (error) {
			status = 'error'
			this.report(error)
		}
		for (const [name, value] of saved) value === undefined ? delete process.env[name] : (process.env[name] = value)
		this.send('end', { status, execution_count: this.count })
		this.id = null
	}

	answer(line) {
		let request
		try {
			request = JSON.parse(line)
		} catch {}
		const problem = problemOf(request)
		const direct = (type, fields) => this.write(toLine({ id: request?.id ?? null, type, ...fields }))
		if (problem) direct('bad_request', { message: problem })
		else if (request.op === 'shutdown') process.exit(0)
		else if (request.op === 'ping') direct('pong', {})
		else return this.execute(request)
	}

	serve() {
		const input = require_('readline').createInterface({ input: openInput(3), terminal: false })
		this.send('ready', { protocol: 1, language: 'javascript', version: process.versions.node, pid: process.ppid })
		input.on('line', (line) => {
			this.queue = this.queue.then(() => this.answer(line))
		})
		input.on('close', () => {
			this.queue.then(() => process.exit(0))
		})
	}
}

/* A thread that waits in read() would keep process.exit() from ending the process. */
function openInput(fd) {
	try {
		return new net.Socket({ fd, readable: true, writable: false })
	} catch {
		return fs.createReadStream(null, { fd }) // a file
	}
}

function interrupted() {
	const error = new Error('')
	error.name = 'KeyboardInterrupt'
	error.stack = 'KeyboardInterrupt'
	return error
}

function problemOf(request) {
	if (!request || typeof request !== 'object' || Array.isArray(request)) return 'a request is a JSON object'
	if (!['execute', 'ping', 'shutdown'].includes(request.op)) return 'op: one of execute, ping, shutdown'
	if (request.op === 'execute' && typeof request.code !== 'string') return 'code: must be a string'
	const env = request.env ?? {}
	if (typeof env !== 'object' || Object.values(env).some((value) => typeof value !== 'string'))
		return 'env: must map names to strings'
	if (typeof (request.cwd ?? '') !== 'string') return 'cwd: must be a string'
	return null
}

const require_ = require
if (process.argv[2] === '--inner') {
	const kernel = new Kernel(Number(process.argv[3]))
	kernel.prepare()
	kernel.serve()
} else {
	new Outer()
}
