import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import type { DefinitionChange } from '../definition/index.js'
import {
  type HistoryRow,
  hrefOf,
  SHOWN_BYTES_MAX,
  type ShownChange,
  type Side,
  shownChange,
  sideOf,
} from '../updates/history.js'
import type { ToolState } from './snapshot.js'

/** Two definitions as JSON text, the older one first. */
export type DefinitionPair = [before: string, after: string]

/** The changes in rows of a tool's history. Definitions still have to be compared. */
export interface ToolChanges {
  changes: ShownChange[][]
  /** For each change with both definitions still stored: the change and the two texts. */
  pairs: { change: ShownChange; texts: DefinitionPair }[]
  headerNames: string[]
}

/**
 * Returns the changes of audit rows, with current names. The name of an OAuth configuration is shown to callers who may link it or see it
 * on the tool.
 */
export async function toolChanges(
  db: Kysely<Tables>,
  state: Pick<ToolState, 'id' | 'headers' | 'managed_as' | 'oauth_config_id'>,
  rows: readonly HistoryRow[],
  viewer: ViewerParameters,
): Promise<ToolChanges> {
  const valuesOf = (field: string) =>
    rows.flatMap(({ difference }) => {
      const change = difference?.[field]
      return change === undefined ? [] : [change.from, change.to].filter(value => value !== null)
    })
  const texts = await readTexts(db, valuesOf('definition').map(String))
  const emails = await namesIn(db, 'user_account', valuesOf('user_id'))
  const configs = await namesIn(db, 'oauth_config', valuesOf('oauth_config_id'), id => {
    return viewer.manages_all || id === state.oauth_config_id ? undefined : viewer.user
  })
  const pairs: ToolChanges['pairs'] = []
  const changes = rows.map(({ version, version_before, difference }) =>
    Object.entries(difference ?? {}).map(([field, { from, to }]): ShownChange => {
      const change = shownChange(field, { from: shown(field, from, version_before), to: shown(field, to, version) })
      const [before, after] = [texts.get(String(from)), texts.get(String(to))]
      if (field === 'definition' && before !== undefined && after !== undefined)
        pairs.push({ change, texts: [before, after] })
      return change
    }),
  )
  return { changes, pairs, headerNames: state.headers.map(({ name }) => name) }

  function shown(field: string, value: unknown, version: number): Side {
    if (value === null) return { value }
    if (field === 'user_id') return { value: { id: value, email: emails.get(value) ?? null } }
    if (field === 'oauth_config_id') return { value: { id: value, name: configs.get(value) ?? null } }
    if (field === 'custom_headers') return { value: state.managed_as === null ? null : value }
    if (field !== 'definition') return sideOf(value, state.id, version)
    const text = texts.get(String(value))
    const bytes = text === undefined ? null : Buffer.byteLength(text)
    if (text !== undefined && bytes !== null && bytes <= SHOWN_BYTES_MAX) return { value: JSON.parse(text) }
    return { shortened: { digest: String(value), bytes, href: hrefOf(state.id, version) } }
  }
}

/** Reads the texts of stored definitions by their hashes in hex. */
async function readTexts(db: Kysely<Tables>, hashes: readonly string[]): Promise<Map<string, string>> {
  if (hashes.length === 0) return new Map()
  const found = await db
    .selectFrom('tool_definition')
    .select(({ cast, fn, val }) => [
      fn<string>('encode', ['hash', val('hex')]).as('hash'),
      cast<string>('content', 'text').as('text'),
    ])
    .where(
      'hash',
      'in',
      hashes.map(hash => Buffer.from(hash, 'hex')),
    )
    .execute()
  return new Map(found.map(({ hash, text }) => [hash, text]))
}

/** Reads names by id. `ownerOf` returns the user who must own an id, or undefined if any owner will do. */
async function namesIn(
  db: Kysely<Tables>,
  table: 'user_account' | 'oauth_config',
  ids: readonly unknown[],
  ownerOf: (id: unknown) => string | null | undefined = () => undefined,
): Promise<Map<unknown, string>> {
  if (ids.length === 0) return new Map()
  const rows =
    table === 'user_account'
      ? await db.selectFrom(table).select(['id', 'email as name']).where('id', 'in', ids.map(String)).execute()
      : await db.selectFrom(table).select(['id', 'name', 'owner_id']).where('id', 'in', ids.map(Number)).execute()
  const known = rows.filter(row => {
    const owner = ownerOf(row.id)
    return owner === undefined || ('owner_id' in row && row.owner_id === owner)
  })
  return new Map(known.map(({ id, name }) => [id, String(name)]))
}

const OPERATIONS_MAX = 100

/** Adds the differences for a model to a change of the definition. */
export function noteOperations(change: ShownChange, differences: readonly DefinitionChange[]): void {
  change.operations = differences.slice(0, OPERATIONS_MAX).map(({ kind, operation, argument, msg }) => ({
    kind,
    operation,
    ...(argument !== undefined && { argument }),
    msg,
  }))
  if (differences.length > OPERATIONS_MAX) change.more = differences.length - OPERATIONS_MAX
}
