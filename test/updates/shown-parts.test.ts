import fc from 'fast-check'
import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { OPERATOR } from '../../src/auth/viewer.js'
import type { ServiceDatabase } from '../../src/db/transaction.js'
import { readSnapshot } from '../../src/persona/statements.js'
import { withDefinitions } from '../../src/tool/definition-cache.js'
import { AnswerText } from '../../src/updates/answer-text.js'
import { sha256 } from '../../src/updates/audit.js'
import { appOver } from '../app.js'
import { worldDatabase } from '../world.js'

/*
 * A snapshot shows tools with their definitions, labels, people and document sets, which others change without a new version
 * of the agent. Texts of definitions are kept in the process; whatever changes between the two round trips of a request, its
 * answer is what is stored when it writes.
 */

const AGENT = 1
const TOOLS = [10, 11, 13]
const DOCUMENT_SETS = [1, 2]
const LABELS = [1, 2]

const EDITIONS = 30
const RUNS = process.env.TEST_CAMPAIGN === 'full' ? 500 : 40

/** Changes of what an agent's snapshot shows, as statements; `n` makes each another one. */
const CHANGES: ((n: number, tool: number, set: number) => string)[] = [
  (n, tool) => `update tool set definition_hash = decode('${definitionOfNumber(n).hash}', 'hex') where id = ${tool}`,
  (_, tool) => `update tool set definition_hash = null where id = ${tool}`,
  (n, tool) =>
    `update tool set name = 'tool_${n}', description = 'does "${n}" \\ ü', display_name = 'Tool ${n}' where id = ${tool}`,
  (n, tool) =>
    `update tool set enabled = ${n % 2 === 0}, passthrough_auth = ${n % 3 === 0}, oauth_config_id = ${1 + (n % 2)} where id = ${tool}`,
  (n, tool) => `update tool_header set fingerprint = sha256('${n}') where tool_id = ${tool}`,
  (_, tool) => `delete from tool_header where tool_id = ${tool}`,
  n => `update oauth_config set name = 'OAuth ${n}' where id = ${1 + (n % 2)}`,
  n => `update label set name = 'label ${n}' where id = ${1 + (n % 2)}`,
  n =>
    `update user_account set email = 'person-${n}@example.com' where id in (select user_id from persona_user where persona_id = ${AGENT})`,
  n =>
    `update user_account set email = 'owner-${n}@example.com' where id = (select owner_id from persona where id = ${AGENT})`,
  (n, _, set) =>
    `update document_set set name = 'set ${n}', description = 'of ${n}', is_public = ${n % 2 === 0}, is_up_to_date = ${n % 3 === 0} where id = ${set}`,
  (_, __, set) => `delete from document_set_user where document_set_id = ${set}`,
  (_, __, set) =>
    `insert into document_set_user (document_set_id, user_id) select ${set}, id from user_account limit 2 on conflict do nothing`,
  (n, _, set) => `insert into document_set_group values (${set}, ${1 + (n % 3)}) on conflict do nothing`,
  (_, __, set) => `delete from document_set_cc_pair where document_set_id = ${set}`,
  (n, _, set) => `insert into document_set_cc_pair values (${set}, ${1 + (n % 3)}) on conflict do nothing`,
  n => `update cc_pair set name = 'connection ${n}', access_type = 'public' where id = ${1 + (n % 3)}`,
  n => `update federated_connector set name = 'federated ${n}'`,
  n => `update document_set_federated_connector set entities = '{"a\\"definition\\" : \\"": "${n}"}'`,
  n => `update persona set icon_name = 'icon ${n}', is_visible = ${n % 2 === 0} where id = ${AGENT}`,
]

/** Few definitions, so that some were shown before and some were not; some are larger than what is kept. */
function definitionOfNumber(n: number) {
  const edition = n % EDITIONS
  const text = JSON.stringify(definitionOf(edition % 5 === 4 ? 120 : 1, `Edition ${edition}`))
  return { text, hash: sha256(text) }
}

const change = fc
  .tuple(fc.constantFrom(...CHANGES), fc.nat(1_000), fc.constantFrom(...TOOLS), fc.constantFrom(...DOCUMENT_SETS))
  .map(([of, n, tool, set]) => of(n, tool, set))

const asked = fc.constantFrom(
  { method: 'PATCH', url: `/persona/${AGENT}?update_mask=description`, writes: true },
  { method: 'PATCH', url: `/persona/${AGENT}?update_mask=description&dry_run=true`, writes: true },
  { method: 'PATCH', url: `/persona/${AGENT}?update_mask=`, writes: false },
  { method: 'GET', url: `/persona/${AGENT}`, writes: false },
)

t.test('200 with what is stored at the write, whatever changes after the agent was read', async t => {
  const { database, token } = await worldDatabase(t)
  let between: string[] = []
  const { batched } = database
  const makeChanges = async () => {
    for (const text of between.splice(0)) await sql.raw(text).execute(database.db)
  }
  // The first round trip asks for the caller; behind it the changes are made.
  const interposed = Object.assign(Object.create(database), {
    batched: async (...[statement, ...rest]: Parameters<typeof batched>) => {
      const answer = await batched.call(database, statement, ...rest)
      if (statement.name.startsWith('caller')) await makeChanges()
      return answer
    },
  })
  const { call } = await appOver(t, interposed)
  const admin = await token('admin@example.com')
  for (let n = 0; n < EDITIONS; n++) {
    const { text, hash } = definitionOfNumber(n)
    await sql`insert into tool_definition (hash, content, size_bytes) values (decode(${hash}, 'hex'), ${text}, ${text.length})`.execute(
      database.db,
    )
  }
  const first = { tool_ids: TOOLS, document_set_ids: DOCUMENT_SETS, label_ids: LABELS }
  const attached = await call('PATCH', `/persona/${AGENT}?update_mask=${Object.keys(first)}`, {
    token: admin,
    body: first,
  })
  t.equal(attached.statusCode, 200, attached.body)
  let n = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { minLength: 1, maxLength: 6 }),
      asked,
      async (changes, { method, url, writes }) => {
        between = [...changes]
        const body = url.includes('update_mask') ? (writes ? { description: `number ${++n}` } : {}) : undefined
        const answer = await call(method, url, { token: admin, ...(body && { body }) })
        t.equal(between.length, 0, 'the changes were made between the two round trips')
        t.equal(answer.statusCode, 200, answer.body)
        const now = JSON.parse(await shownNow(database)) as object
        t.strictSame(answer.json(), { ...now, ...(writes && body) })
      },
    ),
    { numRuns: RUNS },
  )
})

/** The agent as it is stored, read without any text of this process. */
async function shownNow(database: ServiceDatabase): Promise<string> {
  const access = 'none'
  const { version } = await database.db
    .selectFrom('persona')
    .select('version')
    .where('id', '=', AGENT)
    .executeTakeFirstOrThrow()
  const row = await readSnapshot
    .for({ ...OPERATOR, id: AGENT, version, access, cached_definitions: [] })
    .single(database.db)
  return new AnswerText(await withDefinitions(row?.snapshot ?? '', new Map())).toBuffer().toString()
}
