import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { FULL, fairService, peakResidentBytes, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { fairnessWorld, type Owner, owner } from './world.js'

const TOKENS = 10
const READS = 60
/** Together their answers of 4.9 MB leave less memory than an agent of 4.6 MB takes. */
const CURATORS = 13
const PEAK_BYTES_MAX = 300 * 2 ** 20
const WAITING_PEAK_BYTES_MAX = 200 * 2 ** 20

/** One character needs two bytes in V8, so each has them: of an answer just below what is weighed before it is made. */
const WIDE_TEXT = `update persona set system_prompt = '\u6f22' || repeat(chr(1), 43000) where id = any($1)`
/** An answer of 6 MB. */
const LARGE_TEXTS = `update persona set system_prompt = repeat(chr(1), 256000), task_prompt = repeat(chr(1), 256000),
    starter_messages = (select json_agg(json_build_object('name', n::text, 'message', repeat(chr(1), 10000)))
                        from generate_series(1, 50) n)
  where id = any($1)`

t.test('answers that nobody reads', async t => {
  const world = await fairnessWorld(t)
  const hostile: Owner[] = []
  for (let i = 0; i < TOKENS; i++) hostile.push(await owner(world.client, `alice+unread${i}@example.com`, []))
  const ids = hostile.map(({ agentId }) => agentId)
  const service = await fairService(t, world)
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())

  t.test('hold as little where requests of many header fields wait behind them', async t => {
    const begin = 'GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'
    for (const fields of [400, 60]) {
      const behind = `GET / HTTP/1.1\r\nHost: a\r\n${'abc:def\r\n'.repeat(fields)}\r\n`.repeat(14)
      const sockets = Array.from({ length: 250 }, () => {
        const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
        socket.write(begin + behind)
        return socket
      })
      await Promise.all(sockets.map(hasBegun))
      const peak = peakResidentBytes(service.pid)
      t.ok(peak < WAITING_PEAK_BYTES_MAX, `${fields} fields: ${Math.round(peak / 2 ** 20)} MiB resident at most`)
      for (const socket of sockets) socket.destroy()
    }
  })

  t.test('hold no more memory than is shared out, however many there are', async t => {
    await world.client.query(WIDE_TEXT, [ids])
    const sockets = hostile.flatMap(one => Array.from({ length: READS }, () => unread(service.port, one)))
    const begun = await Promise.all(sockets.map(hasBegun))
    t.ok(begun.every(Boolean), 'each is answered or refused')
    const peak = peakResidentBytes(service.pid)
    t.ok(peak < PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    for (const socket of sockets) socket.destroy()
  })

  t.test('make room where others read', async t => {
    const reader = world.attacker
    await world.client.query(LARGE_TEXTS, [[...ids, reader.agentId]])
    const read = async () => (await callers.send('GET', `/persona/${reader.agentId}`, reader.token, '')).status
    t.equal(await read(), 200, 'without them')
    const sockets: Socket[] = []
    for (let i = 0; i < 3; i++) {
      const next = hostile.map(one => unread(service.port, one))
      await Promise.all(next.map(hasBegun))
      sockets.push(...next)
    }
    await sleep(1_100) // so long a client has time
    for (let i = 0; i < 4; i++) t.equal(await read(), 200, 'beside them')
    const peak = peakResidentBytes(service.pid)
    t.ok(peak < PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    for (const socket of sockets) socket.destroy()
  })

  t.test('make room where they are those of validations', async t => {
    const reader = world.attacker
    const read = async () => (await callers.send('GET', `/persona/${reader.agentId}`, reader.token, '')).status
    await world.client.query(LARGE_TEXTS.replace('50)', '26)'), [[reader.agentId]]) // 4.6 MB: who holds more has a second
    const curators: Owner[] = []
    for (let i = 0; i < CURATORS; i++) curators.push(await owner(world.client, `alice+curator${i}@example.com`, []))
    await world.client.query(
      `update user_account set permissions = '{basic,manage:actions}' where email like 'alice+curator%'`,
    )
    t.equal(await read(), 200, 'without them')
    const sockets: Socket[] = []
    const body = JSON.stringify({ definition: { ...DEFINITION, 'x-text': 'x'.repeat(4_900_000) } })
    for (const { token } of curators) {
      const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
      socket.write(
        `POST /admin/tool/custom/validate?complete=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
      await hasBegun(socket)
      sockets.push(socket)
    }
    await sleep(1_100)
    t.equal(await read(), 200, 'beside them')
    for (const socket of sockets) socket.destroy()
  })

  // All that is asked for is real work for the machine: the comparison needs one that does nothing else.
  if (FULL) {
    t.test('beside quiet callers', async t => {
      await world.client.query(LARGE_TEXTS, [ids])
      await requireFairness(t, world, service, async over => {
        const sockets = hostile.flatMap(one => Array.from({ length: 2 * TOKENS }, () => unread(service.port, one)))
        while (!over.aborted) await sleep(20)
        for (const socket of sockets) socket.destroy()
      })
    })
  }
})

/** Asks for an agent, and reads no more than the beginning of the answer. */
function unread(port: number, { token, agentId }: Owner): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  socket.write(`GET /persona/${agentId} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  return socket
}

/** Whether an answer begins to come; then nothing of it is read any more. */
async function hasBegun(socket: Socket): Promise<boolean> {
  return await new Promise(resolve => {
    socket.once('data', () => {
      socket.pause()
      resolve(true)
    })
    socket.once('close', () => resolve(false))
  })
}
