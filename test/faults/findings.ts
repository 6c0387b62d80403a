import type { QueryResultRow } from 'pg'
import type { Sent } from './load.js'

/** A database that can be asked. */
export interface Queried {
  query<R extends QueryResultRow>(text: string): Promise<R[]>
}

interface AuditRow {
  resource_kind: string
  resource_id: number
  version_before: number
  version_after: number
  marker: string | null
  previous_hash: string
  hash: string
}

interface ResourceRow {
  kind: string
  id: number
  version: number
  audit_head: string
  audit_count: number
  /** Whether every field whose change the audit trail tells last stands in the tables as it says. */
  description: string
  relations: string
}

export interface Findings {
  faults: string[]
  /** How often each unique description stands in the audit trail. */
  rowsByMarker: Map<string, number>
}

/**
 * Compares what the clients were told with what is stored: every acknowledged update has its one audit row, none that was
 * said not to be applied has one, no row is without its change and no change without its row.
 */
export async function findings(cluster: Queried, sent: readonly Sent[], mayLose: boolean): Promise<Findings> {
  const rows = await cluster.query<AuditRow & Record<string, unknown>>(AUDIT)
  const resources = await cluster.query<ResourceRow & Record<string, unknown>>(RESOURCES)
  const rowsByMarker = new Map<string, number>()
  for (const { marker } of rows) if (marker !== null) rowsByMarker.set(marker, (rowsByMarker.get(marker) ?? 0) + 1)
  const faults = [
    ...sent.flatMap(request => answerFaults(request, mayLose)),
    ...sent.flatMap(request => storedFaults(request, rowsByMarker.get(request.marker) ?? 0)),
    ...resources.flatMap(resource => chainFaults(resource, rows)),
    ...(await stateFaults(cluster)),
  ]
  return { faults, rowsByMarker }
}

function answerFaults(request: Sent, mayLose: boolean): string[] {
  const { status, marker, kind, outcome, reason, retryAfter } = request
  if (status === 0) return mayLose ? [] : [`${marker}: no answer: ${request.text}`]
  if (status === 200 || (status === 412 && kind !== 'validation')) return []
  if (status !== 503) return [`${marker}: ${kind} answered ${status}: ${request.text}`]
  const expected: unknown[] = kind === 'validation' ? [undefined] : ['applied', 'not_applied', 'unknown']
  return [
    ...(retryAfter === undefined ? [`${marker}: 503 without Retry-After`] : []),
    ...(reason === undefined ? [`${marker}: 503 without a reason`] : []),
    ...(expected.includes(outcome) ? [] : [`${marker}: ${kind} answered 503 with outcome ${outcome}`]),
  ]
}

function storedFaults({ status, marker, dryRun, outcome }: Sent, count: number): string[] {
  if (count > 1) return [`${marker}: ${count} audit rows`]
  if (dryRun) return count === 0 ? [] : [`${marker}: a dry run was stored`]
  if (status === 200) return count === 1 ? [] : [`${marker}: acknowledged and not there`]
  if (status === 412) return count === 0 ? [] : [`${marker}: refused with 412 and there`]
  if (outcome === 'applied') return count === 1 ? [] : [`${marker}: said to be applied and not there`]
  if (outcome === 'not_applied') return count === 0 ? [] : [`${marker}: said not to be applied and there`]
  return []
}

function chainFaults(resource: ResourceRow, rows: readonly AuditRow[]): string[] {
  const name = `${resource.kind} ${resource.id}`
  const own = rows.filter(row => row.resource_kind === resource.kind && row.resource_id === resource.id)
  const faults: string[] = []
  let previous = { version_after: 1, hash: '0'.repeat(64) }
  for (const row of own) {
    if (row.version_before !== previous.version_after)
      faults.push(`${name}: audit row ${row.version_after} skips a version`)
    if (row.previous_hash !== previous.hash) faults.push(`${name}: the chain breaks at ${row.version_after}`)
    previous = row
  }
  if (resource.version !== previous.version_after)
    faults.push(`${name}: version ${resource.version} without its audit row`)
  if (resource.audit_head !== previous.hash) faults.push(`${name}: the head is not the last audit row's`)
  if (resource.audit_count !== own.length)
    faults.push(`${name}: ${own.length} audit rows, ${resource.audit_count} counted`)
  return faults
}

/** The fields as the last audit row that names them says, against what the tables hold. */
async function stateFaults(cluster: Queried): Promise<string[]> {
  const rows = await cluster.query<{ name: string; field: string; told: string; stored: string }>(STATE)
  return rows.map(({ name, field, told, stored }) => `${name}: ${field} is ${stored} and the audit trail says ${told}`)
}

const AUDIT = `
  select resource_kind, resource_id, version_before, version_after, difference -> 'description' ->> 'to' as marker,
    encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash
  from audit order by resource_kind, resource_id, version_after`

const RESOURCES = `
  select 'persona' as kind, id, version, encode(audit_head, 'hex') as audit_head, audit_count from persona
  union all select 'tool', id, version, encode(audit_head, 'hex'), audit_count from tool`

const STATE = `
  with stored as (
    select 'persona' as kind, id, 'description' as field, to_jsonb(description) as value from persona
    union all select 'persona', p.id, 'tool_ids',
      (select coalesce(jsonb_agg(tool_id order by tool_id), '[]') from persona_tool where persona_id = p.id) from persona p
    union all select 'persona', p.id, 'label_ids',
      (select coalesce(jsonb_agg(label_id order by label_id), '[]') from persona_label where persona_id = p.id) from persona p
    union all select 'tool', id, 'description', to_jsonb(description) from tool
    union all select 'tool', id, 'definition', to_jsonb(encode(definition_hash, 'hex')) from tool
    union all select 'tool', t.id, 'custom_headers', (
      select jsonb_agg(jsonb_build_object('key', name, 'value', '****#' || left(encode(fingerprint, 'hex'), 12)) order by position)
      from tool_header where tool_id = t.id) from tool t
  ), told as (
    select distinct on (resource_kind, resource_id, changed.key)
      resource_kind as kind, resource_id as id, changed.key as field, (changed.value -> 'to')::jsonb as value
    from audit cross join json_each(difference) changed order by 1, 2, 3, version_after desc
  )
  select kind || ' ' || id as name, field, told.value::text as told, stored.value::text as stored
  from told join stored using (kind, id, field)
  where told.value is distinct from stored.value
    and not (field in ('tool_ids', 'label_ids') and stored.value = (select jsonb_agg(e order by e) from jsonb_array_elements(told.value) e))
    and not (told.value = '[]' and stored.value is null)`
