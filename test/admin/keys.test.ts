import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { addKeyToFile, keyStatus, rotateKeys, verifyKeys } from '../../src/admin/keys.js'
import { decryptSecret, encryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { openVault } from '../../src/secrets/vault.js'
import { agentctl } from '../cli/agentctl.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

const { database, vault, url } = await worldDatabase(t)
const { db } = database

t.test('an export without secrets applies to its own database with an empty plan', async t => {
  const document = await exportOrganisation(db)
  t.notMatch(JSON.stringify(document), /Bearer abc/)
  t.match(JSON.stringify(document), 'TOOL_16_AUTHORIZATION')
  const report = await applyOrganisation(database, document, { vault, env: {}, plan: true, prune: true })
  t.same(countOutcomes(report), { created: 0, changed: 0, unchanged: 68, removed: 0, kept: 0, only_here: 0 })
})

t.test('a variable of an export that is set replaces the stored secret', async t => {
  const document = await exportOrganisation(db)
  const env = { TOOL_16_AUTHORIZATION: 'Bearer other' }
  const report = await applyOrganisation(database, document, { vault, env, plan: true })
  const changed = report.outcomes.filter(outcome => outcome.action === 'changed')
  t.same(
    changed.map(({ section, id, fields }) => [section, id, fields.map(change => change.field)]),
    [['tools', 16, ['custom_headers']]],
  )
  t.notMatch(JSON.stringify(report), /Bearer other/)
})

t.test('verification opens every value in its place: finds what is damaged, swapped or lacks its key', async t => {
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const steps: number[] = []
  t.same(await verifyKeys(db, ring, done => steps.push(done)), { values: 5, opened: 5, findings: [] })
  t.ok(steps.length > 0)
  t.equal((await verifyKeys(db, parseKeyRing(generateKey('fresh')))).findings.length, 5)

  const place = (id: number) =>
    db.selectFrom('tool_header').selectAll().where('tool_id', '=', id).where('position', '=', 0)
  const [one, other] = [await place(16).executeTakeFirstOrThrow(), await place(17).executeTakeFirstOrThrow()]
  const put = async (id: number, { nonce, ciphertext }: typeof one) =>
    await db
      .updateTable('tool_header')
      .set({ nonce, ciphertext })
      .where('tool_id', '=', id)
      .where('position', '=', 0)
      .execute()
  await put(16, other)
  await put(17, one)
  t.same((await keyStatus(db, ring)).unopened, [], 'one value of each key is not enough to see it')
  const { findings } = await verifyKeys(db, ring)
  t.same(
    findings.map(finding => [finding.place, finding.problem]),
    [one, other].map(({ tool_id, name }) => [`the header ${name} of tool ${tool_id}`, 'does_not_open']),
  )
  await put(17, other)
  await put(16, { ...one, ...encryptSecret(ring, 'an earlier value', { toolId: 16, headerName: one.name }) })
  t.match((await verifyKeys(db, ring)).findings, [
    { place: `the header ${one.name} of tool 16`, problem: 'other_value' },
  ])
  const kept = await db.deleteFrom('deployment_key').returningAll().executeTakeFirstOrThrow()
  t.match((await verifyKeys(db, ring)).findings, [{ place: 'the deployment key', problem: 'not_there' }])
  const cli = await agentctl({ url, args: ['keys', 'verify'], env: { SECRET_KEYS: TEST_SECRET_KEYS } })
  t.equal(cli.status, 1)
  t.match(cli.stdout, /not_there {2}the deployment key: no value can be compared with its mask/)
  await db.insertInto('deployment_key').values(kept).execute()
  await put(16, one)
  t.same((await verifyKeys(db, ring)).findings, [])
})

t.test('rotation seals every value anew, leaves what lacks its key, and needs the old key no more', async t => {
  const fresh = generateKey('fresh')
  const both = parseKeyRing(`${fresh} ${TEST_SECRET_KEYS}`)
  const masks = await db
    .selectFrom('tool_header')
    .select('fingerprint')
    .orderBy('tool_id')
    .orderBy('position')
    .execute()

  const alone = await keyStatus(db, parseKeyRing(fresh))
  t.same(
    alone.tools_without_key.map(tool => tool.id),
    [11, 16, 17],
  )
  t.same(
    alone.keys.find(key => key.id === 'test'),
    { id: 'test', in_ring: false, current: false, values: 4, deployment_key: true },
  )

  const steps: number[] = []
  const rotation = await rotateKeys(db, both, done => steps.push(done))
  t.same(rotation, { values: 4, tools: 3, deployment_key: true, skipped_tools: [], unopened_tools: [] })
  t.same(await rotateKeys(db, both, () => undefined), {
    values: 0,
    tools: 0,
    deployment_key: false,
    skipped_tools: [],
    unopened_tools: [],
  })

  const ring = parseKeyRing(fresh)
  t.ok((await openVault(db, ring)).deploymentKey)
  const {
    key_id: keyId,
    nonce,
    ciphertext,
  } = await db
    .selectFrom('tool_header')
    .selectAll()
    .where('tool_id', '=', 16)
    .where('position', '=', 0)
    .executeTakeFirstOrThrow()
  t.equal(decryptSecret(ring, { keyId, nonce, ciphertext }, { toolId: 16, headerName: 'Authorization' }), 'Bearer abc')
  t.same(
    await db.selectFrom('tool_header').select('fingerprint').orderBy('tool_id').orderBy('position').execute(),
    masks,
  )
  t.same(
    await db.selectFrom('tool').select(['version', 'secrets_generation']).where('id', '=', 16).executeTakeFirst(),
    {
      version: 1,
      secrets_generation: 1,
    },
  )
})

t.test('a new key goes first into a key file that only its owner reads', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'keys-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'ring')
  const first = addKeyToFile(file)
  const second = addKeyToFile(file)
  t.same(parseKeyRing(readFileSync(file, 'utf8')).ids, [second, first])
  t.equal(statSync(file).mode & 0o777, 0o600)
})
