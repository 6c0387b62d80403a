import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { eventually } from '../eventually.js'
import { freePort } from '../faults/cluster.js'
import { inWork, RawConnection, type Running, running } from '../http/running.js'
import { newFolder } from '../postgres.js'

const FRONT = fileURLToPath(new URL('../../../ops/front/', import.meta.url))

/** More than the buffers of client, proxy and service hold. */
const REFUSED_BYTES = 5_200_000

for (const name of ['nginx', 'haproxy'] as const) {
  const program = `/usr/sbin/${name}`
  const skip = existsSync(program) ? false : `no ${name} on this machine: apt-get install ${name}`
  t.test(`${name} as ops/front configures it`, { skip }, async t => {
    const service = await running(t, { TRUST_PROXY: 'loopback' }, { listen: true })
    const port = await started(t, program, service)
    await t.test('the client of a refused body goes on; the address is the one that the front saw', async t => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      t.teardown(() => agent.destroy())
      const send = (payload: Buffer) => sendUpdate(service, { port, agent, payload })
      const update = Buffer.from('{"description":"other"}')
      const refused = Buffer.alloc(REFUSED_BYTES, ' ')
      for (const body of [update, refused, update, refused, update])
        t.equal(await send(body), body === update ? 200 : 413)
      service.log.length = 0
      const headers = { 'x-forwarded-for': '203.0.113.9' }
      t.equal((await fetch(`http://127.0.0.1:${port}/persona/1`, { method: 'PATCH', headers })).status, 401)
      const lines = service.log.map(line => JSON.parse(line))
      t.match(lines, [{ status: 401, client: '127.0.0.1' }])
    })
    await t.test('a body that drips takes no place of the service', async t => {
      const dripping = new RawConnection(port)
      const body = '{"description":"dripped"}'
      const head = `PATCH /persona/1?update_mask=description HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${service.token}`
      dripping.write(`${head}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`)
      for (const letter of body.slice(0, -1)) {
        dripping.write(letter)
        await sleep(5)
      }
      t.equal(await inWork(service), 0)
      dripping.write(body.slice(-1))
      t.match(await dripping.until(/^HTTP\/1\.1 200 /), /^HTTP/)
      dripping.socket.destroy()
    })
    await t.test('at most 100 connections of one address are served', async t => {
      // The proxy holds each request until its body is complete, so all of these requests count at the same time.
      const head = 'POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n'
      const connections = Array.from({ length: 130 }, () => new RawConnection(port).write(head))
      const isRefused = ({ text, socket }: RawConnection) => text.startsWith('HTTP/1.1 429 ') || socket.closed
      const admitted = () => connections.filter(connection => !isRefused(connection))
      await eventually(() => admitted().length <= 100)
      t.ok(admitted().length > 50, `${admitted().length} are admitted`)
      for (const connection of admitted()) await connection.write('{}').until(/^HTTP\/1\.1 404|^HTTP\/1\.1 405/)
      for (const { socket } of connections) socket.destroy()
    })
  })
}

/** Sends one update and returns the status. */
async function sendUpdate(service: Running, { port, agent, payload }: { port: number; agent: Agent; payload: Buffer }) {
  const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
  const path = '/persona/1?update_mask=description'
  const sent = request({ port, host: '127.0.0.1', method: 'PATCH', path, agent, headers })
  sent.end(payload)
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  sent.on('error', () => undefined) // writing the rest of the body fails after the proxy has answered
  await text(answer)
  return answer.statusCode
}

/** Starts a proxy program in front of a service, and returns the proxy's port. */
async function started(t: Test, program: string, { port: servicePort }: Running): Promise<number> {
  const port = await freePort()
  const at = `127.0.0.1:${servicePort}`
  const folder = newFolder(t)
  const own = readFileSync(join(FRONT, 'nginx.conf'), 'utf8').replace('127.0.0.1:8088', `127.0.0.1:${port}`)
  writeFileSync(join(folder, 'nginx.conf'), `pid ${folder}/pid;\n${own.replace('127.0.0.1:8080', at)}`)
  const checks = { SERVICE_1_CHECK_PORT: String(servicePort), SERVICE_2_CHECK_PORT: String(servicePort) }
  const env = { FRONT_ADDRESS: '127.0.0.1', FRONT_PORT: String(port), SERVICE_1: at, SERVICE_2: at, ...checks }
  const options = program.endsWith('nginx')
    ? ['-p', folder, '-e', 'stderr', '-c', join(folder, 'nginx.conf'), '-g', 'daemon off;']
    : ['-db', '-f', join(FRONT, 'haproxy.cfg')]
  const child = spawn(program, options, { env, stdio: 'ignore' })
  t.teardown(async () => {
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    await ended
  })
  while ((await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined))?.status !== 200) await sleep(50)
  return port
}
