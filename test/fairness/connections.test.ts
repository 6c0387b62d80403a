import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness, requireFewPass } from './beside.js'
import type { Callers } from './callers.js'
import { fairnessWorld } from './world.js'

const world = await fairnessWorld(t)

t.test('row 11: sixty idle sockets of one address, where fifty may be open', async t => {
  const service = await fairService(t, world, { CONNECTIONS_MAX: '50' })
  await requireFairness(
    t,
    world,
    service,
    async over => {
      const sockets: Socket[] = []
      for (let i = 0; i < 60; i++) {
        const socket = connect({ port: service.port, host: '127.0.0.1', localAddress: '127.0.0.3' })
        socket.on('error', () => undefined)
        sockets.push(socket)
      }
      while (!over.aborted) await sleep(20)
      for (const socket of sockets) socket.destroy()
    },
    { quietFrom: '127.0.0.2' },
  )
})

t.test('a hundred connections without a token that ask for what is no operation', async t => {
  const service = await fairService(t, world)
  const [quiet = world.attacker] = world.victims
  const asked: [method: string, path: string, status: number][] = [
    ['GET', '/nothing', 404],
    ['GET', '/healthz', 200],
    ['GET', '/persona/%zz', 404],
    ['DELETE', '/me', 405],
    ['GET', `/me?${'x'.repeat(200)}=1`, 401],
  ]
  for (const [method, path, expected] of asked) {
    let answers = 0
    const statuses = new Set<number>()
    const attack = (over: AbortSignal, callers: Callers) =>
      repeatedly(over, 100, 0, async () => {
        const { status } = await callers.send(method, path, '', '')
        statuses.add(status)
        answers++
      })
    t.test(`${method} ${path.slice(0, 9)}: few are answered while a quiet request is in work`, async t => {
      const fields = (n: number) => ({ description: `${n}` })
      const answered = () => answers
      await requireFewPass(t, service, quiet, { attack, answered, begunAfter: 500, passingMax: 160, fields })
      t.ok(statuses.has(expected), [...statuses].join(' ')) // and 429, where one address failed too often
    })
    if (!FULL) continue
    t.test(`${method} ${path.slice(0, 9)}: quiet callers take no longer`, t =>
      requireFairness(t, world, service, attack),
    )
  }
})
