import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { keyStatus, rotateKeys } from '../../src/admin/keys.js'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { agentctl } from './agentctl.js'

const { database, url, ring: first } = await worldDatabase(t)
const { db } = database

const fresh = generateKey('fresh')

t.test('keys status opens every value in its place: finds damage, swaps and missing keys', async t => {
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  t.match(await keyStatus(db, ring), { values: 4, findings: [] })
  t.equal((await keyStatus(db, parseKeyRing(generateKey('fresh')))).findings.length, 4)
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
  await put(16, one)
  t.same((await keyStatus(db, ring)).findings, [])
})

t.test('rotation seals every value anew, leaves those whose key is missing, and needs the old key no more', async t => {
  const both = parseKeyRing(`${fresh} ${TEST_SECRET_KEYS}`)
  const headers = () => db.selectFrom('tool_header').selectAll().orderBy('tool_id').orderBy('position').execute()
  const masks = (await headers()).map(row => row.mask)
  const alone = await keyStatus(db, parseKeyRing(fresh))
  t.same(
    alone.keys.find(key => key.id === 'test'),
    { id: 'test', in_ring: false, current: false, values: 4 },
  )
  const left = { left_tools: [] }
  t.same(await rotateKeys(db, both), { values: 4, tools: 3, ...left })
  t.same(await rotateKeys(db, both), { values: 0, tools: 0, ...left })
  const ring = parseKeyRing(fresh)
  const rows = await headers()
  t.same(
    rows.map(row => row.mask),
    masks,
  )
  const [row] = rows.filter(({ tool_id, position }) => tool_id === 16 && position === 0)
  if (row === undefined) throw new Error('tool 16 has a header')
  const place = { toolId: 16, headerName: 'Authorization' }
  t.equal(decryptSecret(ring, { ...row, keyId: row.key_id }, place), 'Bearer abc')
  const tool = await db.selectFrom('tool').select(['version', 'secrets_generation']).where('id', '=', 16).execute()
  t.same(tool, [{ version: 1, secrets_generation: 1 }])
})

t.test('rotation under writers loses no value and leaves none under the old key', async t => {
  const TOOLS = 30
  const definition = {
    openapi: '3.1.0',
    info: { title: 'x' },
    servers: [{ url: 'https://x.example.com' }],
    paths: { '/a': { get: { operationId: 'a', summary: 'a' } } },
  }
  const headersOf = (tool: number, round: number) =>
    Array.from({ length: 10 }, (_, index) => ({
      key: `X-${index}`,
      value: `${tool} ${index === 0 ? round : 0} ${index}`,
    }))
  const tools = Array.from({ length: TOOLS }, (_, index) => {
    return { id: 1000 + index, name: `tool ${index}`, definition, custom_headers: headersOf(1000 + index, 0) }
  })
  await applyOrganisation(database, { version: 1, tools }, { ring: first, env: {} })
  const newest = generateKey('newest')
  const ring = parseKeyRing(`${newest} ${fresh} ${TEST_SECRET_KEYS}`)
  const rounds = new Map<number, number>()
  let done = false
  const write = async (seed: number) => {
    for (let round = 1; !done; round++) {
      const id = 1000 + seed * 10 + (round % 10) // no other writer has this tool
      const mark = seed * 1_000_000 + round
      const tools = [{ id, custom_headers: headersOf(id, mark) }]
      await applyOrganisation(database, { version: 1, tools }, { ring, env: {} })
      rounds.set(id, mark)
    }
  }
  const writers = [0, 1, 2].map(write)
  await rotateKeys(db, ring)
  done = true
  await Promise.all(writers)
  const status = await keyStatus(db, ring)
  t.equal(status.keys.find(key => key.id === 'test')?.values, 0)
  const stored = await db.selectFrom('tool_header').selectAll().where('tool_id', '>=', 1000).execute()
  t.equal(stored.length, TOOLS * 10)
  const alone = parseKeyRing(newest)
  const wrong = stored.filter(({ tool_id, position, name, key_id, nonce, ciphertext }) => {
    const value = decryptSecret(alone, { keyId: key_id, nonce, ciphertext }, { toolId: tool_id, headerName: name })
    return value !== headersOf(tool_id, rounds.get(tool_id) ?? 0)[position]?.value
  })
  t.same(wrong, [])
})
