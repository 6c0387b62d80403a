import t, { type Test } from 'tap'
import { InvalidConfiguration, readConfig } from '../../src/config.js'
import { begin, eventually, RawConnection, type Running, running } from './running.js'

/* Tests of slow and malformed requests, and of the settings for proxies and ports. */

/** Starts a service that waits at most 2 s for a request. */
async function hurried(t: Test): Promise<Running> {
  const service = await running(t, {}, { listen: true })
  Object.assign(service.app.server, { requestTimeout: 2_000, headersTimeout: 2_000 })
  return service
}

t.test('408 blames a client only for a body that it did not send', async t => {
  const service = await hurried(t)
  const slow = begin(service)
  t.match(await slow.until(/HTTP[\s\S]*\}/), /^HTTP\/1\.1 408 [\s\S]*A whole request must arrive within 2 s/)
  await slow.closed
  const header = new RawConnection(service.port).write('GET /healthz HTTP/1.1\r\nHo')
  t.match(await header.until(/HTTP[\s\S]*\}/), /^HTTP\/1\.1 408 [\s\S]*The headers of a request must arrive within/)
  const second = new RawConnection(service.port).write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /he')
  t.match(await second.until(/\}[\s\S]*\}/), /^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 408 /)
  const refused = begin(service, 'pat_unknown')
  await refused.closed
  t.match(await refused.until(/\}/), /^HTTP\/1\.1 401 (?![\s\S]*HTTP)/, 'it is answered once')
})

t.test('400 and 431 for what is not HTTP, in the shape of every other error', async t => {
  const service = await running(t, {}, { listen: true })
  const answers = async (text: string) =>
    (await new RawConnection(service.port).write(text).until(/\r\n\r\n\{.*\}/)).split(' ')[1]
  t.equal(await answers('no HTTP at all\r\n\r\n'), '400')
  t.equal(await answers(`GET / HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`), '431')
  t.equal(await answers('GET / HTTP/1.1\r\n\r\n'), '400', 'without a Host')
  await eventually(() => service.log.some(line => line.includes('"broken request"')))
})

t.test('connections that are answered 400 or 408 and read nothing are destroyed', async t => {
  const service = await hurried(t)
  let accepted = 0
  service.app.server.on('connection', () => accepted++)
  for (const text of ['GET /healthz HTTP/1.1\r\nHost: ab', 'no HTTP at all\r\n\r\n'])
    for (let i = 0; i < 50; i++) {
      const { socket } = new RawConnection(service.port).write(text)
      socket.pause()
      t.teardown(() => void socket.destroy())
    }
  const open = () => new Promise<number>(resolve => service.app.server.getConnections((_, count) => resolve(count)))
  await eventually(async () => accepted === 100 && (await open()) === 0)
})

t.test('X-Forwarded-For is believed of the proxies that TRUST_PROXY names, and only if it is an address', async t => {
  const clientOf = async (service: Running, from: string, forwarded: string) => {
    service.log.length = 0
    await service.app.inject({ url: '/me', headers: { 'x-forwarded-for': forwarded }, remoteAddress: from })
    return JSON.parse(service.log.at(-1) ?? '').client
  }
  const plain = await running(t)
  const proxied = await running(t, { TRUST_PROXY: 'loopback, 192.0.2.0/24' })
  for (const [service, from, forwarded, client] of [
    [plain, '192.0.2.1', '203.0.113.1', '192.0.2.1'],
    [plain, '::ffff:192.0.2.1', '', '192.0.2.1'],
    [proxied, '192.0.2.1', '203.0.113.1', '203.0.113.1'],
    [proxied, '::ffff:127.0.0.1', '203.0.113.1', '203.0.113.1'],
    [proxied, '192.0.2.1', '198.51.100.7, 203.0.113.1', '203.0.113.1'],
    [proxied, '192.0.2.1', '2001:db8::1, 192.0.2.7', '2001:db8::1'],
    [proxied, '203.0.113.9', '203.0.113.10', '203.0.113.9'],
    ...['no address', '1', 'x'.repeat(4000)].map(odd => [proxied, '192.0.2.1', odd, '192.0.2.1'] as const),
  ] as const)
    t.equal(await clientOf(service, from, forwarded), client, `${from}, for ${forwarded.slice(0, 40)}`)
})

t.test('TRUST_PROXY and ports that cannot work are faults of the configuration', async t => {
  readConfig({ PORT: '0', METRICS_PORT: '0', TRUST_PROXY: 'loopback,10.0.0.0/8 , ::1,2001:db8::/32,192.0.2.1' })
  for (const bad of ['true', '1', 'proxy.example.com', '10.0.0.1/8/8', '10.0.0.0/']) {
    const fault = new InvalidConfiguration(['TRUST_PROXY: must be addresses or networks such as 10.0.0.0/8'])
    t.throws(() => readConfig({ TRUST_PROXY: bad }), fault, bad)
  }
  const fault = new InvalidConfiguration(['METRICS_PORT: must differ from PORT'])
  t.throws(() => readConfig({ PORT: '9090', METRICS_PORT: '9090' }), fault)
})
