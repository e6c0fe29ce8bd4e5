// A test is a named function; every assertion in it counts. The last line printed is the sum.
import { isDeepStrictEqual, inspect } from 'node:util'

let passed = 0
let failed = 0
let skipped = 0
const only = process.env.ONLY

export class Skip extends Error {}

export function ok(value, what) {
  if (!value) throw new Error(`not so: ${what}`)
  passed++
}

export function equal(got, wanted, what) {
  if (!isDeepStrictEqual(got, wanted))
    throw new Error(`${what ?? 'value'}: got ${inspect(got)}, wanted ${inspect(wanted)}`)
  passed++
}

export function match(text, pattern, what) {
  if (!pattern.test(text)) throw new Error(`${what ?? 'text'}: ${inspect(text)} is not like ${pattern}`)
  passed++
}

// The promise must fail with this class, and a message like the pattern.
export async function rejects(promise, kind, pattern = /./s) {
  let value
  try {
    value = await promise
  } catch (error) {
    if (!(error instanceof kind) || !pattern.test(error.message))
      throw new Error(`failed with ${error.name}: ${error.message}; wanted ${kind.name} like ${pattern}`)
    passed++
    return error
  }
  throw new Error(`did not fail, but gave ${inspect(value)}; wanted ${kind.name}`)
}

// Waits until the function gives something true; generous, since machines are busy.
export async function until(what, poll, seconds = 30) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await poll()
    if (value) return value
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

export function skip(why) {
  throw new Skip(why)
}

export async function test(name, body) {
  if (only && !name.includes(only)) return
  try {
    await body()
    console.log(`ok      ${name}`)
  } catch (error) {
    if (error instanceof Skip) {
      skipped++
      console.log(`skipped ${name}: ${error.message}`)
    } else {
      failed++
      console.log(`FAIL    ${name}: ${error.stack ?? error}`)
    }
  }
}

export function finish() {
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`)
  // Clients keep connections and timers of their own alive.
  process.exit(failed ? 1 : 0)
}
