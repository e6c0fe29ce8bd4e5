// The request and answer types of the daemon itself are in openapi.d.ts, which is made from its description.
import type { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { components } from './openapi.js'

export type Schemas = components['schemas']

export class ClocheError extends Error {
  readonly kind: string
  readonly field: string | null
  /** Whose fault it is; what the program inside does is never an error. */
  readonly fault: 'cloche' | 'caller' | 'program'
  readonly retryable: boolean
  readonly status: number | null
}

export interface ConnectOptions {
  /** http://HOST:PORT, https://... or unix:/path; by default CLOCHE_URL, then the sockets of this machine. */
  url?: string
  /** By default CLOCHE_TOKEN; not needed on one's own Unix socket. */
  token?: string
}

export class Connection {
  constructor(url: string, token?: string)
  request(method: string, path: string, body?: string | Uint8Array,
    options?: { headers?: Record<string, string>; signal?: AbortSignal }): Promise<Buffer>
  json<T = unknown>(method: string, path: string, body?: unknown, options?: { signal?: AbortSignal }): Promise<T>
}

export function connect(options?: ConnectOptions): Connection

export interface Limits {
  memoryMB?: number
  cpuCores?: number
  diskMB?: number
  networkMbps?: number
  /** Wall time of each command. */
  timeoutSeconds?: number
  pids?: number
  /** How long the sandbox lives. */
  lifeSeconds?: number
}

export interface SandboxConfig {
  /** By default the daemon's own; 'docker' means the same. */
  provider?: string
  image?: string
  limits?: Limits
  networkMode?: 'none' | 'isolated' | 'bridge' | 'public' | 'allow'
  /** Destinations of networkMode allow. */
  allow?: string[]
  env?: Record<string, string>
  workdir?: string
  metadata?: Record<string, string>
  volumes?: { name: string; path: string; sub?: string; writable?: boolean }[]
  snapshot?: string
  user?: string
  e2b?: { templateId?: string; apiKey?: string; region?: string }
  /** Further fields of POST /v1/sandboxes, by their own names. */
  options?: Record<string, unknown>
}

export interface ExecuteResult {
  stdout: string
  stderr: string
  exitCode: number
  success: boolean
  timedOut: boolean
  oomKilled: boolean
  durationMs: number
  denials: Schemas['Denial'][]
  layers: Record<string, unknown>
  record: Schemas['Result']
}

export interface ExecuteOptions {
  env?: Record<string, string>
  cwd?: string
  stdin?: string | Uint8Array
  user?: string
  timeoutSeconds?: number
  signal?: AbortSignal
}

export interface SandboxStats {
  memoryUsageMB: number
  memoryLimitMB: number
  cpuPercent: number
  diskUsageMB: number
  networkRxMB: number
  networkTxMB: number
  processes: number
}

export function run(request: Record<string, unknown>,
  options?: { connection?: Connection; limits?: Limits; signal?: AbortSignal }): Promise<ExecuteResult>

export class Process extends EventEmitter {
  readonly pid: number | undefined
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  readonly exitCode: number | null
  readonly signalCode: number | null
  readonly killed: boolean
  kill(signal?: string): boolean
  wait(): Promise<number>
}

export class Sandbox {
  readonly id: string
  readonly info: Schemas['Sandbox']
  execute(command: string | string[], args?: string[] | null, options?: ExecuteOptions): Promise<ExecuteResult>
  spawn(command: string | string[], args?: string[] | null, options?: Omit<ExecuteOptions, 'stdin'>): Process
  writeFile(path: string, content: string | Uint8Array): Promise<void>
  readFile(path: string): Promise<Buffer>
  readFile(path: string, encoding: BufferEncoding): Promise<string>
  listFiles(path?: string, depth?: number): Promise<Schemas['File'][]>
  deleteFile(path: string, options?: { recursive?: boolean }): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
  pause(): Promise<void>
  snapshot(name?: string): Promise<Schemas['Snapshot']>
  destroy(): Promise<void>
  refresh(): Promise<Schemas['Sandbox']>
  getStats(): Promise<SandboxStats>
  healthCheck(): Promise<boolean>
}

export class SandboxManager {
  constructor(options?: ConnectOptions & SandboxConfig & { connection?: Connection })
  readonly connection: Connection
  createSandbox(config?: SandboxConfig): Promise<Sandbox>
  getSandbox(id: string): Promise<Sandbox>
  listSandboxes(): Promise<Sandbox[]>
  destroySandbox(id: string): Promise<void>
  destroyAll(): Promise<number>
  getAllStats(): Promise<Map<string, SandboxStats>>
  healthCheckAll(): Promise<Map<string, boolean>>
}

export interface AgentConfig {
  agentName?: string
  /** `cloche agent ls` lists them. */
  agentType?: string
  systemPrompt?: string
  sandboxConfig?: Pick<SandboxConfig, 'provider' | 'image' | 'limits' | 'env' | 'e2b'>
  autoCleanup?: boolean
  captureFiles?: boolean
  capturePatterns?: string[]
  env?: Record<string, string>
  files?: Record<string, string | Uint8Array>
  limits?: Limits
}

export interface AgentResult {
  agentName: string
  output: unknown
  files: Map<string, Buffer>
  record: Partial<Schemas['Result']>
  success: boolean
  error: ClocheError | null
}

export interface ActiveAgent {
  id: number
  agentName: string
  agentType: string
}

export class SandboxedAgentExecutor {
  constructor(options?: ConnectOptions & { connection?: Connection; agentType?: string; concurrency?: number })
  execute(task: string, config?: AgentConfig): Promise<AgentResult>
  executeParallel(tasks: { task: string; config?: AgentConfig }[]): Promise<AgentResult[]>
  listActive(): ActiveAgent[]
  getContext(id: number): ActiveAgent | null
  cancelAll(): number
  cleanupAll(): Promise<number>
}
