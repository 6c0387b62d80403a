import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { fairService, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

t.test('row 11: sixty idle sockets of one address, where fifty may be open', async t => {
  const world = await fairnessWorld(t)
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
