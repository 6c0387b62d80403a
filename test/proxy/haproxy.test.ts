import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { freePort } from '../faults/cluster.js'
import { RawConnection, running } from '../http/running.js'

const CONFIGURATION = fileURLToPath(new URL('../../../ops/cluster/haproxy-service.cfg', import.meta.url))
const skip = existsSync('/usr/sbin/haproxy') ? false : 'no HAProxy on this machine: apt-get install haproxy'

/** More than fits into the buffers between client, proxy and service. */
const REFUSED_BYTES = 12_000_000

t.test('behind HAProxy the client of a refused body hears that its connection ends, and goes on', { skip }, async t => {
  const service = await running(t, {}, { listen: true })
  const port = await haproxy(t, service.port)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  const send = async (payload: Buffer) => {
    const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
    const path = '/persona/1?update_mask=description'
    const sent = request({ port, host: '127.0.0.1', method: 'PATCH', path, agent, headers })
    sent.end(payload)
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    sent.on('error', () => undefined) // it may still send what nobody reads
    await text(answer)
    return { status: answer.statusCode, connection: answer.headers.connection, isReused: sent.reusedSocket }
  }
  const update = Buffer.from('{"description":"other"}')
  t.match(await send(update), { status: 200 })
  for (let round = 0; round < 2; round++) {
    t.match(await send(Buffer.alloc(REFUSED_BYTES, ' ')), { status: 413, connection: 'close' })
    t.match(await send(update), { status: 200, isReused: false })
    t.match(await send(update), { status: 200, isReused: true }, 'other connections are kept')
  }
})

t.test('behind HAProxy small refused bodies harm nobody, however slow and many', { skip }, async t => {
  const off = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }
  const service = await running(t, off, { listen: true })
  const { db } = service.database
  let ended = 0 // connections, while a body still came on them
  service.app.server.on('request', (request, response) => {
    response.once('close', () => {
      if (request.socket.writableEnded && !request.complete) ended++
    })
  })
  const port = await haproxy(t, service.port)
  const target = 'PATCH /persona/1?update_mask=description HTTP/1.1\r\nHost: localhost'
  const start = (token: string, bytes: number) =>
    `${target}\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`
  const exchange = async (connection: RawConnection, text: string) => {
    connection.text = ''
    return /^HTTP\/1\.1 (\d+) /.exec(await connection.write(text).until(/^HTTP\/1\.1 [\s\S]*\}$/))?.[1]
  }
  const updateOf = (text: string) => start(service.token, text.length) + text
  const unknown = mintToken('person').token // refused when its body has come
  const refused = async (place: number) => {
    const connection = new RawConnection(port)
    for (let i = 0; i < 12; i++) t.equal(await exchange(connection, start(unknown, 8_000) + ' '.repeat(8_000)), '401')
    t.equal(await exchange(connection, start('pat_nope', 40_000) + ' '.repeat(10_000)), '401')
    t.notMatch(connection.text, /connection: close/i)
    for (let i = 0; i < 30; i++) {
      await sleep(80)
      connection.write(' '.repeat(1_000))
    }
    t.equal(await exchange(connection, updateOf(`{"description":"${place}"}`)), '200', 'its own next request')
    connection.socket.destroy()
  }
  const version = () => db.selectFrom('persona').select('version').where('id', '=', 1).executeTakeFirstOrThrow()
  const before = await version()
  let isOver = false
  let updates = 0
  const update = async (place: number) => {
    const connection = new RawConnection(port)
    for (; !isOver; updates++) {
      t.equal(await exchange(connection, updateOf(`{"description":"${place} ${updates}"}`)), '200', "another's")
      await sleep(50)
    }
    connection.socket.destroy()
  }
  const updating = Promise.all([100, 200].map(update))
  for (let round = 0; round < 5 && ended < 3; round++, updates += 8)
    await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map(place => refused(10 * round + place)))
  isOver = true
  await updating
  t.ok(ended >= 3, `${ended} connections ended while a body still came`)
  t.equal((await version()).version - before.version, updates, 'each update was stored, and answered')
})

t.test('HAProxy keeps idle connections for as long as the service promises to clients', { skip }, async t => {
  const service = await running(t, {}, { listen: true })
  const { headers } = await fetch(`http://127.0.0.1:${await haproxy(t, service.port)}/healthz`)
  const promisedS = Number(/timeout=(\d+)/.exec(headers.get('keep-alive') ?? '')?.[1])
  const keptS = Number(/timeout http-keep-alive (\d+)s/.exec(readFileSync(CONFIGURATION, 'utf8'))?.[1])
  t.ok(promisedS > 0 && keptS > promisedS, `promised ${promisedS} s, kept ${keptS} s`)
})

/** HAProxy as `ops/cluster` configures it, before the service at that port; answers its own port. */
async function haproxy(t: Test, servicePort: number): Promise<number> {
  const port = await freePort()
  const instance = `127.0.0.1:${servicePort}`
  const addresses = { SERVICE_ENTRY_ADDRESS: '127.0.0.1', SERVICE_ENTRY_PORT: String(port) }
  const checked = { SERVICE_1_CHECK_PORT: String(servicePort), SERVICE_2_CHECK_PORT: String(servicePort) }
  const child = spawn('/usr/sbin/haproxy', ['-f', CONFIGURATION], {
    env: { ...addresses, SERVICE_1: instance, SERVICE_2: instance, ...checked },
    stdio: 'ignore',
  })
  t.teardown(async () => {
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  })
  while ((await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined))?.status !== 200) await sleep(50)
  return port
}
