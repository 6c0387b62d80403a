import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { PIPELINED_REQUESTS_MAX } from '../../src/http/broken-requests.js'
import { addressesOf, listenOn } from '../../src/http/listen.js'
import { running } from './running.js'

const GET = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'
const LAST = GET.replace('Host: a', 'Host: a\r\nConnection: close')

t.test('each address of a host is served within the same bounds of connections', async t => {
  const { app, metrics } = await running(t, { CONNECTIONS_PER_ADDRESS_MAX: '3' })
  const addresses = ['127.0.0.1', '127.0.0.2', '192.0.2.1'] // the last is none of any machine
  await listenOn(app, addresses, 0)
  const { port } = app.server.address() as { port: number } // it listens on TCP
  for (const host of addresses.slice(0, 2)) {
    t.match(await answerTo(host, port, LAST), /^HTTP\/1\.1 200 /)
    const pipelined = await answerTo(host, port, GET.repeat(20 * PIPELINED_REQUESTS_MAX))
    t.ok((pipelined.match(/HTTP\/1\.1 200/g) ?? []).length <= PIPELINED_REQUESTS_MAX)
  }
  const { body } = await metrics.text()
  t.match(body, /agents_http_refusals_total\{reason="RATE_LIMITED"\} 2/)
  await app.close()
  const isRefused = () =>
    answerTo('127.0.0.2', port, GET).then(
      () => false,
      () => true,
    )
  while (!(await isRefused())) await sleep(10) // closed with the application, soon after it where that has just begun to listen
})

t.test('localhost is what it is looked up as, every other host itself', async t => {
  t.ok((await addressesOf('localhost')).some(address => address === '127.0.0.1' || address === '::1'))
  t.strictSame(await addressesOf('example.com'), ['example.com'])
})

/** What the server sends before it ends the connection. */
function answerTo(host: string, port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect(port, host, () => socket.write(text))
    socket.on('data', data => {
      answer += data
    })
    socket.on('error', error =>
      (error as NodeJS.ErrnoException).code === 'ECONNREFUSED' ? reject(error) : resolve(answer),
    )
    socket.on('close', () => resolve(answer))
  })
}
