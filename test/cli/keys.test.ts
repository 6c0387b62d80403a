import t from 'tap'
import { keyStatus, rotateKeys } from '../../src/admin/commands/keys.js'
import { decryptSecret, encryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { openVault } from '../../src/secrets/vault.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { agentctl } from './agentctl.js'

const { database, url } = await worldDatabase(t)
const { db } = database

t.test('keys status opens every value in its place: finds damage, swaps and missing keys', async t => {
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  t.match(await keyStatus(db, ring), { values: 5, opened: 5, findings: [] })
  t.equal((await keyStatus(db, parseKeyRing(generateKey('fresh')))).findings.length, 5)
  const place = (id: number) =>
    db.selectFrom('tool_header').selectAll().where('tool_id', '=', id).where('position', '=', 0)
  const [one, other] = [await place(16).executeTakeFirstOrThrow(), await place(17).executeTakeFirstOrThrow()]
  const put = async (id: number, { nonce, ciphertext }: Pick<typeof one, 'nonce' | 'ciphertext'>) => {
    const update = db.updateTable('tool_header').set({ nonce, ciphertext }).where('tool_id', '=', id)
    await update.where('position', '=', 0).execute()
  }
  await put(16, other)
  await put(17, one)
  const all = await agentctl({ url, args: ['keys', 'status', '--json'] })
  t.equal(all.status, 3)
  t.match(JSON.parse(all.stdout), {
    current: 'test',
    findings: [one, other].map(({ tool_id, name }) => {
      return { place: `the header ${name} of tool ${tool_id}`, problem: 'does_not_open' }
    }),
  })
  await put(17, other)
  await put(16, encryptSecret(ring, 'an earlier value', { toolId: 16, headerName: one.name }))
  t.match((await keyStatus(db, ring)).findings, [{ problem: 'other_value' }])
  const kept = await db.deleteFrom('deployment_key').returningAll().executeTakeFirstOrThrow()
  const told = await agentctl({ url, args: ['keys', 'status'] })
  t.match(told, {
    status: 3,
    stdout: /not_there {2}the deployment key[\s\S]*not_there: no value can be compared with its mask/,
  })
  await db.insertInto('deployment_key').values(kept).execute()
  await put(16, one)
  t.same((await keyStatus(db, ring)).findings, [])
})

t.test('rotation seals every value anew, leaves those whose key is missing, and needs the old key no more', async t => {
  const fresh = generateKey('fresh')
  const both = parseKeyRing(`${fresh} ${TEST_SECRET_KEYS}`)
  const headers = () => db.selectFrom('tool_header').selectAll().orderBy('tool_id').orderBy('position').execute()
  const masks = (await headers()).map(row => row.fingerprint)
  const alone = await keyStatus(db, parseKeyRing(fresh))
  t.same(
    alone.keys.find(key => key.id === 'test'),
    { id: 'test', in_ring: false, current: false, values: 4, deployment_key: true },
  )
  const left = { skipped_tools: [], unopened_tools: [] }
  t.same(await rotateKeys(db, both), { values: 4, tools: 3, deployment_key: true, ...left })
  t.same(await rotateKeys(db, both), { values: 0, tools: 0, deployment_key: false, ...left })
  const ring = parseKeyRing(fresh)
  t.ok((await openVault(db, ring)).deploymentKey)
  const rows = await headers()
  t.same(
    rows.map(row => row.fingerprint),
    masks,
  )
  const [row] = rows.filter(({ tool_id, position }) => tool_id === 16 && position === 0)
  if (row === undefined) throw new Error('tool 16 has a header')
  const place = { toolId: 16, headerName: 'Authorization' }
  t.equal(decryptSecret(ring, { ...row, keyId: row.key_id }, place), 'Bearer abc')
  const tool = await db.selectFrom('tool').select(['version', 'secrets_generation']).where('id', '=', 16).execute()
  t.same(tool, [{ version: 1, secrets_generation: 1 }])
})
