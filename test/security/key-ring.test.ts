import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { operatorActor } from '../../src/admin/operator.js'
import { OPERATOR } from '../../src/auth/viewer.js'
import { readConfig } from '../../src/config.js'
import { encryptSecret } from '../../src/secrets/cipher.js'
import { configuredKeyRing } from '../../src/secrets/configured-ring.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { fingerprint } from '../../src/secrets/redaction.js'
import { requireDeploymentKey } from '../../src/secrets/vault.js'
import { toolResource } from '../../src/tool/resource.js'
import { decideTool } from '../../src/tool/rules.js'
import type { ToolState } from '../../src/tool/snapshot.js'
import { storeDecision } from '../../src/updates/write.js'
import { REQUIRED_FIELDS } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { METRICS_TOKEN, metricsOf, observedService } from '../http/running.js'
import { serverExit } from '../server-exit.js'
import { TEST_SECRET_KEYS, type World, worldDatabase, worldFile } from '../world.js'
import { type Observed, observedWorld } from './observed.js'

type Assertions = Pick<typeof t, 'equal' | 'strictSame'>

/** The refusal of a request that touches a secret whose key is gone. */
function refusedForKey(
  t: Assertions,
  answer: { statusCode: number; json(): unknown; headers: Record<string, unknown> },
) {
  t.equal(answer.statusCode, 503)
  t.strictSame(answer.json(), {
    error_code: 'SERVICE_UNAVAILABLE',
    detail:
      'A key that this secret needs is missing from the key ring. The operator sees which with: agentctl keys status.',
    request_id: answer.headers['x-request-id'],
    reason: 'key_missing',
    outcome: 'not_applied',
  })
  t.equal(answer.headers['retry-after'], '1')
}

/** Seals the header of tool 11 under a key of its own, as an older first key of the ring would have. */
async function sealUnderOldKey(world: World, oldKeys: string): Promise<void> {
  const sealed = encryptSecret(parseKeyRing(oldKeys), '1', { toolId: 11, headerName: 'X-A' })
  await world.database.db
    .updateTable('tool_header')
    .set({ key_id: sealed.keyId, nonce: sealed.nonce, ciphertext: sealed.ciphertext })
    .where('tool_id', '=', 11)
    .execute()
}

async function put(world: Observed, id: number, body: unknown) {
  return await world.call('PUT', `/admin/tool/custom/${id}`, { token: await world.token('admin@example.com'), body })
}

t.test(
  'a decision that was made before a rotation of keys is not stored: it could put an old ciphertext back',
  async t => {
    const { database, vault } = await worldDatabase(t)
    const store = (state: ToolState | undefined) =>
      database.db.transaction().execute(trx => {
        if (state === undefined) throw new Error('there is no tool')
        const decision = decideTool(
          { ...state, managed_as: 'all' },
          { fields: { name: 'x' }, definitionFaults: [], vault },
          null,
        )
        return storeDecision(trx, toolResource, state, decision, operatorActor('test'))
      })
    const read = () => toolResource.read(database.db, 11, OPERATOR)
    const before = await read()
    await database.db.updateTable('tool').set({ secrets_generation: 1 }).where('id', '=', 11).execute()
    await t.rejects(store(before), { message: 'Rights changed meanwhile. Try again in 1 s.' })
    t.equal(await store(await read()), Number(before?.version) + 1)
  },
)

t.test('503 key_missing where a secret of a missing key would be kept; everything else goes on', async t => {
  const world = await worldDatabase(t)
  await sealUnderOldKey(world, generateKey('old'))
  const observed = await observedWorld(t, { world })
  const ready = await observed.call('GET', '/readyz')
  t.equal(ready.statusCode, 200)
  t.strictSame(ready.json(), {
    status: 'degraded',
    reason: 'key_missing',
    detail:
      'A key that stored secrets need is missing from the key ring. The operator sees which with: agentctl keys status',
  })
  t.ok(
    observed.log.some(line => JSON.parse(line).level >= 50 && line.includes('keys status')),
    'a log line says so',
  )
  t.match((await observed.call('GET', '/metrics', { token: METRICS_TOKEN })).body, /^agents_key_missing 1$/m)

  const shown = await put(observed, 11, {})
  t.equal(shown.statusCode, 200, 'the tool itself is read')
  const masks = shown.json().custom_headers
  refusedForKey(t, await put(observed, 11, { custom_headers: masks }))
  refusedForKey(t, await put(observed, 11, { custom_headers: [...masks, { key: 'X-New', value: 'new' }] }))
  t.equal((await put(observed, 11, {})).headers.etag, shown.headers.etag, 'nothing was applied')

  t.equal((await put(observed, 11, { description: 'changed' })).statusCode, 200, 'fields beside the headers')
  t.equal(
    (await put(observed, 16, { custom_headers: [{ key: 'X-New', value: 'new' }] })).statusCode,
    200,
    'other tools',
  )
  const token = await observed.token('admin@example.com')
  t.equal((await observed.call('PATCH', '/persona/1', { token, body: REQUIRED_FIELDS })).statusCode, 200, 'agents')
  t.equal(
    (await put(observed, 11, { custom_headers: [{ key: 'X-A', value: '1' }] })).statusCode,
    200,
    'the value itself',
  )
  t.equal((await put(observed, 11, { custom_headers: masks })).statusCode, 200, 'from then on its mask')
  for (const custom_headers of [[{ key: 'X-A', value: 'another' }], []]) {
    await sealUnderOldKey(world, generateKey('old'))
    t.equal((await put(observed, 11, { custom_headers })).statusCode, 200, 'replaced, and removed')
  }
})

t.test('503 key_missing for new values while the deployment key does not open; everything else goes on', async t => {
  const observed = await observedWorld(t, { secretKeys: generateKey('another') })
  t.equal((await observed.call('GET', '/readyz')).json().reason, 'key_missing')
  refusedForKey(t, await put(observed, 10, { custom_headers: [{ key: 'X-New', value: 'new' }] }))
  const shown = await put(observed, 11, {})
  refusedForKey(t, await put(observed, 11, { custom_headers: shown.json().custom_headers }))
  t.equal((await put(observed, 11, { custom_headers: [], name: 'cleared' })).statusCode, 200)
  t.equal((await put(observed, 13, { name: 'renamed' })).statusCode, 200)
  const token = await observed.token('admin@example.com')
  t.equal((await observed.call('PATCH', '/persona/1', { token, body: REQUIRED_FIELDS })).statusCode, 200)
  const invalid = await observed.call('POST', '/admin/tool/custom/validate', { token, body: { definition: {} } })
  t.equal(invalid.statusCode, 422)
})

t.test('degraded, and the metric says so through an outage, where only the deployment key lacks its key', async t => {
  const world = await worldDatabase(t)
  await world.database.db.deleteFrom('tool_header').execute()
  const running = await observedService(t, world.url, { secretKeys: generateKey('another') })
  const ready = async () => (await running.app.inject({ url: '/readyz' })).json()
  t.match(await ready(), { status: 'degraded', reason: 'key_missing' })
  const state = async () => {
    const { body } = await metricsOf(running)
    return body.split('\n').filter(line => /^agents_(key_missing|ready|database_accepts_writes) /.test(line))
  }
  t.same(await state(), ['agents_ready 1', 'agents_key_missing 1', 'agents_database_accepts_writes 1'])
  await running.database.close()
  t.match(await ready(), { reason: 'database_unreachable' })
  const during = ['agents_ready 0', 'agents_key_missing 1', 'agents_database_accepts_writes 0']
  t.same(await state(), during, 'the last word on keys stands')
})

t.test('a ring in another order opens the same vault: masks and secrets outlive a new first key', async t => {
  const observed = await observedWorld(t, { secretKeys: `${generateKey('new')},${TEST_SECRET_KEYS}` })
  const mark = fingerprint(requireDeploymentKey(observed.service.vault()), 11, 'X-A', '1').toString('hex')
  const shown = await put(observed, 11, {})
  t.strictSame(shown.json().custom_headers, [{ key: 'X-A', value: `****#${mark.slice(0, 12)}` }])
  t.equal((await put(observed, 11, { custom_headers: shown.json().custom_headers })).statusCode, 200)
})

t.test('exit 78 at start: another key under the same id, named by its id and nothing else', async t => {
  const { url } = await worldDatabase(t)
  const wrong = generateKey('test')
  const { code, output } = await serverExit({ DATABASE_URL: url, SECRET_KEYS: wrong })
  t.equal(code, 78)
  t.match(output, /key.*"test".*does not open/)
  t.notOk(output.includes(wrong.slice('test:'.length)), 'the key is not shown')
})

t.test('3: keys status names a key that does not open its values; rotation leaves them and does the rest', async t => {
  const world = await worldDatabase(t)
  await sealUnderOldKey(world, generateKey('old'))
  const env = { SECRET_KEYS: `${generateKey('new')} ${generateKey('old')} ${TEST_SECRET_KEYS}` }
  const command = (...args: string[]) => agentctl({ url: world.url, args, env })
  const status = await command('keys', 'status')
  t.equal(status.status, 3)
  t.match(status.stdout, /^old +DOES NOT OPEN +1 *$/m)
  t.match(
    status.stdout,
    /does_not_open {2}the header X-A of tool 11 {2}key old\ndoes_not_open: put the right key under this id/,
  )
  const rotation = await command('keys', 'rotate', '--json')
  t.equal(rotation.status, 3)
  t.match(JSON.parse(rotation.stdout), { values: 3, tools: 2, skipped_tools: [], unopened_tools: [11] })
  t.match((await command('keys', 'rotate')).stdout, /a value does not open.*tools 11/)
  const after = JSON.parse((await command('keys', 'status', '--json')).stdout)
  t.strictSame(after.findings, [{ place: 'the header X-A of tool 11', key: 'old', problem: 'does_not_open' }])

  const observed = await observedWorld(t, { world, secretKeys: env.SECRET_KEYS })
  t.strictSame((await observed.call('GET', '/readyz')).json(), { status: 'ready' }, 'no request opens a value')
  const masks = (await put(observed, 11, {})).json().custom_headers
  t.equal((await put(observed, 11, { custom_headers: masks, name: 'renamed' })).statusCode, 200)
})

t.test('1: nothing is sealed by a first key that does not open what is stored under its id', async t => {
  const world = await worldDatabase(t)
  await sealUnderOldKey(world, generateKey('new'))
  const env = { SECRET_KEYS: `${generateKey('new')} ${TEST_SECRET_KEYS}` }
  const { status, stderr } = await agentctl({ url: world.url, args: ['keys', 'rotate'], env })
  t.equal(status, 1)
  t.match(stderr, '"new" does not open the header X-A of tool 11')
  t.strictSame(
    await world.database.db.selectFrom('deployment_key').select('key_id').execute(),
    [{ key_id: 'test' }],
    'nothing was done',
  )
})

t.test("3 and 78 of the command line: another key under the deployment key's id", async t => {
  const { url } = await worldDatabase(t)
  const env = { SECRET_KEYS: generateKey('test') }
  const status = await agentctl({ url, args: ['keys', 'status'], env })
  t.equal(status.status, 3)
  t.match(status.stdout, /does_not_open +the deployment key +key test/)
  for (const args of [
    ['tool', 'restore', '10', '--version', '1'],
    ['apply', worldFile(), '--plan'],
  ]) {
    const { status, stderr } = await agentctl({ url, args, env })
    t.equal(status, 78)
    t.match(stderr, /"test".*does not open.*keys status/)
    t.notMatch(stderr, /\n +at /)
  }
})

t.test(
  'exit 78 at start: no key ring, or one that cannot be read; every setting is named, no secret shown',
  async t => {
    const without = await serverExit({ DATABASE_URL: 'postgres://app:sesame@127.0.0.1:1/app' })
    t.equal(without.code, 78)
    t.match(without.output, /SECRET_KEYS/)
    t.match(without.output, /made by: agentctl keys generate/)
    const key = Buffer.alloc(31, 9).toString('base64')
    const all = await serverExit({ PORT: 'abc', DATABASE_URL: 'mysql://app:sesame@host/app', SECRET_KEYS: `a:${key}` })
    t.equal(all.code, 78)
    for (const setting of ['PORT', 'DATABASE_URL', 'SECRET_KEYS'])
      t.match(all.output, new RegExp(`^ +${setting}: `, 'm'))
    t.match(all.output, /31 bytes/)
    for (const secret of ['sesame', key]) t.notOk((without.output + all.output).includes(secret))
  },
)

t.test("mode 0600: the embedded default's key file, made once however many processes start together", async t => {
  const folder = mkdtempSync(join(tmpdir(), 'key-file-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const before = process.umask(0)
  t.teardown(() => process.umask(before))
  const config = readConfig({ DATA_DIR: join(folder, 'new', '.data') })
  const rings = [await configuredKeyRing(config), await configuredKeyRing(config)]
  t.strictSame(
    rings.map(ring => ring.currentId),
    [rings[0]?.currentId, rings[0]?.currentId],
  )
  t.equal(statSync(join(config.database.dataDir, 'secret-keys')).mode & 0o777, 0o600)
})
