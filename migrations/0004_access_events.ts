import { createHash, randomUUID } from 'node:crypto'
import { type Kysely, sql } from 'kysely'
import { limitStatements } from '../src/db/time-limit.js'

export const oldestProgram = '1.0.0'

export const locks = ['audit: exclusive, for columns that may be null; before that it is read once']

/**
 * Changes of access as events with chains of their own, the leaves of the tree over all hashes, and in audit rows what lets
 * people be erased and content be compared. What was pruned before is noted, so that it is not taken for tampering.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await limitStatements(db, 0, 'transaction')
  await sql`
    create table access_chain (
      kind text not null,
      subject text not null,
      number integer not null,
      hash bytea not null,
      constraint access_chain_pk primary key (kind, subject)
    );

    create table access_event (
      kind text not null,
      subject text not null,
      number integer not null,
      at timestamptz not null,
      action text not null,
      actor text not null,
      request_id text not null,
      client_address text not null,
      command text,
      salt text,
      identity_hash bytea not null,
      person text,
      person_salt text,
      person_hash bytea,
      detail json not null,
      previous_hash bytea not null,
      hash bytea not null,
      constraint access_event_pk primary key (kind, subject, number)
    );
    create index access_event_by_time on access_event using brin (at);

    create table audit_leaf (
      position bigint not null constraint audit_leaf_pk primary key,
      kind text not null,
      subject text not null,
      number integer not null,
      hash bytea not null,
      constraint audit_leaf_unique unique (kind, subject, number)
    );

    create table audit_tree (
      one boolean generated always as (true) stored constraint audit_tree_pk primary key,
      size bigint not null,
      subtrees bytea not null
    );
  `.execute(db)
  await notePruned(db)
  await sql`
    alter table audit add column command text, add column salt text, add column identity_hash bytea,
      add column content_hash bytea`.execute(db)
}

interface Pruned {
  subject: string
  anchor_version: number
  anchor_hash: string
  emptied_to: number
}

async function notePruned(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<Pruned>`
    with resource as (
      select 'persona' as kind, id, audit_anchor, audit_anchor_version from persona
      union all select 'tool', id, audit_anchor, audit_anchor_version from tool
    ), emptied as (
      select resource_kind as kind, resource_id as id, max(version_after) as version
      from audit where difference is null group by 1, 2
    )
    select kind || ':' || id as subject, coalesce(r.audit_anchor_version, 0) as anchor_version,
      encode(coalesce(r.audit_anchor, decode(repeat('00', 32), 'hex')), 'hex') as anchor_hash,
      coalesce(e.version, 0) as emptied_to
    from resource r full join emptied e using (kind, id)
    where r.audit_anchor_version > 0 or e.version is not null`.execute(db)
  const at = new Date().toISOString().replace('Z', '000Z')
  const events = rows.map(({ subject, ...mark }) => {
    const detail = JSON.stringify({ ...mark, content_hash: null })
    const salt = randomUUID()
    const identity = sha256(JSON.stringify([salt, 'migration', 'local']))
    const genesis = '0'.repeat(64)
    const said = ['prune', subject, 1, at, 'before_upgrade', identity, '0004', null, null, sha256(detail), genesis]
    return { subject, at, detail, salt, identity, hash: sha256(JSON.stringify(said)) }
  })
  await sql`
    with event as (
      insert into access_event (kind, subject, number, at, action, actor, request_id, client_address, salt, identity_hash,
        detail, previous_hash, hash)
      select 'prune', subject, 1, at, 'before_upgrade', 'migration', '0004', 'local', salt, decode(identity, 'hex'),
        detail::json, decode(repeat('00', 32), 'hex'), decode(hash, 'hex')
      from json_to_recordset(${JSON.stringify(events)}::json)
        given (subject text, at timestamptz, detail text, salt text, identity text, hash text)
      returning kind, subject, number, hash
    )
    insert into access_chain (kind, subject, number, hash) select kind, subject, number, hash from event`.execute(db)
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
