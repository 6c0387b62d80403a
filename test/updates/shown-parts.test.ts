import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { sha256 } from '../../src/updates/audit.js'
import { appOver } from '../app.js'
import { worldDatabase } from '../world.js'

/*
 * A snapshot shows tools with their definitions, labels, people and document sets, which others change without a new version
 * of the agent. Texts of definitions are kept in the process; whatever changes between the two round trips of a request, its
 * answer is what is stored when it writes.
 */

const DEFINITIONS = Array.from({ length: 8 }, (_, n) =>
  JSON.stringify(definitionOf(n % 4 === 3 ? 120 : 1, `Edition ${n}`)),
)

/** Changes of what an agent's snapshot shows; `n` makes each another one. */
const CHANGES: ((n: number) => string)[] = [
  n =>
    `update tool set definition_hash = decode('${sha256(DEFINITIONS[n % 8] ?? '')}', 'hex') where id = ${10 + (n % 2)}`,
  () => 'update tool set definition_hash = null where id = 13',
  n => `update tool set name = 'tool_${n}', description = 'does "${n}" \\ ü', display_name = 'Tool ${n}' where id = 10`,
  n =>
    `update tool set enabled = ${n % 2 === 0}, passthrough_auth = ${n % 3 === 0}, oauth_config_id = ${1 + (n % 2)} where id = 11`,
  n => `update tool_header set fingerprint = sha256('${n}') where tool_id = 10`,
  () => 'delete from tool_header where tool_id = 11',
  n => `update oauth_config set name = 'OAuth ' || id || ' ${n}'`,
  n => `update label set name = 'label ' || id || ' ${n}' where id < 3`,
  n =>
    `update user_account set email = '${n}-' || email where id in (select user_id from persona_user where persona_id = 1)`,
  n =>
    `update user_account set email = 'owner-${n}@example.com' where id = (select owner_id from persona where id = 1)`,
  n =>
    `update document_set set name = 'set ${n}', is_public = ${n % 2 === 0}, is_up_to_date = ${n % 3 === 0} where id = 1`,
  () => 'delete from document_set_user where document_set_id = 2',
  () => 'insert into document_set_user select 1, id from user_account limit 2 on conflict do nothing',
  n => `insert into document_set_group values (1, ${1 + (n % 3)}) on conflict do nothing`,
  () => 'delete from document_set_cc_pair where document_set_id = 2',
  n => `insert into document_set_cc_pair values (1, ${1 + (n % 3)}) on conflict do nothing`,
  n => `update cc_pair set name = 'connection ${n}', access_type = 'public' where id = ${1 + (n % 3)}`,
  n => `update federated_connector set name = 'federated ${n}'`,
  n => `update document_set_federated_connector set entities = '{"a\\"definition\\" : \\"": "${n}"}'`,
  n => `update persona set icon_name = 'icon ${n}', is_visible = ${n % 2 === 0} where id = 1`,
]

t.test('200 with what is stored at the write, whatever changes after the agent was read', async t => {
  const { database, token } = await worldDatabase(t)
  let between: string[] = []
  const { batched } = database
  // The first round trip asks for the caller; behind it the changes are made.
  const interposed = Object.assign(Object.create(database), {
    batched: async (...[statement, ...rest]: Parameters<typeof batched>) => {
      const answer = await batched.call(database, statement, ...rest)
      if (statement.name.startsWith('caller'))
        for (const text of between.splice(0)) await sql.raw(text).execute(database.db)
      return answer
    },
  })
  const { call } = await appOver(t, interposed)
  const admin = await token('admin@example.com')
  for (const text of DEFINITIONS) {
    await sql`insert into tool_definition (hash, content, size_bytes)
      values (decode(${sha256(text)}, 'hex'), ${text}, ${text.length})`.execute(database.db)
  }
  const body = { tool_ids: [10, 11, 13], document_set_ids: [1, 2], label_ids: [1, 2] }
  const attached = await call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token: admin, body })
  t.equal(attached.statusCode, 200, attached.body)
  let n = 0
  for (const [first, change] of CHANGES.entries()) {
    for (const url of ['update_mask=description', 'update_mask=description&dry_run=true', 'update_mask=', '']) {
      n += 1
      // Another change beside each, so that two come together.
      between = [change(n), CHANGES[(first + 7) % CHANGES.length]?.(n) ?? '']
      const fields = url.startsWith('update_mask=d') ? { description: `number ${n}` } : {}
      const sent = { token: admin, ...(url !== '' && { body: fields }) }
      const answer = await call(url === '' ? 'GET' : 'PATCH', `/persona/1?${url}`, sent)
      t.equal(between.length, 0, 'the changes were made between the two round trips')
      t.equal(answer.statusCode, 200, answer.body)
      const now = await call('GET', '/persona/1', { token: admin })
      t.strictSame(answer.json(), { ...now.json(), ...fields }, `${change(n)}: ${url}`)
    }
  }
  const shown = (await call('GET', '/persona/1', { token: admin })).json()
  const { rows } = await sql<{ id: number; content: string | null }>`
    select t.id, d.content::text as content from tool t left join tool_definition d on d.hash = t.definition_hash
    where t.id in (10, 11, 13) order by t.id`.execute(database.db)
  t.strictSame(
    shown.tools.map(({ id, definition }: { id: number; definition: unknown }) => [id, JSON.stringify(definition)]),
    rows.map(({ id, content }) => [id, String(content)]),
    'kept texts are those that are stored',
  )
})
