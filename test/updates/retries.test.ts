import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { REQUIRED_FIELDS } from '../app.js'
import { ask, ServiceProcess } from '../faults/service.js'
import { DEFINITION } from '../matrix-organisation.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

/*
 * Clients repeat each update, creation and deletion until it is answered, while services are killed. Each key must have one effect, and the client
 * must receive the version of that effect.
 */
const KILLS = Number(process.env.TEST_KILLS ?? 3)
const SERVICES = 2
const CLIENTS = 4

const world = await worldDatabase(t)
const { url, database } = world
const alice = await world.token('admin@example.com')

/** Method, path and fields of the requests. The description is added. */
const PLACES = [
  ['PATCH', '/persona/1?update_mask=description', {}],
  ['PATCH', '/persona/10?update_mask=description', {}],
  ['PUT', '/admin/tool/custom/10', {}],
  ['POST', '/persona', { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }],
  ['POST', '/admin/tool/custom', { name: 'made', definition: DEFINITION, passthrough_auth: false }],
] as const

/** Returns the key and tag of each stored effect. */
async function effects(): Promise<string[]> {
  const { rows } = await sql<{ effect: string }>`
    select substr(difference -> 'description' ->> 'to', 4) || ' "' || resource_kind || '-' || resource_id || '-' ||
      version_after || '"' as effect
    from audit where difference -> 'description' ->> 'to' like 'by k%'`.execute(database.db)
  return rows.map(({ effect }) => effect).sort()
}

t.test('kill -9 under clients that repeat: one effect for each key, and everybody has its version', async t => {
  const env = { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, DATABASE_POOL_SIZE: '8' }
  const services = await Promise.all(Array.from({ length: SERVICES }, () => ServiceProcess.start(env, t)))
  const told = new Map<string, string>()
  const deleted: string[] = []
  let failures = 0
  let kills = 0

  const repeat = async (key: string, method: string, path: string, body?: { description: string }): Promise<string> => {
    const sent = { headers: { 'idempotency-key': `"${key}"` }, ...(body && { body }) }
    for (;;) {
      const service = services[Math.floor(Math.random() * SERVICES)] as ServiceProcess
      const answer = await ask(service, alice, method, path, sent).catch(error => {
        if (!/fetch failed|terminated|aborted/i.test(error.message)) throw error
        failures++
      })
      if (answer?.status === 204) return ''
      if (answer?.status === 200 || answer?.status === 201) {
        if (answer.body.description !== body?.description) throw new Error(JSON.stringify(answer.body))
        return String(answer.etag)
      }
      if (answer && answer.status !== 409 && answer.status !== 503) throw new Error(JSON.stringify(answer))
      await sleep(50 * Math.random())
    }
  }
  const client = async (number: number) => {
    for (let update = 0; kills < KILLS; update++) {
      const [method, path, fields] = PLACES[(number + update) % PLACES.length] as (typeof PLACES)[number]
      const key = `k${number}-${update}.`
      const tag = await repeat(key, method, path, { ...fields, description: `by ${key}` })
      told.set(key, tag)
      const [, id] = /-(\d+)-1"$/.exec(tag) ?? []
      if (method === 'POST') deleted.push(await repeat(`${key}d`, 'DELETE', `${path}/${id}`))
      await sleep(10)
    }
  }
  const killer = async () => {
    for (; kills < KILLS; kills++) {
      const service = services[kills % SERVICES] as ServiceProcess
      await sleep(100 * Math.random())
      await service.stop('SIGKILL')
      service.launch()
      await service.ready()
    }
  }
  await Promise.all([killer(), ...Array.from({ length: CLIENTS }, (_, number) => client(number))])
  t.strictSame(await effects(), [...told].map(([key, tag]) => `${key} ${tag}`).sort())
  const gone = database.db.selectFrom('audit').select(['resource_id']).where('version_after', '=', 2)
  const rows = await gone.where(sql<boolean>`fields && '{deleted,removed}'`).execute()
  t.equal(rows.length, deleted.length, 'what was deleted was deleted once')
  t.same((await verifyAudit(database.db)).findings, [])
  t.ok(failures > 0 && deleted.length > 0, 'requests were cut')
  t.comment(`${told.size} answered, ${deleted.length} of them created and deleted, ${failures} cut`)
})
