/**
 * Tests that a restored backup with the same key ring answers like the original. Covers a copy of the embedded data folder, and a dump by `pg_dump`
 * if PostgreSQL's programs are installed (`PG_BIN_DIR` or Debian's).
 */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { createToken } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { openUrl } from '../src/db/open.js'
import { openSecret } from '../src/secrets/cipher.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { untilPublished } from './eventually.js'
import { newFolder, withClient } from './postgres.js'
import { startedService, type TestService } from './test-service.js'
import { fillDatabase, TEST_SECRET_KEYS, worldDocument } from './world.js'

type Tokens = Record<'admin' | 'person', string>

/** Fills the database with the organisation of the recorded cases and changes some records over HTTP. Returns two tokens. */
async function fill(url: string): Promise<Tokens> {
  await fillDatabase(url, worldDocument())
  return await serving(url, async (database, call) => {
    const { token: admin } = await createToken(database.db, { email: 'admin@example.com' })
    const { token: person } = await createToken(database.db, { email: 'alice@example.com' })
    const headers = [{ key: 'X-Key', value: 'a secret that was set over HTTP' }]
    await call('PUT', '/admin/tool/custom/12', { token: admin, body: { custom_headers: headers } })
    for (const description of ['first', 'second'])
      await call('PATCH', '/persona/1?update_mask=description', { token: person, body: { description } })
    return { admin, person }
  })
}

/** Runs the service on a database until `work` ends. */
async function serving<T>(url: string, work: (database: Database, call: TestService['call']) => Promise<T>) {
  const database = openUrl(url, readConfig({}))
  const ends = [() => database.close()]
  const { call } = await startedService({ teardown: end => ends.unshift(end) }, database)
  const done = await work(database, call)
  for (const end of ends) await end()
  return done
}

/** Returns everything that callers and operators see: all agents and tools, decrypted secrets, and the state of the audit trail. */
async function answers(url: string, tokens: Tokens): Promise<Record<string, unknown>> {
  return await serving(url, async (database, call) => {
    const read: Record<string, unknown> = {}
    for (const path of ['/persona', '/tool']) {
      const all = await call('GET', `${path}?limit=100`, { token: tokens.admin })
      for (const [caller, token] of Object.entries(tokens)) {
        for (const { id } of all.json()) {
          const answer = await call('GET', `${path}/${id}`, { token, headers: { 'x-request-id': 'backup' } })
          const { statusCode: status, headers } = answer
          read[`${caller} ${path}/${id}`] = { status, etag: headers.etag, body: answer.json() }
        }
      }
    }
    return { ...read, secrets: await secrets(database), audit: await verifyAudit(database.db) }
  })
}

async function secrets({ db }: Database): Promise<string[]> {
  const rows = await db.selectFrom('tool_header').selectAll().orderBy('tool_id').orderBy('position').execute()
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  return rows.map(({ tool_id: toolId, name: headerName, key_id: keyId, ...sealed }) =>
    String(openSecret(ring, { ...sealed, keyId, toolId, headerName }).value),
  )
}

/** Returns a folder with all needed programs, if there is one. All must be of one version: `pg_dump` refuses a newer server. */
function dumpPrograms(): string | undefined {
  const debian = '/usr/lib/postgresql'
  const installed = existsSync(debian) ? readdirSync(debian).map(version => join(debian, version, 'bin')) : []
  const { PG_BIN_DIR } = process.env
  const folders = PG_BIN_DIR === undefined ? installed : [PG_BIN_DIR]
  return folders.find(path =>
    ['postgres', 'initdb', 'pg_dump', 'pg_restore'].every(name => existsSync(join(path, name))),
  )
}

const binDir = dumpPrograms()
const run = (program: string, args: string[]) =>
  execFileSync(join(binDir ?? '', program), args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })

t.test('a copy of the data folder of a stopped server, and a restored dump, answer as before', async t => {
  const options = binDir === undefined ? {} : { binDir }
  const dataDir = newFolder(t)
  const source = await startEmbedded({ dataDir, ...options })
  const tokens = await fill(source.url)
  const before = await answers(source.url, tokens)
  const cursor = await serving(source.url, async (_, call) => {
    return (await call('GET', '/changes', { token: tokens.person })).json().next as string
  })
  t.match(before['admin /persona/1'], { status: 200, body: { description: 'second' } })
  t.match(before['admin /tool/12'], { status: 200, body: { custom_headers: [{ value: /^\*{4}#[0-9a-f]{12}$/ }] } })
  t.ok((before.secrets as string[]).includes('a secret that was set over HTTP')) // set by `answers`
  t.match(before.audit, { rows: Number, findings: [] })

  const dump = join(newFolder(t), 'agents.dump')
  if (binDir) run('pg_dump', ['--format=custom', '--no-owner', `--file=${dump}`, `--dbname=${source.url}`])
  await source.stop()
  const copy = newFolder(t)
  execFileSync('cp', ['-a', join(dataDir, 'postgresql'), copy])
  const target = await startEmbedded({ dataDir: copy, ...options })
  t.teardown(() => target.stop())
  t.strictSame(await answers(target.url, tokens), before)

  if (!binDir) return t.comment('no folder has pg_dump beside postgres (PG_BIN_DIR): the dump was not tried')
  const text = run('pg_restore', ['--file=-', dump])
  t.notMatch(text, /a secret that was set over HTTP/, 'the dump holds no secret in clear')
  t.notMatch(text, tokens.admin, 'nor a token')
  await withClient(target.url, client => client.query('create database restored template template0'))
  const url = target.url.replace('/postgres?', '/restored?')
  run('pg_restore', ['--exit-on-error', '--single-transaction', '--no-owner', `--dbname=${url}`, dump])
  t.strictSame(await answers(url, tokens), before)

  // The restored database continues the feed of changes, but refuses earlier cursors.
  await serving(url, async ({ db }, call) => {
    const read = async (query = '') => await call('GET', `/changes${query}`, { token: tokens.person })
    t.match((await read(`?after=${cursor}`)).json(), { error_code: 'CURSOR_GONE' })
    const { next } = (await read()).json()
    await call('PATCH', '/persona/1?update_mask=description', { token: tokens.person, body: { description: 'third' } })
    await untilPublished(db)
    const { changes } = (await read(`?after=${next}`)).json()
    t.match(changes, [{ kind: 'persona', id: 1, action: 'updated' }])
    t.equal(changes.length, 1)
  })
})
