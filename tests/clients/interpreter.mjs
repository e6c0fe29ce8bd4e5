// The unmodified npm package @e2b/code-interpreter against our door.
import { Sandbox, NotFoundError, SandboxError, TimeoutError } from '@e2b/code-interpreter'
import { equal, finish, match, ok, rejects, skip, test, until } from './check.mjs'

const box = await Sandbox.create({ timeoutMs: 600_000, envs: { FROM_CREATE: 'yes' } })
const has = async (program) => (await box.commands.run(`command -v ${program} || true`)).stdout !== ''
const hasNode = await has('node')
const hasPlots = (await box.commands.run('python3 -c "import matplotlib" 2>/dev/null && echo yes || true')).stdout !== ''

await test('python keeps its state', async () => {
  const first = await box.runCode('x = 20; x + 22')
  equal(first.text, '42')
  equal(first.results[0].isMainResult, true)
  equal(first.executionCount, 1)
  equal(first.logs, { stdout: [], stderr: [] })
  equal(first.error, undefined)
  const second = await box.runCode('x')
  equal([second.text, second.executionCount], ['20', 2])
  equal((await box.runCode('y = 1')).text, undefined)
  equal((await box.runCode('import os; os.getcwd()')).text, '/home/user')
  equal((await box.runCode('os.environ["FROM_CREATE"]')).text, 'yes')
  equal((await box.runCode('os.environ["E2B_SANDBOX_ID"]')).text, box.sandboxId)
})

await test('output', async () => {
  const r = await box.runCode('import sys\nprint("hello")\nprint("oops", file=sys.stderr)')
  equal(r.logs.stdout.join(''), 'hello\n')
  equal(r.logs.stderr.join(''), 'oops\n')
  const seen = []
  const long = await box.runCode('import time\nfor i in range(5):\n    print(i, flush=True)\n    time.sleep(0.05)', { onStdout: (line) => { seen.push(line.line) } })
  equal(seen.join(''), '0\n1\n2\n3\n4\n', 'streamed')
  equal(long.logs.stdout.join(''), seen.join(''))
  equal((await box.runCode('print("é ☃ 🙂")')).logs.stdout.join(''), 'é ☃ 🙂\n')
  equal((await box.runCode('print("x" * 1000000)')).logs.stdout.join('').length, 1_000_001)
  equal((await box.runCode('!echo from a shell')).logs.stdout.join(''), 'from a shell\n')
  equal((await box.runCode('  a = 1\n  a + 1')).text, '2', 'indented cells')
})

await test('errors', async () => {
  const r = await box.runCode('print("before")\n1/0')
  equal(r.error.name, 'ZeroDivisionError')
  equal(r.error.value, 'division by zero')
  match(r.error.traceback, /ZeroDivisionError/, 'traceback')
  equal(r.logs.stdout.join(''), 'before\n')
  const syntax = await box.runCode('def (')
  equal(syntax.error.name, 'SyntaxError')
  let told
  await box.runCode('raise ValueError("told")', { onError: (error) => { told = error } })
  equal([told.name, told.value], ['ValueError', 'told'])
  equal((await box.runCode('x')).text, '20', 'the state survives')
})

await test('rich results', async () => {
  const show = async (method, value) => (await box.runCode(`class R:\n    def ${method}(self): return ${value}\nR()`)).results[0]
  equal((await show('_repr_html_', '"<b>h</b>"')).html, '<b>h</b>')
  equal((await show('_repr_markdown_', '"# m"')).markdown, '# m')
  equal((await show('_repr_svg_', '"<svg/>"')).svg, '<svg/>')
  equal((await show('_repr_png_', 'b"png"')).png, Buffer.from('png').toString('base64'))
  equal((await show('_repr_jpeg_', 'b"jpeg"')).jpeg, Buffer.from('jpeg').toString('base64'))
  equal((await show('_repr_pdf_', 'b"pdf"')).pdf, Buffer.from('pdf').toString('base64'))
  equal((await show('_repr_latex_', '"$x$"')).latex, '$x$')
  equal((await show('_repr_json_', '{"a": 1}')).json, { a: 1 })
  equal((await show('_repr_javascript_', '"alert(1)"')).javascript, 'alert(1)')
  const shown = []
  const both = await box.runCode('display("shown")\n"last"', { onResult: (result) => { shown.push(result.isMainResult) } })
  equal(shown, [false, true])
  equal(both.text, 'last')
  equal(both.results.length, 2)
})

await test('figures', async () => {
  if (!hasPlots) skip('matplotlib is not installed')
  const r = await box.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nplt.title("t")\nplt.xlabel("x")\nplt.show()')
  equal(r.error, undefined)
  match(r.results[0].png, /^iVBOR/, 'a png')
  equal([r.results[0].chart.type, r.results[0].chart.title], ['line', 't'])
})

await test('cells as in a notebook', async () => {
  match((await box.runCode('%timeit -n 2 -r 1 1 + 1')).logs.stdout.join(''), /1 run, 2 loops each/)
  match((await box.runCode('len?')).logs.stdout.join(''), /number of items/)
  const seven = await box.runCode('7')
  equal((await box.runCode(`Out[${seven.executionCount}] + _`)).text, '14')
  equal((await box.runCode('%%capture kept\nprint("inside")')).logs.stdout, [])
  equal((await box.runCode('kept.stdout')).text, 'inside\\n')
  await rejects(box.createCodeContext({ cwd: '/nowhere' }), SandboxError, /400/)
})

await test('environment of one run', async () => {
  equal((await box.runCode('os.environ.get("ONCE")', { envs: { ONCE: 'here' } })).text, 'here')
  equal((await box.runCode('print(os.environ.get("ONCE"))')).logs.stdout.join(''), 'None\n')
  equal((await box.runCode('os.environ["FROM_CREATE"]', { envs: { FROM_CREATE: 'no' } })).text, 'no')
  equal((await box.runCode('os.environ["FROM_CREATE"]')).text, 'yes')
})

await test('contexts', async () => {
  const listed = await box.listCodeContexts()
  equal(listed.slice(0, 2).map((c) => [c.language, c.cwd]), [['python', '/home/user'], ['javascript', '/home/user']])
  const context = await box.createCodeContext({ cwd: '/tmp' })
  equal([context.language, context.cwd], ['python', '/tmp'])
  ok((await box.listCodeContexts()).some((c) => c.id === context.id), 'listed')
  equal((await box.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  equal((await box.runCode('x', { context })).error.name, 'NameError', 'a state of its own')
  await box.runCode('mine = 1', { context })
  equal((await box.runCode('mine', { context })).text, '1')
  equal((await box.runCode('"mine" in globals()')).text, 'False')
  await box.restartCodeContext(context)
  equal((await box.runCode('mine', { context })).error.name, 'NameError', 'fresh after a restart')
  await box.removeCodeContext(context.id)
  equal((await box.listCodeContexts()).some((c) => c.id === context.id), false)
  await rejects(box.runCode('1', { context }), NotFoundError, new RegExp(`Context ${context.id} not found`))
  await rejects(box.removeCodeContext(context.id), NotFoundError)
  await rejects(box.restartCodeContext('nonsense'), NotFoundError)
  await rejects(box.createCodeContext({ language: 'cobol' }), SandboxError)
})

await test('one at a time in a context', async () => {
  const runs = await Promise.all(Array.from({ length: 5 }, (_, i) => box.runCode(`import time; time.sleep(0.05); order = globals().get("order", []) + [${i}]; len(order)`)))
  equal(runs.map((r) => Number(r.text)).sort(), [1, 2, 3, 4, 5])
})

await test('a client that leaves interrupts', async () => {
  await rejects(box.runCode('import time\nwhile True: time.sleep(0.05)', { timeoutMs: 1000 }), TimeoutError)
  equal((await box.runCode('x')).text, '20', 'the next one runs, with the state of before')
})

await test('a kernel that ends', async () => {
  const context = await box.createCodeContext()
  const r = await box.runCode('import os; os._exit(3)', { context })
  ok(r.error, 'the end is an error of that run')
  equal((await box.runCode('1 + 1', { context })).text, '2', 'the next one has a new kernel')
  await box.removeCodeContext(context)
})

await test('bad requests', async () => {
  await rejects(box.runCode(42), SandboxError, /422/)
  await rejects(box.runCode('1', { language: 'cobol' }), SandboxError, /400/)
})

await test('bash', async () => {
  equal((await box.runCode('v=kept; echo $v', { language: 'bash' })).logs.stdout.join(''), 'kept\n')
  equal((await box.runCode('echo $v; pwd', { language: 'bash' })).logs.stdout.join(''), 'kept\n/home/user\n')
  const bad = await box.runCode('echo oops >&2; false', { language: 'bash' })
  equal(bad.logs.stderr.join(''), 'oops\n')
})

await test('javascript', async () => {
  if (!hasNode) skip('node is not installed')
  equal((await box.runCode('const a = 40; a + 2', { language: 'js' })).text, '42')
  equal((await box.runCode('a', { language: 'javascript' })).text, '40')
  equal((await box.runCode('console.log("out")', { language: 'js' })).logs.stdout.join(''), 'out\n')
  equal((await box.runCode('throw new TypeError("bad")', { language: 'js' })).error.name, 'TypeError')
  equal((await box.runCode('await Promise.resolve(7)', { language: 'js' })).text, '7')
})

await test('pause keeps kernels', async () => {
  await box.runCode('held = "still here"')
  await box.pause()
  await box.connect()
  equal((await box.runCode('held')).text, 'still here')
})

await test('killed while executing', async () => {
  const s = await Sandbox.create()
  const running = s.runCode('print("begun", flush=True)\nimport time\ntime.sleep(600)', { timeoutMs: 0, onStdout: () => s.kill() })
  await rejects(running, TimeoutError, /killed/)
})

await box.kill()
finish()
