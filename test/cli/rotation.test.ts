import t from 'tap'
import { changeTool, decideAsOperator } from '../../src/admin/apply/tools.js'
import { applyOrganisation } from '../../src/admin/apply.js'
import { keyStatus, rotateKeys } from '../../src/admin/commands/keys.js'
import { operatorActor } from '../../src/admin/operator.js'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

const TOOLS = Number(process.env.ROTATION_TOOLS ?? 30)
const HEADERS = 10

t.test('rotation under writers loses no value and leaves none under the old key', async t => {
  const { database, vault } = await worldDatabase(t)
  const { db } = database
  const definition = {
    openapi: '3.1.0',
    info: { title: 'x' },
    servers: [{ url: 'https://x.example.com' }],
    paths: { '/a': { get: { operationId: 'a', summary: 'a' } } },
  }
  const headersOf = (tool: number, round: number) =>
    Array.from({ length: HEADERS }, (_, index) => ({
      key: `X-${index}`,
      value: `secret ${tool} ${index === 0 ? round : 0} ${index}`,
    }))
  const tools = Array.from({ length: TOOLS }, (_, index) => ({
    id: 1000 + index,
    name: `tool ${index}`,
    definition,
    custom_headers: headersOf(1000 + index, 0),
  }))
  await applyOrganisation(database, { version: 1, tools }, { vault, env: {} })

  const ring = parseKeyRing(`${generateKey('fresh')} ${TEST_SECRET_KEYS}`)
  const rotating = { ...vault, ring }
  const rounds = new Map<number, number>()
  let done = false
  const write = async (seed: number) => {
    for (let round = 1; !done; round++) {
      const id = 1000 + ((seed * 7 + round * 13) % TOOLS)
      const mark = seed * 1_000_000 + round
      const given = { fields: { custom_headers: headersOf(id, mark) }, columns: {}, definitionFaults: [] }
      await db.transaction().execute(async trx => {
        await changeTool(trx, id, state => decideAsOperator(state, given, rotating), operatorActor())
        rounds.set(id, mark) // the row's lock is held until the commit, so this is the order of the commits
      })
    }
  }
  const writers = [1, 2, 3].map(write)
  const started = performance.now()
  const rotation = await rotateKeys(db, ring)
  t.comment(`${rotation.values} values in ${Math.round(performance.now() - started)} ms`)
  done = true
  await Promise.all(writers)
  t.same(rotation.skipped_tools, [])
  const status = await keyStatus(db, ring)
  t.equal(status.keys.find(key => key.id === 'test')?.values, 0)

  const alone = parseKeyRing(`fresh:${ring.key('fresh')?.export().toString('base64')}`)
  const stored = await db
    .selectFrom('tool_header')
    .selectAll()
    .where('tool_id', '>=', 1000)
    .orderBy('tool_id')
    .orderBy('position')
    .execute()
  t.equal(stored.length, TOOLS * HEADERS)
  const wrong = stored.filter(({ tool_id, position, name, key_id, nonce, ciphertext }) => {
    const value = decryptSecret(alone, { keyId: key_id, nonce, ciphertext }, { toolId: tool_id, headerName: name })
    return value !== headersOf(tool_id, rounds.get(tool_id) ?? 0)[position]?.value
  })
  t.same(wrong, [])
})
