import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { appOver } from '../app.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

/*
 * Clients that repeat each update with its key until it is answered: against services that are killed at any moment, and
 * over connections that are cut after any byte of the answer. Each key has one effect, and its client the version of it.
 */
t.setTimeout(3_600_000)

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
const KILLS = IS_FULL ? 1_000 : 4
const SERVICES = IS_FULL ? 3 : 2
const CLIENTS = 6
const BYTES_BETWEEN_CUTS = IS_FULL ? 1 : 60

const world = await worldDatabase(t)
const { url, database } = world
const alice = await world.token('admin@example.com')

const PLACES = [
  { method: 'PATCH', path: '/persona/1?update_mask=description', tag: 'persona-1' },
  { method: 'PATCH', path: '/persona/10?update_mask=description', tag: 'persona-10' },
  { method: 'PUT', path: '/admin/tool/custom/10', tag: 'tool-10' },
] as const

interface Update {
  key: string
  place: (typeof PLACES)[number]
}

function headersOf(key: string): Record<string, string> {
  return { authorization: `Bearer ${alice}`, 'content-type': 'application/json', 'idempotency-key': `"${key}"` }
}

function bodyOf(key: string): string {
  return JSON.stringify({ description: `by ${key}` })
}

/** The versions that updates with such a description made, by resource. */
async function effectsOf(prefix: string): Promise<Map<string, string[]>> {
  const { rows } = await sql<{ description: string; tag: string }>`
    select difference -> 'description' ->> 'to' as description,
      resource_kind || '-' || resource_id || '-' || version_after as tag
    from audit where difference -> 'description' ->> 'to' like ${`by ${prefix}%`}`.execute(database.db)
  const effects = new Map<string, string[]>()
  for (const { description, tag } of rows) effects.set(description, [...(effects.get(description) ?? []), `"${tag}"`])
  return effects
}

/** Findings of what clients were told of their keys, and of what is stored. */
async function findingsOf(prefix: string, told: ReadonlyMap<string, string>): Promise<string[]> {
  const effects = await effectsOf(prefix)
  const findings = [...told].flatMap(([key, tag]) => {
    const tags = effects.get(`by ${key}`) ?? []
    return tags.length === 1 && tags[0] === tag
      ? []
      : [`${key} was told ${tag} and made ${tags.join(' ') || 'nothing'}`]
  })
  if (effects.size !== told.size) findings.push(`${told.size} keys were answered, ${effects.size} had an effect`)
  return findings
}

t.test(
  `${KILLS} times kill -9 under clients that repeat: one effect for each key, and everybody has its version`,
  async t => {
    const env = { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, DATABASE_POOL_SIZE: '8' }
    const services = await Promise.all(Array.from({ length: SERVICES }, () => ServiceProcess.start(env)))
    t.teardown(() => Promise.all(services.map(service => service.stop('SIGKILL'))))
    const told = new Map<string, string>()
    const seen = { failures: 0, replays: 0, conflicts: 0 }
    let kills = 0

    const repeat = async ({ key, place }: Update): Promise<string> => {
      for (;;) {
        const { port } = services[Math.floor(Math.random() * SERVICES)] as ServiceProcess
        try {
          const answer = await fetch(`http://127.0.0.1:${port}${place.path}`, {
            method: place.method,
            headers: headersOf(key),
            body: bodyOf(key),
            signal: AbortSignal.timeout(60_000),
          })
          const text = await answer.text()
          if (answer.status === 200) {
            if (answer.headers.get('idempotent-replayed') === 'true') seen.replays++
            if ((JSON.parse(text) as { description: string }).description !== `by ${key}`) throw new Error(text)
            return String(answer.headers.get('etag'))
          }
          if (answer.status === 409) seen.conflicts++
          else if (answer.status !== 503) throw new Error(`${answer.status} ${text}`)
        } catch (error) {
          if (error instanceof Error && !/fetch failed|terminated|aborted|timeout/i.test(error.message)) throw error
          seen.failures++
        }
        await sleep((IS_FULL ? 5 : 100) * Math.random())
      }
    }

    const client = async (number: number) => {
      for (let update = 0; kills < KILLS; update++) {
        const place = PLACES[(number + update) % PLACES.length] as (typeof PLACES)[number]
        const key = `k${number}-${update}.`
        told.set(key, await repeat({ key, place }))
      }
    }

    const killer = async (service: ServiceProcess) => {
      while (kills < KILLS) {
        await sleep(150 * Math.random())
        await service.stop('SIGKILL')
        kills++
        service.launch()
        await service.ready()
      }
    }

    await Promise.all([...services.map(killer), ...Array.from({ length: CLIENTS }, (_, number) => client(number))])
    t.same(await findingsOf('k', told), [])
    t.ok(seen.failures > 0, 'requests were cut')
    t.comment(
      `${kills} kills, ${told.size} keys, ${seen.failures} attempts without an answer, ${seen.replays} replays, ` +
        `${seen.conflicts} times 409`,
    )
  },
)

t.test('the line cut after each byte of the answer: one effect, and the repetition has its version', async t => {
  const { app } = await appOver(t, database)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const address = app.server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const told = new Map<string, string>()

  /** Sends the update and hangs up after so many bytes of its answer; answers what came. */
  const cutAfter = async ({ key, place }: Update, bytes: number): Promise<string> => {
    const [body, headers] = [bodyOf(key), Object.entries(headersOf(key)).map(([name, value]) => `${name}: ${value}`)]
    const socket = connect(port, '127.0.0.1')
    const lines = [`${place.method} ${place.path} HTTP/1.1`, 'host: localhost', 'connection: close', ...headers]
    socket.write(`${lines.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`)
    let got = ''
    await new Promise<void>((resolve, reject) => {
      socket.on('error', reject).on('close', resolve)
      if (bytes === 0) socket.once('connect', () => setImmediate(() => socket.destroy()))
      socket.on('data', data => {
        got += data.toString('latin1')
        if (got.length >= bytes) socket.destroy()
      })
    })
    return got.slice(0, bytes)
  }

  for (const place of PLACES) {
    const whole = await cutAfter({ key: `c-${place.tag}-whole.`, place }, Number.MAX_SAFE_INTEGER)
    told.set(`c-${place.tag}-whole.`, /^etag: (.*)\r$/m.exec(whole)?.[1] ?? '')
    t.match(whole, /^HTTP\/1\.1 200 /)
    for (let bytes = 0; bytes < whole.length; bytes += BYTES_BETWEEN_CUTS) {
      const update = { key: `c-${place.tag}-${bytes}.`, place }
      await cutAfter(update, bytes)
      let answer = ''
      do answer = await cutAfter(update, Number.MAX_SAFE_INTEGER)
      while (answer.startsWith('HTTP/1.1 409 '))
      const tag = /^etag: (.*)\r$/m.exec(answer)?.[1] ?? answer
      if (bytes > 0 && !/^idempotent-replayed: true\r$/m.test(answer))
        t.fail(`no replay after ${bytes} bytes: ${answer}`)
      told.set(update.key, tag)
    }
  }
  t.same(await findingsOf('c-', told), [])
  t.comment(`${told.size} answers cut`)
})
