import { createHash, randomUUID } from 'node:crypto'
import { type Kysely, type RawBuilder, sql } from 'kysely'
import { limitStatements } from '../src/db/time-limit.js'

export const oldestProgram = '1.0.0'

export const locks = ['none: it reads rights, and adds events']

const SUBJECTS_AT_ONCE = 1_000

/** The states as they are recorded at this version of the schema. */
const STATES: Record<string, RawBuilder<unknown>> = {
  user: sql`select id::text as subject, email as person,
      json_build_object('kind', kind, 'active', active, 'permissions', permissions) as detail from user_account`,
  group: sql`select id::text as subject, null as person, json_build_object('name', name, 'permissions', permissions,
        'members', array(select user_id from user_group_member m where m.user_group_id = g.id and not is_manager order by 1),
        'managers', array(select user_id from user_group_member m where m.user_group_id = g.id and is_manager order by 1)
      ) as detail from user_group g`,
  token: sql`select id::text as subject, (select email from user_account u where u.id = user_id) as person,
      json_build_object('user', user_id, 'hash', encode(hash, 'hex'), 'scopes', scopes, 'persona_ids', persona_ids,
        'tool_ids', tool_ids, 'requires_if_match', requires_if_match, 'expires_at', ${utc('expires_at')},
        'revoked_at', ${utc('revoked_at')}) as detail from token`,
  document_set: sql`select id::text as subject, null as person, json_build_object('is_public', is_public,
        'users', array(select user_id from document_set_user where document_set_id = s.id order by 1),
        'groups', array(select user_group_id from document_set_group where document_set_id = s.id order by 1)
      ) as detail from document_set s`,
  mcp_server: ownedBy('mcp_server'),
  oauth_config: ownedBy('oauth_config'),
  user_file: ownedBy('user_file'),
}

/**
 * What was made before events were kept gets one that says what it is at this moment. From here on a user, group, token and so
 * on without an event is one that was put there by SQL.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await limitStatements(db, 0, 'transaction')
  for (const [kind, states] of Object.entries(STATES)) {
    for (let after: string | undefined = ''; after !== undefined; ) after = await recordSome(db, kind, states, after)
  }
}

/** Answers the last subject, or undefined at the end. */
async function recordSome(
  db: Kysely<unknown>,
  kind: string,
  states: RawBuilder<unknown>,
  after: string,
): Promise<string | undefined> {
  const { rows } = await sql<{ subject: string; person: string | null; detail: string }>`
    select subject, person, detail::text as detail from (${states}) state
    where subject collate "C" > ${after}
      and not exists (select from access_chain c where c.kind = ${kind} and c.subject = state.subject)
    order by subject collate "C" limit ${SUBJECTS_AT_ONCE}::integer`.execute(db)
  const at = new Date().toISOString().replace('Z', '000Z')
  const events = rows.map(({ subject, person, detail }) => {
    const [salt, personSalt] = [randomUUID(), person === null ? null : randomUUID()]
    const identity = sha256(JSON.stringify([salt, 'migration', 'local']))
    const personHash = personSalt === null ? null : sha256(JSON.stringify([personSalt, person]))
    const genesis = '0'.repeat(64)
    const said = [kind, subject, 1, at, 'before_upgrade', identity, '0009', null, personHash, sha256(detail), genesis]
    const hash = sha256(JSON.stringify(said))
    return { subject, at, salt, identity, person, person_salt: personSalt, person_hash: personHash, detail, hash }
  })
  // A subject that another process records at this moment has its chain already.
  await sql`
    with given as (
      select * from json_to_recordset(${JSON.stringify(events)}::json) given (subject text, at timestamptz, salt text,
        identity text, person text, person_salt text, person_hash text, detail text, hash text)
    ), chain as (
      insert into access_chain (kind, subject, number, hash)
      select ${kind}::text, subject, 1, decode(hash, 'hex') from given order by subject
      on conflict do nothing returning subject
    )
    insert into access_event (kind, subject, number, at, action, actor, request_id, client_address, salt, identity_hash,
      person, person_salt, person_hash, detail, previous_hash, hash)
    select ${kind}::text, subject, 1, at, 'before_upgrade', 'migration', '0009', 'local', salt, decode(identity, 'hex'),
      person, person_salt, decode(person_hash, 'hex'), detail::json, decode(repeat('00', 32), 'hex'), decode(hash, 'hex')
    from given join chain using (subject)`.execute(db)
  return rows.at(-1)?.subject
}

function utc(column: string): RawBuilder<string> {
  return sql`to_char(${sql.ref(column)} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

function ownedBy(table: string): RawBuilder<unknown> {
  return sql`select id::text as subject, null as person, json_build_object('owner', to_jsonb(owned) -> 'owner_id') as detail
    from ${sql.table(table)} owned`
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
