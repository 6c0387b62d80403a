import { findings, type Queried } from '../faults/findings.js'
import { keyOf, type Recorded, versionOf } from './clients.js'

interface StoredUpdate {
  marker: string
  version_before: number
  version_after: number
}

export interface Checked {
  /** What a client was told that is not true, a sentence each. */
  faults: string[]
  /** The updates that are stored, by their markers. */
  stored: Map<string, StoredUpdate>
}

/**
 * Compares everything that clients were told with what the database holds in the end. Beside the checks of `findings`
 * (gap-free versions, hash chains, acknowledged exactly once, `not_applied` never there): the version of each
 * acknowledgement is the stored one, updates stand in real-time order, and no client is shown less than it was
 * acknowledged.
 */
export async function check(cluster: Queried, sent: readonly Recorded[], mayLose: boolean): Promise<Checked> {
  const first = sent.filter(({ attempt }) => attempt === 0)
  const repeats = sent.filter(({ attempt }) => attempt > 0)
  const { faults, rowsByMarker } = await findings(cluster, first, mayLose)
  const stored = await storedUpdates(cluster)
  return {
    stored,
    faults: [
      ...faults,
      ...repeats.flatMap(repeat => repeatFaults(repeat, rowsByMarker.get(repeat.marker) ?? 0)),
      ...first.flatMap(request => versionFaults(request, stored.get(request.marker))),
      ...sent.flatMap(staleFaults),
      ...sent.flatMap(request => tellingFaults(request, stored.get(request.marker))),
      ...orderFaults(sent, stored),
    ],
  }
}

async function storedUpdates(cluster: Queried): Promise<Map<string, StoredUpdate>> {
  const rows = await cluster.query<StoredUpdate & Record<string, unknown>>(STORED)
  return new Map(rows.map(row => [row.marker, row]))
}

const STORED = `
  select difference -> 'description' ->> 'to' as marker, version_before, version_after
  from audit where difference -> 'description' ->> 'to' is not null`

/** The same update sent again, because its outcome was open: it may be there from before, but once. */
function repeatFaults({ marker, status, text }: Recorded, count: number): string[] {
  if (status !== 0 && status !== 200 && status !== 412 && status !== 503)
    return [`${marker}: answered ${status}: ${text}`]
  if (count > 1) return [`${marker}: repeated, and ${count} audit rows`]
  return status === 200 && count === 0 ? [`${marker}: acknowledged when repeated, and not there`] : []
}

function versionFaults(request: Recorded, stored: StoredUpdate | undefined): string[] {
  const { marker, status, dryRun, version, ifMatch } = request
  if (status !== 200 || dryRun || stored === undefined) return []
  return [
    // An update that had to be settled is answered from the present state: that may be a later version.
    ...(stored.version_after <= version
      ? []
      : [`${marker}: acknowledged as version ${version}, stored as ${stored.version_after}`]),
    ...(ifMatch === undefined || stored.version_before === versionOf(ifMatch)
      ? []
      : [`${marker}: If-Match ${ifMatch}, and it replaced version ${stored.version_before}`]),
  ]
}

/** A client is never shown less than it was acknowledged, nor refused for a version that it has seen replaced. */
function staleFaults(request: Recorded): string[] {
  const { marker, client, status, version, floor, ifMatch, isRead } = request
  const name = `${marker} (${client}, ${keyOf(request)})`
  if (isRead && status === 200 && version < floor) return [`${name}: read version ${version} after its own ${floor}`]
  if (status !== 412) return []
  if (version < floor) return [`${name}: 412 names version ${version} after its own ${floor}`]
  if (version === versionOf(ifMatch)) return [`${name}: 412 although ${ifMatch} is current`]
  return version < versionOf(ifMatch) ? [`${name}: 412 names version ${version}, older than ${ifMatch}`] : []
}

/** A 412 says in which version this very update is stored, if it is: from an attempt before whose outcome was open. */
function tellingFaults({ marker, status, storedVersion }: Recorded, stored: StoredUpdate | undefined): string[] {
  const truth = stored?.version_after ?? 0
  if (status !== 412 || storedVersion === truth) return []
  return [`${marker}: 412 says that it is stored as version ${storedVersion}, and it is as ${truth}`]
}

/** An update that began after another's acknowledgement has the higher version. */
function orderFaults(sent: readonly Recorded[], stored: ReadonlyMap<string, StoredUpdate>): string[] {
  const acknowledged = sent.flatMap(({ status, dryRun, attempt, marker, startedAt, endedAt, kind, id }) => {
    const version = stored.get(marker)?.version_after
    if (status !== 200 || dryRun || attempt > 0 || version === undefined) return []
    return [{ key: keyOf({ kind, id }), version, startedAt, endedAt }]
  })
  return [...new Set(acknowledged.map(({ key }) => key))].flatMap(key => {
    const faults: string[] = []
    let earliestEnd = Number.POSITIVE_INFINITY
    const updates = acknowledged.filter(update => update.key === key).sort((a, b) => b.version - a.version)
    for (const { version, startedAt, endedAt } of updates) {
      if (startedAt > earliestEnd)
        faults.push(`${key}: version ${version} was begun after a later one was acknowledged`)
      earliestEnd = Math.min(earliestEnd, endedAt)
    }
    return faults
  })
}
