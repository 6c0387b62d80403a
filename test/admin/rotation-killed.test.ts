import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { keyStatus, rotateKeys } from '../../src/admin/keys.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))
const TOOLS = 300

t.test('a rotation killed in the middle goes on where it was', async t => {
  const { database, vault, url } = await worldDatabase(t)
  const { db } = database
  const custom_headers = [{ key: 'X-Key', value: 'secret' }]
  const tools = Array.from({ length: TOOLS }, (_, index) => ({
    name: `tool ${index}`,
    in_code_tool_id: `tool ${index}`,
    custom_headers,
  }))
  await applyOrganisation(database, { version: 1, tools }, { vault, env: {} })

  const keys = `${generateKey('fresh')} ${TEST_SECRET_KEYS}`
  const ring = parseKeyRing(keys)
  const left = async () => (await keyStatus(db, ring)).keys.find(key => key.id === 'test')?.values ?? 0
  const total = await left()
  const env = { PATH: process.env.PATH ?? '', DATABASE_URL: url, SECRET_KEYS: keys }
  const child = spawn(process.execPath, [CLI, 'keys', 'rotate'], { env, stdio: 'ignore' })
  const exited = once(child, 'exit')
  while ((await left()) === total) await sleep(5)
  child.kill('SIGKILL')
  await exited

  const remaining = await left()
  t.ok(remaining > 0, 'it was killed before its end')
  const rotation = await rotateKeys(db, ring, () => undefined)
  t.same([rotation.values, rotation.skipped_tools], [remaining, []])
  t.equal(await left(), 0)
})
