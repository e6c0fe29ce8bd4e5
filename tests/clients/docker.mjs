// The unmodified npm packages dockerode and testcontainers, whose containers are sandboxes here.
import Docker from 'dockerode'
import { GenericContainer, Network, Wait } from 'testcontainers'
import { PassThrough } from 'node:stream'
import { equal, finish, ok, test } from './check.mjs'

const docker = new Docker({ socketPath: process.env.DOCKER_HOST.replace('unix://', '') })

function sink() {
  const parts = []
  const stream = new PassThrough()
  stream.on('data', part => parts.push(part))
  stream.text = () => Buffer.concat(parts).toString()
  return stream
}

async function execute(box, cmd, options, input) {
  const exec = await box.exec({ Cmd: cmd, AttachStdout: true, AttachStderr: true, AttachStdin: input !== undefined })
  const stream = await exec.start(options)
  const out = sink()
  const err = sink()
  docker.modem.demuxStream(stream, out, err)
  if (input !== undefined) {
    stream.write(input)
    stream.end()
  }
  await new Promise(done => stream.on('end', done).on('close', done))
  return [out.text(), err.text(), (await exec.inspect()).ExitCode]
}

await test('dockerode runs', async () => {
  const out = sink()
  const [result, box] = await docker.run('bb:1', ['sh', '-c', 'echo tty; exit 3'], out)
  equal(result.StatusCode, 3)
  equal(out.text(), 'tty\r\n')
  await box.remove()
  const both = [sink(), sink()]
  const [, other] = await docker.run('bb:1', ['sh', '-c', 'echo o; echo e >&2'], both, { Tty: false })
  equal(both.map(s => s.text()).join(), 'o\n,e\n')
  await other.remove()
})

await test('dockerode executes, with a hijacked connection and without', async () => {
  const box = await docker.createContainer({ Image: 'bb:1', Cmd: ['sleep', '1000'], HostConfig: { AutoRemove: true } })
  await box.start({})
  equal((await execute(box, ['sh', '-c', 'echo o; echo e >&2; exit 2'], {})).join(), 'o\n,e\n,2')
  equal((await execute(box, ['cat'], { hijack: true, stdin: true }, 'in\n')).join(), 'in\n,,0')
  ok((await box.stats({ stream: false })).memory_stats.usage > 0, 'it uses memory')
  await box.kill()
})

await test('testcontainers: a port, files, a restart', async () => {
  const box = await new GenericContainer('bb:1')
    .withCommand(['sh', '-c', 'echo ready; while true; do echo pong | nc -l -p 80; done'])
    .withExposedPorts(80)
    .withWaitStrategy(Wait.forLogMessage('ready'))
    .start()
  ok(box.getMappedPort(80) > 1023, 'a port of the host')
  equal((await box.exec(['sh', '-c', 'echo in; exit 3'])).exitCode, 3)
  await box.copyContentToContainer([{ content: 'abc', target: '/srv/f.txt' }])
  await box.restart()
  equal((await box.exec(['cat', '/srv/f.txt'])).output, 'abc')
  await box.stop()
})

await test('testcontainers: a network with names', async () => {
  const network = await new Network().start()
  const serve = ['sh', '-c', 'while true; do echo pong | nc -l -p 80; done']
  const server = await new GenericContainer('bb:1').withNetwork(network).withNetworkAliases('svc').withCommand(serve).start()
  const client = await new GenericContainer('bb:1').withNetwork(network).withCommand(['sleep', '100']).start()
  equal((await client.exec(['sh', '-c', 'until nc svc 80 </dev/null; do sleep 0.1; done'])).output, 'pong\n')
  await client.stop()
  await server.stop()
  await network.stop()
})

finish()
