// Made by tools/openapi-types from /openapi.json. Do not edit.
export interface components {
  schemas: {
    Agent: {
      id: string
      owner: string
      trust: number
      effective_trust: number
      level: string
      outside: boolean
      epoch: number
      created_at: string
      rotated_at: string | null
    }
    AgentAnswer: {
      agent: string
      kind: string
      output: unknown
      record: components['schemas']['Result']
      cleaned?: Record<string, unknown>
    }
    AgentKey: {
      epoch: number
      public_key: string
    }
    AgentKeys: {
      keys: components['schemas']['AgentKey'][]
    }
    AgentRun: {
      id: string
      type: string
      name: string | null
      state: string
      exit_code: number | null
      created_at: string
      duration_ms: number
      output?: string
    }
    AgentRuns: {
      runs: components['schemas']['AgentRun'][]
    }
    AgentType: {
      type: string
      description: string | null
      task: string | null
      output: string | null
      image: string | null
      net: string | null
      needs: string[] | null
      hint: string | null
      capture: string[] | null
      memory: string | null
      timeout: string | null
      trust: number | null
    }
    AgentTypes: {
      types: components['schemas']['AgentType'][]
    }
    Agents: {
      agents: components['schemas']['Agent'][]
    }
    AllStats: {
      sandboxes: components['schemas']['StatsRow'][]
      tenants: components['schemas']['Totals'][]
    }
    Attempt: {
      seq: number
      time: string | null
      event: string
      verdict: string
      connection: number
      name: string | null
      address: string | null
      port: number
      protocol: string
      rule: string | null
      why: string | null
      remedy: string | null
      secret: string | null
      inspected: boolean
      tx_bytes: number
      rx_bytes: number
      duration_ms: number
      count: number
    }
    AuditRecord: {
      seq: number
      time: string
      who: string
      what: string
      target: string
      verdict: string
      why: string
      from?: string
      prev: string
      hash: string
    }
    AuditRecords: {
      records: components['schemas']['AuditRecord'][]
      next: number | null
    }
    BatchItem: {
      result?: components['schemas']['Result']
      error?: components['schemas']['ErrorBody']
    }
    CapturedFile: {
      path: string
      size: number
      content_base64: string | null
    }
    Change: {
      path: string
      kind: string
    }
    Denial: {
      what: string
      target: string | null
      rule: string | null
      count: number
      explain: string | null
    }
    Destroyed: {
      destroyed: number
    }
    Diff: {
      from: string
      to: string
      changes: components['schemas']['Change'][]
      truncated: boolean
    }
    Directory: {
      entries: components['schemas']['File'][]
      truncated: boolean
    }
    Error: {
      error: components['schemas']['ErrorBody']
    }
    ErrorBody: {
      kind: string
      message: string
      field: string | null
      retryable?: boolean
      fault?: string
      position?: number
    }
    Exec: {
      id: number
      pid: number
      running: boolean
      tty: boolean
      background: boolean
      shell: boolean
      tag: string | null
      session: string
      cwd: string
      cmd: string[]
      started_at: string
      status: string
      exit_code: number | null
      signal: number | null
      duration_ms: number | null
      cpu_ms: number | null
      max_rss_bytes: number | null
      oldest_seq: number
      next_seq: number
    }
    File: {
      path: string
      name: string
      type: string
      mode: string
      size: number
      mtime: string
      uid: number
      gid: number
      owner: string
      group: string
      target?: string
    }
    Fork: {
      sandbox?: components['schemas']['Sandbox']
      error?: components['schemas']['ErrorBody']
    }
    Forks: {
      sandboxes: components['schemas']['Fork'][]
    }
    Health: {
      status: string
      version: string
    }
    HealthOfSandbox: {
      healthy: boolean
      state: string
      reason?: string | null
      latency_ms?: number | null
    }
    Image: {
      name: string
      id?: string
      digest?: string | null
      added_at?: string | null
      size_bytes?: number | null
      layers?: number | null
      owner?: string
    }
    ImageInfo: {
      id: string
      layers: string[]
      env?: string[]
      entrypoint?: string[]
      cmd?: string[]
      workdir?: string | null
      user?: string | null
      platform?: string | null
      created?: string | null
      size_bytes?: number
    }
    Images: {
      images: components['schemas']['Image'][]
    }
    Limits: {
      memory: number | null
      cpus: number | null
      pids: number | null
      disk: number | null
      timeout: number | null
      cpu_time: number | null
      open_files: number | null
      file_size: number | null
      output_limit: number | null
    }
    Log: {
      id: number
      pid: number
      running: boolean
      tty: boolean
      background: boolean
      shell: boolean
      tag: string | null
      session: string
      cwd: string
      cmd: string[]
      started_at: string
      status: string
      exit_code: number | null
      signal: number | null
      duration_ms: number | null
      cpu_ms: number | null
      max_rss_bytes: number | null
      oldest_seq: number
      next_seq: number
      text: string
      truncated: boolean
    }
    Logs: {
      logs: components['schemas']['Log'][]
    }
    Made: {
      created: boolean
    }
    MadeImage: {
      id: string
      name: string
    }
    MadeImages: {
      images: components['schemas']['MadeImage'][]
      notes: string[]
    }
    Match: {
      path: string
      line?: number
      text?: string
    }
    Matches: {
      results: components['schemas']['Match'][]
      truncated: boolean
    }
    Message: {
      seq: number
      id: string
      from: string
      from_uid: string
      to: string
      to_uid: string
      kind: string
      reply_to: string | null
      content: string
      time_ms: number
      time: string
      trust: number
      depth: number
      epoch: number
      signature: string
    }
    Messages: {
      messages: components['schemas']['Message'][]
      refused: number
    }
    Named: {
      name: string
    }
    Network: {
      mode: string
      requested: string
      allow: string[]
      deny: string[]
      layer: string
      secrets: string[]
      tx_bytes: number
      rx_bytes: number
      connections: number
      open: number
      denied: number
      attempts: components['schemas']['Attempt'][]
      questions: components['schemas']['Question'][]
    }
    Policies: {
      policies: components['schemas']['Named'][]
    }
    Question: {
      question: number
      target: string
      port: number
      remedy: string
    }
    Ready: {
      status: string
      silent: string[]
    }
    RemovedImages: {
      images: number
      layers: number
      bytes: number
    }
    Result: {
      id: string
      status: string
      exit_code: number | null
      signal: number | null
      success: boolean
      timed_out: boolean
      oom_killed: boolean
      limits_hit: string[]
      stdout: string
      stderr: string
      stdout_truncated: boolean
      stderr_truncated: boolean
      encoding: string
      duration_ms: number
      setup_ms: number | null
      cpu_ms: number | null
      max_rss_bytes: number | null
      pids_peak: number | null
      disk_bytes: number | null
      net_tx_bytes: number | null
      net_rx_bytes: number | null
      files: components['schemas']['CapturedFile'][]
      changes: components['schemas']['Change'][]
      changes_truncated?: boolean
      changes_incomplete?: boolean
      denials: components['schemas']['Denial'][]
      layers: Record<string, unknown>
      notes?: string[]
      guard?: string
      fault?: string | null
    }
    Sandbox: {
      id: string
      name: string | null
      state: string
      image: string | null
      level: string
      provider: string
      metadata: Record<string, unknown>
      created_at: string
      started_at: string | null
      expires_at: string | null
      limits: components['schemas']['Limits']
      network: string | null
      root: string | null
      disk_type: string
      layers: Record<string, unknown> | null
      exit_code: number | null
      idle_timeout: number | null
      on_timeout: string
      auto_resume: boolean
      publish: string[]
      secrets: string[]
      agent: string | null
      reason: string | null
      image_id?: string
      notes?: string[]
      services?: string[]
    }
    Sandboxes: {
      sandboxes: components['schemas']['Sandbox'][]
      cursor: string | null
    }
    Secret: {
      id?: string
      name: string
      hosts: string[]
      header: string
      uses: number | null
      configured: boolean
      version: number
      metadata: Record<string, unknown>
      created_at: string | null
      updated_at: string | null
    }
    Secrets: {
      secrets: components['schemas']['Secret'][]
    }
    SentMessage: {
      id: string
      from: string
      to: string
      time: string
    }
    Snapshot: {
      id: string
      name: string | null
      digest: string
      size_bytes: number
      excluded: string[]
      kind: string
      shared?: boolean
      frozen_ms?: number
      created_at: string
      sandbox: string | null
      image?: string | null
    }
    Snapshots: {
      snapshots: components['schemas']['Snapshot'][]
    }
    StartedExec: {
      id: number
      pid: number
      running: boolean
      tag: string | null
    }
    Stats: {
      memory_bytes: number | null
      cpu_ms: number | null
      cpu_percent: number | null
      pids: number | null
      disk_bytes: number | null
      net_rx_bytes: number | null
      net_tx_bytes: number | null
      io_read_bytes: number | null
      io_write_bytes: number | null
      memory_limit_bytes: number | null
      memory_peak_bytes: number | null
      disk_limit_bytes: number | null
      history: components['schemas']['StatsSample'][]
    }
    StatsRow: {
      id: string
      name: string | null
      state: string
      memory_bytes: number | null
      cpu_ms: number | null
      cpu_percent: number | null
      pids: number | null
      disk_bytes: number | null
      net_rx_bytes: number | null
      net_tx_bytes: number | null
      io_read_bytes: number | null
      io_write_bytes: number | null
      memory_limit_bytes: number | null
      memory_peak_bytes: number | null
      disk_limit_bytes: number | null
    }
    StatsSample: {
      time: string
      memory_bytes: number | null
      cpu_ms: number | null
      cpu_percent: number | null
      pids: number | null
      disk_bytes: number | null
      net_rx_bytes: number | null
      net_tx_bytes: number | null
      io_read_bytes: number | null
      io_write_bytes: number | null
    }
    Token: {
      id: string
      name: string
      scopes: string
      tenant: string | null
      trust: number
      max_sandboxes: number
      memory_total: number
      disk_total: number
      rate_per_minute: number
      ceiling: Record<string, unknown>
      expires_at: string | null
      created_at: string | null
    }
    Tokens: {
      tokens: components['schemas']['Token'][]
    }
    ToolResult: {
      result: Record<string, unknown>
    }
    ToolVerdict: {
      verdict: string
      reason: string
      rule: string
      call?: Record<string, unknown>
    }
    Totals: {
      tenant: string
      connections: number
      bodies: number
      output: number
      uploads: number
      snapshots: number
      jobs: number
      sandboxes: number
      memory: number
      disk: number
      sessions: number
    }
    Trust: {
      levels: components['schemas']['TrustLevel'][]
      rule: components['schemas']['TrustRule'] | null
    }
    TrustLevel: {
      trust: number
      level: string
      talks_to: number[]
      network: string
      sandbox: string
      elsewhere: boolean
    }
    TrustRule: {
      from: string
      to: string
      from_trust: number
      to_trust: number
      may_talk: boolean
      may_delegate: boolean
    }
    Unpacked: {
      entries: number
    }
    Verdict: {
      valid: boolean
      why: string | null
    }
    Volume: {
      name: string
      kind: string
      read_only: boolean
      id?: string
      size_bytes?: number
      encrypted?: boolean
      created_at?: string
      from?: string
      shared?: boolean
      sandboxes?: components['schemas']['VolumeUse'][]
    }
    VolumeUse: {
      sandbox: string
      path: string
      writable: boolean
    }
    Volumes: {
      volumes: components['schemas']['Volume'][]
    }
    Written: {
      path: string
      size: number
    }
  }
}
