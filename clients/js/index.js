// Runs what an agent wrote in sandboxes of a cloche daemon. No dependency but Node.js 18.
//
//     import { SandboxManager } from 'cloche'
//     const manager = new SandboxManager({ limits: { memoryMB: 512, timeoutSeconds: 300 } })
//     const sandbox = await manager.createSandbox()
//     console.log((await sandbox.execute('node', ['-v'])).stdout)
//     await manager.destroyAll()
//
// What cloche could not do is a ClocheError; a program that fails is a result.
export { ClocheError, Connection, connect } from './connection.js'
export { Process } from './process.js'
export { Sandbox, SandboxManager, run } from './sandbox.js'
export { SandboxedAgentExecutor } from './agents.js'
