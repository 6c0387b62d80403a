import { randomBytes } from 'node:crypto'
import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { definition, exchange } from '../faults/load.js'

export interface Header {
  key: string
  value: string
}

/** A tool of the load: what its headers are, as last acknowledged, in clear and as the service shows them. */
export interface LoadedTool {
  id: number
  secrets: Header[]
  masks: Header[]
}

export interface LoadedAgent {
  id: number
  tools: number
}

export interface LoadOptions {
  port: number
  token: string
  tools: LoadedTool[]
  agents: LoadedAgent[]
}

type Kind = 'masks' | 'secrets' | 'no headers' | 'agent' | 'dry run' | 'validation'

const CONNECTIONS = 8
/** Outside of the campaign each client rests between two requests: other tests have a part of the machine. */
const PAUSE_MS = process.env.TEST_CAMPAIGN === 'full' ? 0 : 10
const NEXT_IDS = 2 * CONNECTIONS
const MASK = /^\*{4}#[0-9a-f]{12}$/

/** In every secret, so that one is known wherever it turns up. */
export const SECRET_MARKER = randomBytes(9).toString('base64url')

let planted = 0

/** A secret that no other is equal to. */
export function newSecret(): string {
  return `${SECRET_MARKER} ${++planted}`
}

/**
 * Clients that send requests of every kind that touches secrets, one after the other on each of eight connections. The headers of a
 * tool are changed by one client only, so that the last acknowledged ones are known; everything else of it by all of them.
 */
export class SecretLoad {
  readonly #options: LoadOptions
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  /** How many requests of each kind were answered as they should be. */
  readonly served: Record<Kind, number> = {
    masks: 0,
    secrets: 0,
    'no headers': 0,
    agent: 0,
    'dry run': 0,
    validation: 0,
  }
  /** What was not: the kind, the status, the start of the answer. */
  readonly failures: string[] = []
  longestMs = 0
  /** Where a rotation is: half of the updates of headers go to the tools of the next ids, so that they meet it. */
  rotatedId = 0
  #isRunning = false
  #clients: Promise<void>[] = []

  constructor(options: LoadOptions) {
    this.#options = options
  }

  get requests(): number {
    return Object.values(this.served).reduce((sum, count) => sum + count, 0)
  }

  start(): void {
    this.#isRunning = true
    this.#clients = Array.from({ length: CONNECTIONS }, (_, client) => this.#work(this.#ownTools(client)))
  }

  /** Resolves when every request has its end. */
  async stop(): Promise<void> {
    this.#isRunning = false
    await Promise.all(this.#clients)
    this.#agent.destroy()
  }

  /** Sends the masks of every tool back, once. */
  async sendMasksBack(): Promise<void> {
    const clients = Array.from({ length: CONNECTIONS }, async (_, client) => {
      for (const tool of this.#ownTools(client)) await this.#sendMasks(tool)
    })
    await Promise.all(clients)
    this.#agent.destroy()
  }

  #ownTools(client: number): LoadedTool[] {
    return this.#options.tools.filter((_, index) => index % CONNECTIONS === client)
  }

  async #work(own: LoadedTool[]): Promise<void> {
    // The other tools only ever keep their secrets: what a rotation finds is not replaced before it comes.
    const renewed = own.filter((_, index) => index % 4 === 0)
    while (this.#isRunning) {
      const choice = Math.random()
      if (choice < 0.3) await this.#sendMasks(this.#aTool(own))
      else if (choice < 0.55) await this.#sendSecrets(this.#aTool(renewed))
      else if (choice < 0.7) await this.#sendTool('no headers', oneOf(this.#options.tools), {})
      else if (choice < 0.82) await this.#sendAgent('agent', '')
      else if (choice < 0.9) await this.#tryHeaders(oneOf(own))
      else if (choice < 0.95) await this.#sendAgent('dry run', '&dry_run=true')
      else await this.#send('validation', 'POST', '/admin/tool/custom/validate', { definition: definition('load') })
      if (PAUSE_MS > 0) await sleep(PAUSE_MS)
    }
  }

  #aTool(tools: LoadedTool[]): LoadedTool {
    const next = tools.filter(({ id }) => id > this.rotatedId && id <= this.rotatedId + NEXT_IDS)
    return oneOf(next.length > 0 && Math.random() < 0.5 ? next : tools)
  }

  /** All masks back, in another order: every value is kept, and every row of them is written. */
  async #sendMasks(tool: LoadedTool): Promise<void> {
    const turn = <Item>(list: Item[]) => [...list.slice(1), ...list.slice(0, 1)]
    const custom_headers = turn(tool.masks)
    const shown = await this.#sendTool('masks', tool, { custom_headers })
    if (shown === undefined) return
    if (JSON.stringify(shown) !== JSON.stringify(custom_headers))
      this.failures.push(`tool ${tool.id} shows other masks`)
    tool.secrets = turn(tool.secrets)
    tool.masks = shown
  }

  /** New secrets for some headers, or for all; of the others the masks. */
  async #sendSecrets(tool: LoadedTool): Promise<void> {
    const share = Math.random() < 0.5 ? 1 : 0.2
    const secrets = tool.secrets.map(({ key, value }) => ({ key, value: Math.random() < share ? newSecret() : value }))
    const isKept = (index: number) => secrets[index]?.value === tool.secrets[index]?.value
    const custom_headers = secrets.map((secret, index) => (isKept(index) ? (tool.masks[index] ?? secret) : secret))
    const shown = await this.#sendTool('secrets', tool, { custom_headers })
    if (shown === undefined) return
    for (const [index, { value }] of shown.entries()) {
      if ((value === tool.masks[index]?.value) !== isKept(index)) this.failures.push(`tool ${tool.id}: mask ${index}`)
    }
    Object.assign(tool, { secrets, masks: shown })
  }

  /** A dry run of an update that would replace the first secret. */
  async #tryHeaders(tool: LoadedTool): Promise<void> {
    const custom_headers = tool.masks.map((mask, index) => (index === 0 ? { ...mask, value: newSecret() } : mask))
    await this.#sendTool('dry run', tool, { custom_headers }, '?dry_run=true')
  }

  /** Answers the headers that the answer shows; undefined when it failed. */
  async #sendTool(kind: Kind, { id }: LoadedTool, body: object, query = ''): Promise<Header[] | undefined> {
    const described = { description: `${kind} ${Math.random()}`, ...body }
    const answer = await this.#send(kind, 'PUT', `/admin/tool/custom/${id}${query}`, described)
    return answer && this.#masksIn(answer.custom_headers, id)
  }

  /** The snapshot of an agent holds its tools with their masks. */
  async #sendAgent(kind: Kind, query: string): Promise<void> {
    const { id, tools } = oneOf(this.#options.agents)
    const answer = await this.#send(kind, 'PATCH', `/persona/${id}?update_mask=description${query}`, {
      description: `${kind} ${Math.random()}`,
    })
    if (answer === undefined) return
    const shown = answer.tools as { id: number; custom_headers: unknown }[] // as the interface document says
    if (shown.length !== tools) this.failures.push(`agent ${id} has ${shown.length} tools`)
    for (const tool of shown) this.#masksIn(tool.custom_headers, tool.id)
  }

  #masksIn(shown: unknown, id: number): Header[] {
    const headers = shown as Header[] // as the interface document says
    if (!headers.every(header => MASK.test(header.value))) this.failures.push(`tool ${id} shows what is no mask`)
    return headers
  }

  async #send(kind: Kind, method: string, path: string, body: object): Promise<Record<string, unknown> | undefined> {
    const { port, token } = this.#options
    const sentAt = performance.now()
    const { status, text } = await exchange(this.#agent, port, { method, path, token, body: JSON.stringify(body) })
    this.longestMs = Math.max(this.longestMs, performance.now() - sentAt)
    if (status !== 200 || text.includes(SECRET_MARKER)) {
      this.failures.push(`${kind}: ${status} ${text.slice(0, 300)}`)
      return undefined
    }
    this.served[kind]++
    return JSON.parse(text)
  }
}

function oneOf<Item>(list: readonly Item[]): Item {
  const found = list[Math.floor(Math.random() * list.length)]
  if (found === undefined) throw new Error('an empty list')
  return found
}
