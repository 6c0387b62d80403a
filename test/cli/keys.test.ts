import t from 'tap'
import { keyStatus, rotateKeys } from '../../src/admin/keys.js'
import { openSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { DEFINITION } from '../matrix-organisation.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { agentctl } from './agentctl.js'

const { database, url, ring: first, apply } = await worldDatabase(t)
const { db } = database
const fresh = generateKey('fresh')
const both = parseKeyRing(`${fresh} ${TEST_SECRET_KEYS}`)
const headers = () => db.selectFrom('tool_header').selectAll().orderBy('tool_id').orderBy('position').execute()

t.test('keys status opens every value in its place: finds damage, swaps and missing keys', async t => {
  t.match(await keyStatus(db, first), { values: 4, findings: [] })
  t.match(await keyStatus(db, parseKeyRing(fresh)), {
    keys: [{ id: 'fresh' }, { id: 'test', in_ring: false, current: false, values: 4 }],
    findings: { length: 4 },
  })
  const swapped = (await headers()).filter(({ position }) => position === 0).slice(-2)
  const put = async (ids: number[]) => {
    for (const [index, { nonce, ciphertext }] of swapped.entries()) {
      const update = db.updateTable('tool_header').set({ nonce, ciphertext }).where('position', '=', 0)
      await update.where('tool_id', '=', ids[index] ?? 0).execute()
    }
  }
  const ids = swapped.map(({ tool_id }) => tool_id)
  await put([...ids].reverse())
  const all = await agentctl({ url, args: ['keys', 'status', '--json'] })
  t.equal(all.status, 3)
  const problem = 'does_not_open'
  const findings = swapped.map(({ tool_id, name }) => ({ place: `the header ${name} of tool ${tool_id}`, problem }))
  t.match(JSON.parse(all.stdout), { current: 'test', findings })
  t.same(await rotateKeys(db, both), { values: 1, tools: 1, left_tools: ids })
  const left = (await headers()).filter(({ tool_id }) => ids.includes(tool_id))
  t.same(new Set(left.map(({ key_id }) => key_id)), new Set(['test']), 'a tool is left as a whole')
  await put(ids)
  t.same((await keyStatus(db, both)).findings, [])
})

t.test('rotation seals every value anew, with its mask, and needs the old key no more', async t => {
  const masks = async () => (await headers()).map(({ mask }) => mask)
  const before = await masks()
  t.same(await rotateKeys(db, both), { values: 3, tools: 2, left_tools: [] })
  t.same(await rotateKeys(db, both), { values: 0, tools: 0, left_tools: [] })
  t.same((await keyStatus(db, parseKeyRing(fresh))).findings, [])
  t.same(await masks(), before)
  t.same(await db.selectFrom('tool').select('version').where('id', '=', 16).execute(), [{ version: 1 }])
})

t.test('rotation under writers loses no value and leaves none under the old key', async t => {
  const headersOf = (tool: number, round: number) =>
    Array.from({ length: 5 }, (_, index) => ({ key: `X-${index}`, value: `${tool} ${index === 0 ? round : 0}` }))
  const ids = Array.from({ length: 30 }, (_, index) => 1000 + index)
  const make = (id: number) => ({ id, name: `tool ${id}`, definition: DEFINITION, custom_headers: headersOf(id, 0) })
  await apply({ tools: ids.map(make) })
  const newest = generateKey('newest')
  const ring = parseKeyRing(`${newest} ${fresh} ${TEST_SECRET_KEYS}`)
  const rounds = new Map<number, number>()
  let done = false
  const write = async (seed: number) => {
    for (let round = 1; !done; round++) {
      const id = 1000 + seed * 10 + (round % 10) // each tool has only one writer
      await apply({ tools: [{ id, custom_headers: headersOf(id, round) }] }, { ring })
      rounds.set(id, round)
    }
  }
  const writers = [0, 1, 2].map(write)
  await rotateKeys(db, ring)
  done = true
  await Promise.all(writers)
  const alone = parseKeyRing(newest)
  const written = (await headers()).filter(({ tool_id }) => tool_id >= 1000)
  const values = written.map(
    ({ key_id: keyId, tool_id: toolId, name: headerName, ...sealed }) =>
      openSecret(alone, { ...sealed, keyId, toolId, headerName }).value,
  )
  const wanted = ids.flatMap(id => headersOf(id, rounds.get(id) ?? 0).map(({ value }) => value))
  t.same(values, wanted)
})
