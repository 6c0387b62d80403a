import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { REQUIRED_FIELDS } from '../app.js'
import { ServiceProcess } from '../faults/service.js'
import { DEFINITION } from '../matrix-organisation.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

/*
 * Clients that repeat each update, creation and deletion until it is answered, against services that are killed: each key has one effect, and its
 * client the version of it.
 */
const KILLS = Number(process.env.TEST_KILLS ?? 3)
const SERVICES = 2
const CLIENTS = 4

const world = await worldDatabase(t)
const { url, database } = world
const alice = await world.token('admin@example.com')

const PLACES = [
  { method: 'PATCH', path: '/persona/1?update_mask=description', tag: 'persona-1' },
  { method: 'PATCH', path: '/persona/10?update_mask=description', tag: 'persona-10' },
  { method: 'PUT', path: '/admin/tool/custom/10', tag: 'tool-10' },
  { method: 'POST', path: '/persona', tag: 'persona' },
  { method: 'POST', path: '/admin/tool/custom', tag: 'tool' },
] as const

const NEW = {
  '/persona': { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] },
  '/admin/tool/custom': { name: 'made', definition: DEFINITION, passthrough_auth: false },
}

interface Update {
  key: string
  place: (typeof PLACES)[number]
}

function headersOf(key: string): Record<string, string> {
  return { authorization: `Bearer ${alice}`, 'content-type': 'application/json', 'idempotency-key': `"${key}"` }
}

const bodyOf = ({ key, place }: Update) =>
  JSON.stringify({ ...(place.method === 'POST' && NEW[place.path]), description: `by ${key}` })

/** Findings of what clients were told of their updates, and of what is stored. */
async function findingsOf(prefix: string, told: ReadonlyMap<string, string>): Promise<string[]> {
  const { rows } = await sql<{ key: string; tag: string }>`
    select substr(difference -> 'description' ->> 'to', 4) as key,
      '"' || resource_kind || '-' || resource_id || '-' || version_after || '"' as tag
    from audit where difference -> 'description' ->> 'to' like ${`by ${prefix}%`}`.execute(database.db)
  const findings = [...told].flatMap(([key, tag]) => {
    const made = rows.filter(row => row.key === key).map(row => row.tag)
    return made.length === 1 && made[0] === tag
      ? []
      : [`${key} was told ${tag} and made ${made.join(' ') || 'nothing'}`]
  })
  return rows.length === told.size
    ? findings
    : [...findings, `${told.size} were answered, ${rows.length} had an effect`]
}

t.test('kill -9 under clients that repeat: one effect for each key, and everybody has its version', async t => {
  const env = { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, DATABASE_POOL_SIZE: '8' }
  const services = await Promise.all(Array.from({ length: SERVICES }, () => ServiceProcess.start(env)))
  t.teardown(() => Promise.all(services.map(service => service.stop('SIGKILL'))))
  const told = new Map<string, string>()
  const deleted: string[] = []
  let failures = 0
  let kills = 0

  const repeat = async (update: Update, deleted?: string): Promise<string> => {
    const { key, place } = update
    const method = deleted === undefined ? place.method : 'DELETE'
    for (;;) {
      const { port } = services[Math.floor(Math.random() * SERVICES)] as ServiceProcess
      try {
        const answer = await fetch(`http://127.0.0.1:${port}${place.path}${deleted ?? ''}`, {
          method,
          headers: headersOf(key),
          body: method === 'DELETE' ? null : bodyOf(update),
          signal: AbortSignal.timeout(60_000),
        })
        const text = await answer.text()
        if (answer.status === 204) return ''
        if (answer.status === 200 || answer.status === 201) {
          if ((JSON.parse(text) as { description: string }).description !== `by ${key}`) throw new Error(text)
          return String(answer.headers.get('etag'))
        }
        if (answer.status !== 409 && answer.status !== 503) throw new Error(`${answer.status} ${text}`)
      } catch (error) {
        if (error instanceof Error && !/fetch failed|terminated|aborted|timeout/i.test(error.message)) throw error
        failures++
      }
      await sleep(50 * Math.random())
    }
  }
  const client = async (number: number) => {
    for (let update = 0; kills < KILLS; update++) {
      const place = PLACES[(number + update) % PLACES.length] as (typeof PLACES)[number]
      const key = `k${number}-${update}.`
      const tag = await repeat({ key, place })
      told.set(key, tag)
      const [, id] = /-(\d+)-1"$/.exec(tag) ?? []
      if (place.method === 'POST') deleted.push(await repeat({ key: `${key}d`, place }, `/${id}`))
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
  t.same(await findingsOf('k', told), [])
  const gone = database.db.selectFrom('audit').select(['resource_id']).where('version_after', '=', 2)
  const rows = await gone.where(sql<boolean>`fields && '{deleted,removed}'`).execute()
  t.equal(rows.length, deleted.length, 'what was deleted was deleted once')
  t.same((await verifyAudit(database.db)).findings, [])
  t.ok(failures > 0 && deleted.length > 0, 'requests were cut')
  t.comment(`${told.size} answered, ${deleted.length} of them created and deleted, ${failures} cut`)
})
