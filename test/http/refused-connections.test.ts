import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { running } from './running.js'

t.test('the log tells of every refused connection of a burst, also where no more come', async t => {
  const service = await running(t, { CONNECTIONS_MAX: '2', TRUST_PROXY: 'loopback' }, { listen: true })
  const sockets = Array.from({ length: 9 }, () => connect(service.port, '127.0.0.1').on('error', () => {}))
  const told = () =>
    service.log
      .map(line => JSON.parse(line))
      .filter(({ msg }) => msg === 'connections are refused')
      .map(({ client, refused }) => ({ client, refused }))
  const refused = () => told().reduce((sum, line) => sum + line.refused, 0)
  for (let waited = 0; refused() === 0 && waited < 100; waited++) await sleep(50)
  t.equal(refused(), 1, 'the first at once')
  for (let waited = 0; refused() === 1 && waited < 300; waited++) await sleep(50)
  t.equal(refused(), 7, 'and then the rest')
  const lines = told().length
  t.ok(told().every(({ client }) => client === '127.0.0.1'))
  await sleep(10_500)
  t.equal(told().length, lines, 'and where there is nothing to tell no line')
  for (const socket of sockets) socket.destroy()
})
