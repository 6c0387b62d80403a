import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { ResourceKind, Tables } from '../../db/tables.js'
import { auditedPersona } from '../../persona/resource.js'
import type { PersonaState } from '../../persona/state.js'
import { shownHeaders } from '../../tool/headers.js'
import { auditedTool } from '../../tool/resource.js'
import type { ToolState } from '../../tool/snapshot.js'
import { auditHash, commitment, type StoredRow, sha256 } from '../../updates/audit.js'
import { ROW_COLUMNS } from '../../updates/audit-rows.js'
import { isPruningMark, type PruningMark, UNPRUNED } from '../../updates/prune.js'
import { isJsonObject } from '../../validation/vocabulary.js'
import { readPersonaStates } from '../apply/personas.js'
import { readToolStates } from '../apply/tools.js'
import { ERASED } from '../erasure.js'
import { counted } from '../refusal.js'
import { scan } from '../scan.js'
import type { AuditFinding, AuditVerification, Erasures, Problem } from './finding.js'

const ROWS_AT_ONCE = 50
/** Longer differences are hashed by the database and not loaded. */
const DIFFERENCE_BYTES_MAX = 64 * 1024
const CONTENTS_AT_ONCE = 100
const CONTENT_BYTES_AT_ONCE = 4 * 2 ** 20

/** The end of a resource's chain as its row has it, with its pruning mark. Hashes are hex. */
interface Head {
  id: number
  /** The size of the row as text. */
  bytes: number | null
  /** Null if the resource was removed; the next four fields too. */
  version: number | null
  audit_head: string
  audit_count: number
  audit_anchor: string
  audit_anchor_version: number
  mark: unknown
  /** Rows up to this version may have the format of version 1.1 or older, for which only the links are verified. */
  upgraded_version: number
}

/** An audit row with the results of the database's checks. `difference` is JSON text, if it is short. */
type Row = StoredRow & { has_difference: boolean; is_hashed: boolean; difference: string | null }

/** Verifies the chain and the content of each agent or tool, and adds to the result. */
export async function verifyResources(
  trx: Transaction<Tables>,
  kind: ResourceKind,
  erasures: Erasures,
  result: AuditVerification,
): Promise<void> {
  const rows = scan(trx, 'audit_rows', rowsOf(kind), ROWS_AT_ONCE)
  let row = (await rows.next()).value
  let chains: Chain[] = []
  let bytes = 0
  const compare = async () => {
    await compareContents(trx, kind, chains)
    result.findings.push(...chains.flatMap(({ findings }) => findings))
    chains = []
    bytes = 0
  }
  for await (const head of scan(trx, 'audit_heads', headsOf(kind), ROWS_AT_ONCE)) {
    const chain = new Chain(kind, head, erasures)
    for (; row?.resource_id === head.id; row = (await rows.next()).value) {
      chain.follow(row)
      result.rows++
    }
    chain.end()
    result.chains++
    if (chains.length === CONTENTS_AT_ONCE || bytes + (head.bytes ?? 0) > CONTENT_BYTES_AT_ONCE) await compare()
    chains.push(chain)
    bytes += head.bytes ?? 0
  }
  await compare()
}

function headsOf(kind: ResourceKind): RawBuilder<Head> {
  return sql<Head>`
    select id, octet_length(r::text) as bytes, r.version, encode(r.audit_head, 'hex') as audit_head, r.audit_count,
      encode(r.audit_anchor, 'hex') as audit_anchor, r.audit_anchor_version,
      (select e.detail from access_chain c join access_event e using (kind, subject, number)
       where c.kind = 'prune' and c.subject = concat(${sql.lit(`${kind}:`)}::text, id)) as mark,
      coalesce((select number from audit_upgrade_head u where u.kind = ${sql.lit(kind)} and u.subject = id::text), 0)
        as upgraded_version
    from (select id from ${sql.table(kind)}
          union select resource_id from audit where resource_kind = ${sql.lit(kind)}) existing
    left join ${sql.table(kind)} r using (id) order by id`
}

function rowsOf(kind: ResourceKind): RawBuilder<Row> {
  return sql<Row>`
    select ${ROW_COLUMNS}, difference is not null as has_difference,
      coalesce(octet_length(difference::text) = difference_bytes and json_typeof(difference) = 'object'
        and sha256(convert_to(difference::text, 'UTF8')) = difference_hash, false) as is_hashed,
      case when octet_length(difference::text) <= ${sql.lit(DIFFERENCE_BYTES_MAX)} then difference::text end as difference
    from audit where resource_kind = ${sql.lit(kind)} order by resource_id, version_after`
}

const EDITED: Problem = ['edited', 'the row does not have the content that its hash was made of']
const EMPTIED: Problem = ['emptied', 'its changes are missing, and no pruning is recorded']
const ERASED_BY_HAND: Problem = ['erased', 'who made the change was erased, and no erasure says so']

/** Verifies the chain of one agent or tool, row by row. */
class Chain {
  readonly findings: AuditFinding[] = []
  readonly #mark: PruningMark
  /** The mark at which the remaining rows begin. */
  readonly #start: PruningMark
  #version: number
  #hash: string
  #last: Row | undefined
  #wasEdited = false

  constructor(
    readonly kind: ResourceKind,
    readonly head: Head,
    readonly erasures: Erasures,
  ) {
    this.#mark = isPruningMark(head.mark) ? head.mark : UNPRUNED
    this.#start = this.#mark.anchor_version === 0 && head.version === null ? UNPRUNED : this.#mark
    this.#version = this.#start.anchor_version
    this.#hash = this.#start.anchor_hash
    if (head.id < 1) this.note(0, 'unrecorded', 'no id is below 1: it was put there by SQL')
  }

  note(number: number, problem: AuditFinding['problem'], msg: string): void {
    this.findings.push({ kind: this.kind, subject: String(this.head.id), number, problem, msg })
  }

  /** Verifies the next row, and its link to the previous one. */
  follow(row: Row): void {
    const problem = this.#problemOf(row)
    if (problem) this.note(row.version_after, ...problem)
    const isEdited = problem?.[0] === 'edited'
    if (row.version_before > this.#version) {
      const gone = counted(row.version_before - this.#version, 'row')
      const msg = `missing before version ${row.version_after}: ${gone}, and no pruning is recorded`
      this.note(this.#version + 1, 'deleted', msg)
    } else if (row.previous_hash !== this.#hash && !isEdited && !this.#wasEdited) {
      const msg = 'the row does not follow the one before it: one of the two was replaced or moved'
      this.note(row.version_after, 'reordered', msg)
    }
    this.#wasEdited = isEdited
    this.#version = row.version_after
    this.#hash = row.hash
    this.#last = row
  }

  /** Returns the fault of a row. The row's hash stays valid after pruning and erasure: it covers hashes of the difference and the person. */
  #problemOf(row: Row): Problem | undefined {
    if (row.identity_hash === null) return row.version_after > this.head.upgraded_version ? EDITED : undefined
    const isErased = row.salt === null && row.actor === ERASED && row.client_address === ERASED
    const erasure = this.erasures.get(`${this.kind}:${row.resource_id}:${row.version_after}`)
    if (isErased && erasure === undefined) return ERASED_BY_HAND
    if (auditHash(row) !== row.hash || (isErased && erasure !== row.hash)) return EDITED
    if (!isErased && commitment(row.salt ?? '', row.actor, row.client_address) !== row.identity_hash) return EDITED
    if (!row.has_difference) {
      if (row.version_after > this.#mark.emptied_to) return EMPTIED
      return row.definition_before === null ? undefined : EDITED
    }
    if (!row.is_hashed) return EDITED
    if (row.difference === null) return this.kind === 'persona' && row.definition_before !== null ? EDITED : undefined
    return replacedDefinition(row.difference) === row.definition_before ? undefined : EDITED
  }

  /** Verifies the end of the chain after its last row. */
  end(): void {
    const { version, audit_head, audit_count, audit_anchor, audit_anchor_version: anchor } = this.head
    if (version === null) {
      if (this.#last?.fields.includes('removed') !== true && this.#version > this.#mark.anchor_version)
        this.note(this.#version, 'resource_missing', 'it is gone, and no row says that it was removed')
      return
    }
    if (anchor !== this.#start.anchor_version || audit_anchor !== this.#start.anchor_hash) {
      const msg = `the resource says that rows up to version ${anchor} were pruned, and no pruning is recorded`
      this.note(anchor, 'anchor_mismatch', msg)
    }
    if (version < 1) this.note(version, 'unrecorded', 'it is there, and no row says that it was made')
    if (this.#version < version) {
      const gone = counted(version - this.#version, 'row')
      this.note(this.#version + 1, 'deleted', `missing at the end, up to version ${version}: ${gone}`)
    } else if (this.#version > version) {
      const msg = `there are rows up to version ${this.#version}, beyond that of the resource`
      this.note(version + 1, 'head_mismatch', msg)
    } else if (this.#hash !== audit_head) {
      this.note(this.#version, 'head_mismatch', 'the last row is not the one that the resource names as its head')
    }
    if (audit_count !== version) {
      this.note(version, 'head_mismatch', `the resource counts ${audit_count} changes at version ${version}`)
    }
  }

  /** The content hash of the last row; null if it has none; undefined if the chain is incomplete. */
  get contentHash(): string | null | undefined {
    const { version_after: end, content_hash } = this.#last ?? {
      ...this.#mark,
      version_after: this.#mark.anchor_version,
    }
    return end === this.head.version ? content_hash : undefined
  }
}

/** The hash of the replaced definition in a difference; undefined if the difference is malformed. */
function replacedDefinition(text: string): unknown {
  const difference: unknown = JSON.parse(text)
  if (!isJsonObject(difference) || !Object.values(difference).every(isJsonObject)) return undefined
  const { definition } = difference as { definition?: { from?: unknown } } // all values are objects
  return definition?.from ?? null
}

/** Compares the stored content with the content hash of the last row. Older rows have no such hash; for them it compares the remaining differences. */
async function compareContents(trx: Transaction<Tables>, kind: ResourceKind, chains: readonly Chain[]): Promise<void> {
  const compared = chains.filter(chain => chain.contentHash !== undefined)
  const ids = compared.map(({ head }) => head.id)
  const states = await (kind === 'persona' ? readPersonaStates(trx, ids) : readToolStates(trx, ids))
  for (const chain of compared) {
    const state = states.get(chain.head.id)
    if (state === undefined) continue
    const audited = 'headers' in state ? auditedTool(state, state.headers) : auditedPersona(state)
    const isSame =
      chain.contentHash === null
        ? await agreesWithChanges(trx, chain, state)
        : chain.contentHash === sha256(JSON.stringify(audited))
    if (!isSame) {
      chain.note(chain.head.version ?? 0, 'content_mismatch', 'what is stored is not what the last row says')
    }
  }
}

/** True if each field has the value of its last change that is still stored. */
async function agreesWithChanges(
  trx: Transaction<Tables>,
  { kind, head }: Chain,
  state: PersonaState | ToolState,
): Promise<boolean> {
  const shown =
    'headers' in state ? { definition: state.definition_hash, custom_headers: shownHeaders(state.headers) } : {}
  const fields = new Map<string, unknown>(Object.entries({ ...state, ...shown }))
  // Parsed here because PostgreSQL cannot unpack all JSON that it stores.
  const rows = sql<{ difference: string }>`
    select difference::text as difference from audit
    where resource_kind = ${sql.lit(kind)} and resource_id = ${sql.lit(head.id)} and json_typeof(difference) = 'object'
    order by version_after`
  const last = new Map<string, unknown>()
  for await (const { difference } of scan(trx, 'differences', rows, 1)) {
    for (const [field, change] of Object.entries<unknown>(JSON.parse(difference))) {
      if (isJsonObject(change)) last.set(field, change.to)
    }
  }
  return [...last].every(
    ([field, to]) => !fields.has(field) || JSON.stringify(fields.get(field)) === JSON.stringify(to),
  )
}
