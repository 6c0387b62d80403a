import { parsed } from './numbers.js'
import { visible } from './texts.js'

/* The page has no rules of its own: each view shows responses that any other client can also get. The token is kept only in memory. */

export interface Me {
  user: Person
  permission: 'basic' | 'manage:actions' | 'admin'
  managed_groups: { id: number; name: string }[]
  token: { scopes: string[] | null; persona_ids: number[] | null; tool_ids: number[] | null }
}

/** The rights of the token. The page hides actions that the token does not allow; the service decides about single records. */
export interface Rights {
  me: Me
  writes: boolean
  proposes: boolean
  manages: boolean
  makes: Record<Kind, boolean>
}

export function rightsOf(me: Me): Rights {
  const { scopes, tool_ids, persona_ids } = me.token
  const has = (...names: string[]) => scopes?.some(scope => names.includes(scope)) ?? false
  const writes = !has('read', 'runtime', 'propose')
  const manages = me.permission !== 'basic' || me.managed_groups.length > 0
  const isFree = writes && tool_ids === null && persona_ids === null
  const makes = { agents: isFree, tools: isFree && manages }
  return { me, writes, proposes: !has('read', 'runtime'), manages, makes }
}

export interface Fault {
  loc: (string | number)[]
  msg: string
  type: string
}

interface Body {
  error_code?: string
  detail?: string | Fault[]
  changed?: { field: string; by: string; at: string }[] | null
}

/** Why a request failed. */
const SENTENCES = {
  lost: 'No connection to the service',
  front: 'A proxy in front of the service answered instead of the service',
  busy: 'The service is busy, or it is being restarted',
  ended: 'This token is invalid, expired or revoked',
  refused: 'The service refused the request',
}

/** An error response. `status` is 0 if the service did not respond. */
export class Refusal extends Error {
  constructor(
    readonly reason: keyof typeof SENTENCES,
    readonly status: number,
    readonly body: Body = {},
    readonly retryS = 0,
  ) {
    super(typeof body.detail === 'string' ? body.detail : SENTENCES[reason])
  }

  get faults(): Fault[] {
    return Array.isArray(this.body.detail) ? this.body.detail : []
  }
}

export const isAway = (problem: unknown): problem is Refusal =>
  problem instanceof Refusal && ['lost', 'front', 'busy'].includes(problem.reason)

/** The names of events on the window: the token is no longer valid, a user has signed in, or the view must be loaded again. */
export const EVENTS = { ended: 'session-ended', signedIn: 'signed-in', stored: 'stored' }

export interface Answer<T> {
  data: T
  warnings: string[]
  etag: string
  version: number
  /** The query for the next page of a list. */
  next: string | undefined
}

let token = ''
export const setToken = (text: string) => {
  token = text
}

interface Options {
  body?: unknown
  text?: string
  headers?: Record<string, string> | undefined
  signal?: AbortSignal | undefined
}

/** Sends a request. Throws `Refusal` for an error response or no response. Any other error is a bug in the page. */
export async function ask<T>(method: string, path: string, options: Options = {}): Promise<Answer<T>> {
  const { body, text = body === undefined ? undefined : JSON.stringify(body), signal } = options
  const headers = {
    authorization: `Bearer ${token}`,
    ...(text && { 'content-type': 'application/json' }),
    ...options.headers,
  }
  const request = new Request(path, { method, headers, body: text ?? null, signal: signal ?? null })
  const read = fetch(request).then(async answer => [answer, await answer.text()] as const)
  const [answer, received] = await read.catch(() => {
    throw new Refusal('lost', 0)
  })
  const { status } = answer
  const isOurs = status === 204 || status === 304 || answer.headers.get('x-request-id') !== null
  const isJson = /^application\/json/.test(answer.headers.get('content-type') ?? '')
  if (!isOurs || (received !== '' && !isJson)) throw new Refusal('front', status)
  const data = received === '' ? {} : parsed(received)
  if (status === 401) dispatchEvent(new Event(EVENTS.ended))
  if (!answer.ok) {
    if (data.detail === undefined) throw new Refusal('front', status)
    const reason = status === 401 ? 'ended' : status === 503 || status === 429 ? 'busy' : 'refused'
    throw new Refusal(reason, status, data, Number(answer.headers.get('retry-after')))
  }
  const etag = answer.headers.get('etag') ?? ''
  return {
    ...{ data, etag, version: Number(/-(\d+)[".]/.exec(etag)?.[1] ?? 0) },
    warnings: [...(answer.headers.get('warning') ?? '').matchAll(/299 - "([^"]*)"/g)].map(([, said = '']) => said),
    next: /<([^>]+)>; rel="next"/.exec(answer.headers.get('link') ?? '')?.[1],
  }
}

export function unless<T>(answer: Promise<Answer<T>>, ...statuses: number[]): Promise<Answer<T> | undefined> {
  return answer.catch(refusal => {
    if (refusal instanceof Refusal && refusal.reason === 'refused' && statuses.includes(refusal.status))
      return undefined
    throw refusal
  })
}

/** Returns an `Idempotency-Key` for one change, so that a retry after a lost response does not store the change twice. */
export const newKey = () => `"${[...crypto.getRandomValues(new Uint8Array(12))].join('-')}"`

export type Kind = 'agents' | 'tools'
export const KINDS = {
  agents: { path: 'persona', noun: 'Agent', root: 'persona', update: 'PATCH' },
  tools: { path: 'tool', noun: 'Tool', root: 'admin/tool/custom', update: 'PUT' },
} as const

export interface Person {
  id: string
  email: string
}

export interface Row {
  id: number
  name: string
  description: string
  owner: Person | null
  updated_at?: string | null
  is_public?: boolean
  is_visible?: boolean
  is_default_persona?: boolean
  builtin_persona?: boolean
  enabled?: boolean
  in_code_tool_id?: string | null
  mcp_server_id?: number | null
}

const LISTS = {
  agents: 'persona?limit=100',
  'deleted agents': 'persona?limit=100&deleted=true',
  tools: 'tool?limit=100',
  'open proposals': 'proposals?limit=100&state=open',
  proposals: 'proposals?limit=100',
}
export type ListName = keyof typeof LISTS
export const BLANK = { id: 0, name: '', description: '', owner: null }

export interface Change {
  version: number
  at: string
  action: string
  actor?: { email?: string; command?: string }
  fields?: string[]
}

export interface ImpactReport {
  changes: { operation: string; msg: string }[]
  agents: { ids: number[]; others: number }
}

export interface Proposal {
  id: number
  kind: 'persona' | 'tool'
  state: 'open' | 'approved' | 'rejected' | 'withdrawn' | 'closed'
  author: Person
  message: string
  record: { id: number; name: string | null }
  base_version: number
  fields: string[]
  conflicts: string[] | null
  may_approve: boolean
  created_at: string
  closed_at: string | null
  closed_by: { email: string } | null
  reason: string | null
  changes: { field: string; from: unknown; to: unknown }[]
  impact: ImpactReport | null
}

const BY_ID = ['groups', 'document_set_ids', 'label_ids']
/** Converts proposed values to edits of the form. Replaces records with ids in the fields for which the form uses ids. */
export function editsOf(changes: Proposal['changes']): object {
  const idsOf = (to: unknown) => (to as Row[]).map(({ id }) => id)
  const editOf = ({ field, to }: Proposal['changes'][number]) => [field, BY_ID.includes(field) ? idsOf(to) : to]
  const { tool_ids, ...edits } = Object.fromEntries(changes.map(editOf))
  return { ...edits, ...(tool_ids && { tools: tool_ids }) }
}

const ROWS_MAX = 5_000

/** Reads a list page by page, up to 5,000 rows, and shows each page as it arrives. */
export async function readAll<T = Row>(
  list: ListName,
  signal?: AbortSignal,
  show?: (rows: T[], isAll: boolean) => void,
): Promise<T[]> {
  const rows: T[] = []
  const [path] = LISTS[list].split('?')
  let next: string | undefined = LISTS[list]
  while (next !== undefined && rows.length < ROWS_MAX) {
    const page: Answer<T[]> = await ask('GET', next, { signal })
    rows.push(...page.data)
    next = page.next && path + page.next
    show?.([...rows], next === undefined)
  }
  return rows
}

/** A description of each unsaved edit, and a function that returns its text. If there are edits, the browser asks before it leaves the page. */
export const unsaved = new Map<string, () => string>()
addEventListener('beforeunload', event => unsaved.size > 0 && event.preventDefault())
export const mayDrop = (question: string): boolean =>
  unsaved.size === 0 || confirm(visible(`${question} ${[...unsaved.keys()].join(', ')} would be lost.`))

/** For the view at `address`: a `text` about the stored change, and the `edits` that the form starts with. */
export const outcome = { address: '', text: '', edits: {} }

/** Opens the view at `address` and discards all unsaved edits. */
export function leaveTo(address: string, text = '', edits: object = {}) {
  unsaved.clear()
  location.assign(address)
  Object.assign(outcome, { address, text, edits })
  dispatchEvent(new Event(EVENTS.stored))
}

/** If a different user has signed in, opens the start view. Asks first if typed text would be lost. If the user declines, signs out and throws. */
export function changePerson({ user: before }: Me, { user: now }: Me) {
  if (before.id === now.id) return
  if (!mayDrop(`Continue as ${now.email}?`)) {
    setToken('')
    throw `What you typed is kept: sign in as ${before.email} to continue`
  }
  leaveTo('#/agents')
}
