import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { startAgentctl } from '../cli/agentctl.js'
import { Cluster } from './cluster.js'
import { Pooler } from './pooler.js'
import { ServiceProcess } from './service.js'
import { Updates } from './updates.js'
import { makeWorld } from './world.js'

const skip = !Pooler.isInstalled() && 'PgBouncer is not installed'

t.test('behind PgBouncer in transaction mode', { skip }, async t => {
  const cluster = await Cluster.create(t)
  const token = await makeWorld(cluster.url())
  const pooler = await Pooler.start(cluster.port)
  t.teardown(() => pooler.stop())
  const settings = { PREPARED_STATEMENTS: 'off', STATEMENT_TIMEOUT_MS: '1500', LOCK_TIMEOUT_MS: '500' }
  const env = { DATABASE_URL: pooler.url(), SECRET_KEYS: generateKey(), ...settings }
  const service = await ServiceProcess.start(env, t)

  t.test('agentctl migrate makes the schema of an empty database', async t => {
    const line = { url: pooler.url('postgres'), args: ['migrate'], env: { PREPARED_STATEMENTS: 'off' } }
    t.match(await startAgentctl(line).answer, { status: 0, stdout: /^applied / })
  })

  t.test('200: updates of several clients share six server connections', async t => {
    const updates = new Updates(() => service.port, token)
    await updates.more('200', 100)
    await updates.stop()
    t.strictSame(await updates.wrong(cluster), [])
    // On a busy machine, an update can wait longer than LOCK_TIMEOUT_MS, which is answered 503.
    t.equal(updates.count('200') + updates.count('503 not_applied'), updates.told.size)
  })

  t.test('503, not applied: the lock and statement timeouts hold for single statements too', async t => {
    // The first lock blocks the statement that authenticates. The second blocks the statement that writes.
    for (const lock of ['lock table token in access exclusive mode', 'lock table audit in access exclusive mode']) {
      const client = await cluster.connect()
      await client.query(`begin; ${lock}`)
      const updates = new Updates(() => service.port, token)
      await updates.more('503 not_applied')
      const stopped = updates.stop()
      await client.query('rollback')
      await client.end()
      await stopped
      t.strictSame(await updates.wrong(cluster), [])
    }
  })

  t.test('503 with a true outcome when PgBouncer is restarted under load', async t => {
    const updates = new Updates(() => service.port, token)
    for (let round = 0; round < 3; round++) {
      await updates.more('200')
      await pooler.restart()
    }
    await updates.more('200')
    await updates.stop()
    t.strictSame(await updates.wrong(cluster), [])
  })
})
