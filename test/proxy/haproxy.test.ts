import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { running } from '../http/running.js'

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

/** HAProxy as `ops/cluster` configures it, before the service at that port; answers its own port. */
async function haproxy(t: Test, servicePort: number): Promise<number> {
  const port = await freePort()
  const instance = `127.0.0.1:${servicePort}`
  const addresses = { SERVICE_ENTRY_ADDRESS: '127.0.0.1', SERVICE_ENTRY_PORT: String(port) }
  const child = spawn('/usr/sbin/haproxy', ['-f', CONFIGURATION], {
    env: { ...addresses, SERVICE_1: instance, SERVICE_2: instance },
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

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return address !== null && typeof address === 'object' ? address.port : 0
}
