import { PassThrough } from 'node:stream'
import type { LightMyRequestResponse } from 'fastify'
import { type Kysely, type RawBuilder, sql } from 'kysely'
import t, { type Test } from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { hashToken } from '../../src/auth/token.js'
import type { Tables } from '../../src/db/tables.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { eventually } from '../eventually.js'
import { DEFINITION, matrixOrganisation } from '../matrix-organisation.js'
import { untilLocked } from '../updates/stored-state.js'
import { comparable } from './observed.js'

/*
 * A right that is lost while the body arrives has no effect: the request is answered like a later one, and nothing is stored (DECISIONS section 6).
 * Tests each loss with each operation, on each way through the update engine.
 */
const email = (name: string) => `${name}@example.com`

/** SQL that takes a right away (`lost`) and gives it back (`had`), with the placeholders <token>, <user> and <email>. */
interface Loss {
  caller: string
  lost: string
  had: string
}

const USER = 'email = <email>'
const TOKEN = 'id = <token>'
const SHARE = 'where persona_id = 101 and user_id = <user>'
const MEMBER = 'user_id = <user>'
const ADMINS = "where name = 'Admins'"
const LOSSES = {
  persona: [
    ...everybody('owner'),
    loss('owner', ...['null', '<user>'].map(owner => `update persona set owner_id = ${owner} where id = 101`)),
    loss('editor', ...['viewer', 'editor'].map(level => `update persona_user set level = '${level}' ${SHARE}`)),
    membership('group-editor', 'Editors'),
    permissions('admin', '{admin}'),
    loss('group-admin', ...['{}', '{admin}'].map(held => `update user_group set permissions = '${held}' ${ADMINS}`)),
    column('admin', 'scopes', "'{manage:actions}'"),
    column('admin', 'persona_ids', "'{102}'"),
    column('admin', 'tool_ids', "'{204}'"),
    column('owner', 'requires_if_match', 'true', 'false'),
  ],
  tool: [
    ...everybody('actions'),
    permissions('actions', '{manage:actions}'),
    permissions('admin', '{admin}'),
    column('actions', 'scopes', "'{basic}'"),
    column('actions', 'tool_ids', "'{205}'"),
    column('actions', 'requires_if_match', 'true', 'false'),
    membership('group-actions', 'Actions'),
    loss('manager', ...['false', 'true'].map(is => `update user_group_member set is_manager = ${is} where ${MEMBER}`)),
    column('manager', 'scopes', "'{basic}'"),
    loss(
      'manager',
      `insert into persona_tool (persona_id, tool_id) values (100, 204)`,
      `delete from persona_tool where persona_id = 100 and tool_id = 204`,
    ),
  ],
}

/** The losses that are possible for every caller. */
function everybody(caller: string): Loss[] {
  return [
    column(caller, 'revoked_at', 'now()'),
    column(caller, 'expires_at', "now() - interval '1 second'", "now() + interval '1 day'"),
    loss(caller, ...[false, true].map(active => `update user_account set active = ${active} where ${USER}`)),
  ]
}

function loss(caller: string, lost = '', had = ''): Loss {
  return { caller, lost, had }
}

function column(caller: string, name: string, lost: string, had = 'null'): Loss {
  return loss(caller, ...[lost, had].map(value => `update token set ${name} = ${value} where ${TOKEN}`))
}

function permissions(caller: string, held: string): Loss {
  return loss(caller, ...['{}', held].map(value => `update user_account set permissions = '${value}' where ${USER}`))
}

function membership(caller: string, group: string): Loss {
  const had = `insert into user_group_member select <user>, id, false from user_group where name = '${group}'`
  return loss(caller, `delete from user_group_member where ${MEMBER}`, had)
}

/** A request. `title` names its way through the update engine. */
interface Way {
  title: string
  method: string
  url: string
  body(count: number): object
  headers?: Record<string, string>
  /** The status if no right is lost. Default: 200. */
  kept?: number
}

/** The ways whose requests name no field, so they wait for no lock and need no If-Match. */
const READS = ['read', 'minimal read', 'impact']

const MINIMAL = { headers: { prefer: 'return=minimal' }, kept: 204 }
const agent = '/persona/101?update_mask='
const tool = '/admin/tool/custom/204'
const described = (n: number) => ({ description: `d${n}` })
const redefined = (n: number) => ({ definition: { ...DEFINITION, info: { title: `Weather ${n}` } } })
const way = (title: string, method: string, url: string, body: Way['body'] = () => ({}), more: Partial<Way> = {}) => {
  return { title, method, url, body, ...more }
}
const WAYS = {
  persona: [
    way('by one statement', 'PATCH', `${agent}description`, described),
    way('in a transaction', 'PATCH', `${agent}label_ids`, n => ({ label_ids: [1 + (n % 2)] })),
    way('dry run', 'PATCH', `${agent}description&dry_run=true`, described),
    way('read', 'PATCH', agent),
    way('minimal read', 'PATCH', agent, () => ({}), MINIMAL),
  ],
  tool: [
    way('by one statement', 'PUT', tool, described),
    way('in a transaction', 'PUT', tool, redefined),
    way('dry run', 'PUT', `${tool}?dry_run=true`, described),
    way('read', 'PUT', tool),
    way('minimal read', 'PUT', tool, () => ({}), MINIMAL),
    way('impact', 'POST', '/admin/tool/custom/validate?tool_id=204', () => ({ definition: DEFINITION })),
  ],
}

const world = await worldApp(t)
await applyOrganisation(world.database, matrixOrganisation(), { ring: world.ring, env: {} })
await sql`insert into label (id, name) values (1, 'one'), (2, 'two') on conflict do nothing`.execute(world.database.db)
let count = 0

type Sent = { answer: Promise<LightMyRequestResponse> }
/** Sends a request and runs `meanwhile` between the request's authentication and its write. */
type Send = (way: Way, token: string, meanwhile: (executor: Executor) => Promise<void>) => Promise<Sent>
type Executor = Kysely<Tables>

/** The callers and ways for which a request without a loss has succeeded. */
const controlled = new Set<string>()

async function requireLost(t: Test, way: Way, loss: Loss, send: Send): Promise<void> {
  const { token, values } = await callerOf(loss.caller)
  const title = `${loss.caller}: ${loss.lost}`
  const { kept = 200 } = way
  const served = `${loss.caller}, nothing lost, ${way.title} ${way.method} ${way.url}`
  if (!controlled.has(served)) {
    const control = await (await send(way, token, async () => {})).answer
    t.equal(control.statusCode, kept, `${served}: ${control.body}`)
    controlled.add(served)
  }
  const before = await stored()
  const { answer } = await send(way, token, executor => run(executor, loss.lost, values))
  const refused = await answer
  const afterwards = await ask(way, token, JSON.stringify(way.body(count++)))
  t.strictSame(withoutExpiry(refused), withoutExpiry(afterwards), `${title}: as if it had come then`)
  t.equal(refused.statusCode === kept, !isNeeded(way, loss), title)
  t.equal(await stored(), before, `${title}: nothing is stored`)
  await run(world.database.db, loss.had, values)
}

/** Removes the token's expiry and quotas, which are read when the request arrives. */
function withoutExpiry(answer: LightMyRequestResponse): unknown {
  delete answer.headers['token-expires-at']
  delete answer.headers['ratelimit-policy']
  return comparable(answer)
}

/** True if the request needs the right. A request that names no field needs no If-Match. */
function isNeeded({ title }: Way, { lost }: Loss): boolean {
  return !lost.includes('requires_if_match') || !READS.includes(title)
}

/** Takes the right away before the body arrives. The service authenticates the caller before it reads the body. */
const slowly: Send = async (way, token, meanwhile) => {
  const payload = new PassThrough()
  const answer = ask(way, token, payload)
  await eventually(() => payload.listenerCount('readable') > 0)
  await meanwhile(world.database.db)
  payload.end(JSON.stringify(way.body(count++)))
  return { answer }
}

/** Takes the right away while the request waits for a locked row. */
const behindLock: Send = async (way, token, meanwhile) => {
  return await world.database.db.transaction().execute(async trx => {
    await sql`select from persona where id = 101 for no key update`.execute(trx)
    await sql`select from tool where id in (202, 204) for no key update`.execute(trx)
    const answer = ask(way, token, JSON.stringify(way.body(count++)))
    await untilLocked(world.database)
    await meanwhile(trx)
    return { answer }
  })
}

function requireAllLost(way: Way, losses: Loss[], send: Send): void {
  const when = send === slowly ? 'the body is on its way' : "the request waits for the row's lock"
  t.test(`${way.title} ${way.method} ${way.url}: what is lost while ${when}`, async t => {
    for (const loss of losses) await requireLost(t, way, loss, send)
  })
}

for (const kind of ['persona', 'tool'] as const) {
  for (const way of WAYS[kind]) {
    requireAllLost(way, LOSSES[kind], slowly)
    const waits = !READS.includes(way.title) && way.title !== 'dry run'
    if (waits) requireAllLost(way, LOSSES[kind], behindLock)
  }
}

const AGENT = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }
const TOOL = { name: 'new', definition: DEFINITION, passthrough_auth: false }
const [created, deleted] = [{ kept: 201 }, { kept: 204 }]
const bound = [column('admin', 'persona_ids', "'{102}'"), column('admin', 'tool_ids', "'{204}'")]
/** Returns the losses of matching callers, except the losses of the column `but`. */
const lossesOf = (kind: 'persona' | 'tool', callers: RegExp, but: string) =>
  LOSSES[kind].filter(({ caller, lost }) => callers.test(caller) && !lost.includes(but))

const newAgent = way('creation', 'POST', '/persona?dry_run=true', () => AGENT, created)
requireAllLost(newAgent, [...everybody('owner'), ...bound], slowly)
const newTool = way('creation', 'POST', '/admin/tool/custom?dry_run=true', () => TOOL, created)
requireAllLost(newTool, lossesOf('tool', /^actions$/, 'requires_if_match'), slowly)
const noAgent = way('deletion', 'DELETE', '/persona/101?dry_run=true', undefined, deleted)
requireAllLost(noAgent, lossesOf('persona', /^(owner|admin|group-admin)$/, 'nothing'), behindLock)
const noTool = way('deletion', 'DELETE', '/admin/tool/custom/202?dry_run=true', undefined, deleted)
requireAllLost(noTool, lossesOf('tool', /^(?!manager)/, 'tool_ids'), behindLock)

const OTHER = { ...DEFINITION, info: { ...DEFINITION.info, title: 'Other' } }
const OTHER_TEXT = JSON.stringify(OTHER)
const BLOCKERS: [what: string, method: 'PATCH' | 'PUT', url: string, body: object, blocks: RawBuilder<unknown>][] = [
  [
    'a definition that another stores',
    ...(['PUT', '/admin/tool/custom/204', { definition: OTHER }] as const),
    sql`insert into tool_definition (hash, content, size_bytes)
      values (sha256(convert_to(${OTHER_TEXT}, 'UTF8')), ${OTHER_TEXT}::json, ${OTHER_TEXT.length})`,
  ],
  [
    'a tool that is about to be deleted',
    ...(['PATCH', '/persona/101?update_mask=tool_ids', { tool_ids: [202, 204] }] as const),
    sql`select from tool where id = 202 for update`,
  ],
]

for (const [what, method, url, body, blocks] of BLOCKERS)
  t.test(`401 for a token that is revoked while its write waits for ${what}`, async t => {
    const token = await world.token(email('admin'))
    const { db } = world.database
    const before = await stored()
    const holding = await db.startTransaction().execute()
    await blocks.execute(holding)
    const answer = world.call(method, url, { token, body })
    await untilLocked(world.database)
    const now = new Date().toISOString()
    await db.updateTable('token').set({ revoked_at: now }).where('hash', '=', hashToken(token)).execute()
    await holding.rollback().execute()
    t.equal((await answer).statusCode, 401)
    t.equal(await stored(), before)
  })

async function callerOf(name: string) {
  const token = await world.token(email(name))
  const { rows } = await sql<{ token: number; user: string }>`
    select max(t.id) as token, u.id as user from token t join user_account u on u.id = t.user_id
    where u.email = ${email(name)} group by u.id`.execute(world.database.db)
  return { token, values: { ...rows[0], email: email(name) } as Record<string, unknown> }
}

async function run(executor: Executor, statement: string, values: Record<string, unknown>): Promise<void> {
  const text = statement.replaceAll(/<(\w+)>/g, (_, name: string) => `'${values[name]}'`)
  await sql.raw(text).execute(executor)
}

async function ask({ method, url, headers }: Way, token: string, payload: PassThrough | string) {
  return await world.app.inject({
    method: method as 'PATCH', // one of the methods with a body
    url,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    payload,
  })
}

async function stored(): Promise<string> {
  const { rows } = await sql<{ state: string }>`
    select (select version from persona where id = 101) || ' ' || (select version from tool where id = 204) || ' ' ||
      (select count(*) from audit) as state`.execute(world.database.db)
  return rows[0]?.state ?? ''
}
