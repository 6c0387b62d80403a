import { fileURLToPath } from 'node:url'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { ServiceProcess } from '../faults/service.js'
import { tokenOf } from '../http/running.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase } from '../world.js'

const KILLS = 200
const KILLING = fileURLToPath(new URL('./killing-workers.js', import.meta.url))

/** Both bodies are large enough for a worker. Checking `heavy` takes longer. */
const small = `${' '.repeat(20_000)}${JSON.stringify({ definition: DEFINITION })}`
const heavy = JSON.stringify({ definition: { ...DEFINITION, 'x-heavy': Array(200_000).fill(1.5) } })

t.test('workers that end at any moment of a task never end the service: each request is answered', async t => {
  const { url, database } = await worldDatabase(t)
  const persons = ['one', 'two', 'three']
  const tokens = await Promise.all(
    persons.map(name => tokenOf(database, { email: `alice+${name}@example.com`, active: true })),
  )
  const killing = { NODE_OPTIONS: `--import=${KILLING}`, WORKER_KILLS: String(KILLS) }
  const service = await ServiceProcess.start({ DATABASE_URL: url, SECRET_KEYS: generateKey(), ...killing })
  t.teardown(() => service.stop('SIGKILL'))
  const { pid } = service
  const validate = async (token: string, body: string) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const address = `http://127.0.0.1:${service.port}/admin/tool/custom/validate`
    const answer = await fetch(address, { method: 'POST', headers, body })
    await answer.arrayBuffer()
    return answer.status
  }
  const found = new Set<number>()
  const allKilled = () => service.log.includes(`killed ${KILLS}\n`)
  await Promise.all(
    tokens.map(async (token, i) => {
      for (let turn = i; !allKilled() && service.isRunning; turn++)
        found.add(await validate(token, turn % 5 === 0 ? heavy : small))
    }),
  )
  t.ok(service.isRunning, service.log.slice(-2_000))
  t.strictSame(
    [...found].filter(status => status !== 200 && status !== 422 && status !== 503),
    [],
  )
  t.ok(found.has(503), 'some were answered by the end of their worker')
  await eventually(async () => (await validate(tokens[0] ?? '', small)) === 200)
  t.equal(service.pid, pid)
})
