// Claude Agent SDK: Claude Code itself runs in a cloche sandbox, not only its tools.
//
//     import { query } from '@anthropic-ai/claude-agent-sdk'
//     import { clocheSpawn } from './claude-agent.mjs'
//     const sandbox = await manager.createSandbox({ image: 'claude', networkMode: 'allow', allow: ['anthropic'] })
//     query({ prompt, options: { spawnClaudeCodeProcess: clocheSpawn(sandbox, { command: 'claude' }) } })

/** Variables of the caller that mean something inside; all else, above all keys, stays outside. */
const PASSED = /^(CLAUDE_|ANTHROPIC_MODEL$|ANTHROPIC_BASE_URL$|LANG$|LC_|TERM$)/

/** command: Claude Code's name inside; without it the SDK's own command and arguments are used as they are. `env` is what it
 * gets besides; a key belongs into the sandbox's `secrets`, so that the program sees a placeholder only. */
export function clocheSpawn(sandbox, { command, env = {} } = {}) {
  return ({ command: given, args, cwd, env: outside = {}, signal }) => {
    // The SDK starts `node cli.js ...`; inside, the program has a name of its own.
    const own = command && args[0]?.endsWith('.js') ? args.slice(1) : args
    const passed = Object.fromEntries(Object.entries(outside).filter(([name, value]) => PASSED.test(name) && value))
    return sandbox.spawn(command ?? given, own, { cwd: command ? undefined : cwd, env: { ...passed, ...env }, signal })
  }
}
