import { statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { encryptSecret } from '../../src/secrets/cipher.js'
import { configuredKeyRing } from '../../src/secrets/configured-ring.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { agentctl } from '../cli/agentctl.js'
import { serverExit } from '../server-exit.js'
import { TEST_SECRET_KEYS, type World, worldDatabase, worldFile } from '../world.js'
import { observedWorld } from './observed.js'

/** Encrypts the header of tool 11 with the first key of `oldKeys`, as if `oldKeys` had been the key ring earlier. */
async function sealUnderOldKey(world: World, oldKeys: string): Promise<void> {
  const sealed = encryptSecret(parseKeyRing(oldKeys), '1', { toolId: 11, headerName: 'X-A' })
  await world.database.db
    .updateTable('tool_header')
    .set({ key_id: sealed.keyId, nonce: sealed.nonce, ciphertext: sealed.ciphertext })
    .where('tool_id', '=', 11)
    .execute()
}

t.test('exit 78 at start: another key under the same id, named by its id and nothing else', async t => {
  const { url } = await worldDatabase(t)
  const wrong = generateKey('test')
  const { code, output } = await serverExit({ DATABASE_URL: url, SECRET_KEYS: wrong })
  t.equal(code, 78)
  t.match(output, /key.*"test".*cannot decrypt.*set SECRET_KEYS \(or SECRET_KEYS_FILE\)/)
  t.notOk(output.includes(wrong.slice('test:'.length)), 'the key is not shown')
  const planned = await agentctl({ url, args: ['apply', worldFile(), '--plan'], env: { SECRET_KEYS: wrong } })
  t.match(planned, { status: 78, stderr: /"test".*cannot decrypt.*SECRET_KEYS.*keys status/ })
  t.notMatch(planned.stderr, /\n +at /)
})

t.test('3: keys status names a key that does not open its values; rotation leaves them and does the rest', async t => {
  const world = await worldDatabase(t)
  await sealUnderOldKey(world, generateKey('old'))
  const env = { SECRET_KEYS: `${generateKey('new')} ${generateKey('old')} ${TEST_SECRET_KEYS}` }
  const command = (...args: string[]) => agentctl({ url: world.url, args, env })
  const status = await command('keys', 'status')
  t.equal(status.status, 3)
  t.match(status.stdout, /^old +CANNOT DECRYPT +1 *$/m)
  t.match(status.stdout, /does_not_open {2}the header X-A of tool 11 {2}key old\nadd the right keys to the key ring/)
  const rotation = await command('keys', 'rotate', '--json')
  t.equal(rotation.status, 3)
  t.match(JSON.parse(rotation.stdout), { values: 3, tools: 2, left_tools: [11] })
  t.match((await command('keys', 'rotate')).stdout, /skipped tools 11, because values cannot be decrypted/)
  const after = JSON.parse((await command('keys', 'status', '--json')).stdout)
  t.strictSame(after.findings, [{ place: 'the header X-A of tool 11', key: 'old', problem: 'does_not_open' }])

  const observed = await observedWorld(t, { world })
  t.strictSame((await observed.call('GET', '/readyz')).json(), { status: 'ready' }, 'no request opens a value')
  t.match(observed.log.join(''), /"keys":\["new","old"\].*keys for stored secrets are missing or wrong/)
  const token = await world.token('admin@example.com')
  const put = (body: object) => observed.call('PUT', '/admin/tool/custom/11', { token, body })
  const { custom_headers } = (await put({})).json()
  const added = await put({ custom_headers: [...custom_headers, { key: 'X-New', value: 'new' }] })
  t.match(added, { statusCode: 200 })
  t.strictSame(added.json().custom_headers[0], custom_headers[0])
})

t.test('78: nothing is sealed by a first key that does not open what is stored under its id', async t => {
  const world = await worldDatabase(t)
  await sealUnderOldKey(world, generateKey('new'))
  const env = { SECRET_KEYS: `${generateKey('new')} ${TEST_SECRET_KEYS}` }
  const { status, stderr } = await agentctl({ url: world.url, args: ['keys', 'rotate'], env })
  t.equal(status, 78)
  t.match(stderr, /"new" cannot decrypt the header X-A of tool 11: .*SECRET_KEYS/)
  const keys = await world.database.db.selectFrom('tool_header').select('key_id').distinct().orderBy('key_id').execute()
  t.strictSame(keys, [{ key_id: 'new' }, { key_id: 'test' }], 'nothing was done')
})

t.test('exit 78 at start: no key ring, or an unreadable one; every setting is named, no secret shown', async t => {
  const without = await serverExit({ DATABASE_URL: 'postgres://app:sesame@127.0.0.1:1/app' })
  t.equal(without.code, 78)
  t.match(without.output, /SECRET_KEYS/)
  t.match(without.output, /Create a key with: agentctl keys generate/)
  const key = Buffer.alloc(31, 9).toString('base64')
  const all = await serverExit({ PORT: 'abc', DATABASE_URL: 'mysql://app:sesame@host/app', SECRET_KEYS: `a:${key}` })
  t.equal(all.code, 78)
  for (const setting of ['PORT', 'DATABASE_URL', 'SECRET_KEYS']) t.match(all.output, new RegExp(`^ +${setting}: `, 'm'))
  t.match(all.output, /31 bytes/)
  for (const secret of ['sesame', key]) t.notOk((without.output + all.output).includes(secret))
})

t.test("mode 0600: the embedded default's key file, made once, whatever drafts a killed process left", async t => {
  const before = process.umask(0)
  t.teardown(() => process.umask(before))
  const made = join(t.testdir(), 'new', '.data')
  const left = t.testdir({ 'secret-keys.1': '', [`secret-keys.${process.pid}`]: '' })
  for (const DATA_DIR of [made, left]) {
    const config = readConfig({ DATA_DIR })
    const ring = configuredKeyRing(config)
    t.strictSame([ring.keys.size, configuredKeyRing(config).currentId], [1, ring.currentId])
    t.equal(statSync(join(DATA_DIR, 'secret-keys')).mode & 0o777, 0o600)
  }
})
