/**
 * What is backed up and restored answers as before, with the same key ring: a copy of the embedded data folder, and a dump
 * by `pg_dump` where PostgreSQL's programs are installed (`PG_BIN_DIR`, or Debian's).
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { applyOrganisation } from '../src/admin/apply.js'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { createToken } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { decryptSecret } from '../src/secrets/cipher.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { appOver } from './app.js'
import { TEST_SECRET_KEYS, worldFile } from './world.js'

type Teardown = { teardown(fn: () => void | Promise<void>): void }

function folder(t: Teardown): string {
  const path = mkdtempSync(join(tmpdir(), 'agents-backup-'))
  chmodSync(path, 0o711) // the account that runs the server passes through
  t.teardown(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Fills the database with the recorded cases' organisation and changes some of it over HTTP; answers two tokens. */
async function fill(url: string): Promise<Tokens> {
  const database = openUrl(url, readConfig({}))
  await migrate(database)
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  await applyOrganisation(database, JSON.parse(readFileSync(worldFile(), 'utf8')), { ring, env: {} })
  const { token: admin } = await createToken(database.db, { email: 'admin@example.com' })
  const { token: person } = await createToken(database.db, { email: 'alice@example.com' })
  await database.close()
  await serving(url, async call => {
    const headers = [{ key: 'X-Key', value: 'a secret that was set over HTTP' }]
    await call('PUT', '/admin/tool/custom/12', admin, { custom_headers: headers })
    await call('PATCH', '/persona/1?update_mask=description', person, { description: 'first' })
    await call('PATCH', '/persona/1?update_mask=description', person, { description: 'second' })
  })
  return { admin, person }
}

interface Tokens {
  admin: string
  person: string
}

type Send = (method: 'PATCH' | 'PUT', url: string, token: string, body: object) => Promise<unknown>

/** Runs the service on a database for as long as the work lasts. */
async function serving<T>(url: string, work: (send: Send) => Promise<T>): Promise<T> {
  const database = openUrl(url, readConfig({}))
  const ends = [() => database.close()]
  const { call } = await appOver({ teardown: end => ends.unshift(end) }, database)
  try {
    return await work(async (method, url, token, body) => {
      const answer = await call(method, url, { token, body, headers: { 'x-request-id': 'backup' } })
      return { status: answer.statusCode, etag: answer.headers.etag, body: answer.json() as Record<string, unknown> }
    })
  } finally {
    for (const end of ends) await end()
  }
}

/** Everything that callers and operators see: all agents and tools, secrets in clear, and the state of the audit trail. */
async function answers(url: string, { admin, person }: Tokens): Promise<Record<string, unknown>> {
  const database = openUrl(url, readConfig({}))
  try {
    const agents = await database.db.selectFrom('persona').select('id').orderBy('id').execute()
    const tools = await database.db.selectFrom('tool').select('id').orderBy('id').execute()
    const read: Record<string, unknown> = {}
    await serving(url, async send => {
      for (const [caller, token] of Object.entries({ admin, person })) {
        for (const { id } of agents) {
          read[`${caller} agent ${id}`] = await send('PATCH', `/persona/${id}?update_mask=&dry_run=true`, token, {})
        }
        for (const { id } of tools) {
          read[`${caller} tool ${id}`] = await send('PUT', `/admin/tool/custom/${id}?dry_run=true`, token, {})
        }
      }
    })
    return { ...read, secrets: await secrets(database), audit: await verifyAudit(database.db) }
  } finally {
    await database.close()
  }
}

async function secrets({ db }: Database): Promise<string[]> {
  const { rows } = await sql<{ tool_id: number; name: string; key_id: string; nonce: Buffer; ciphertext: Buffer }>`
    select tool_id, name, key_id, nonce, ciphertext from tool_header order by tool_id, position`.execute(db)
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  return rows.map(({ tool_id, name, key_id, nonce, ciphertext }) =>
    decryptSecret(ring, { keyId: key_id, nonce, ciphertext }, { toolId: tool_id, headerName: name }),
  )
}

/** A folder with all programs of one version: a dump is of a server that is not newer than `pg_dump`. */
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
  const dataDir = folder(t)
  const source = await startEmbedded({ dataDir, ...options })
  const tokens = await fill(source.url)
  const before = await answers(source.url, tokens)
  t.match(before['admin agent 1'], { status: 200, body: { description: 'second' } })
  t.match(before['admin tool 12'], { status: 200, body: { custom_headers: [{ value: /^\*{4}#[0-9a-f]{12}$/ }] } })
  t.ok((before.secrets as string[]).includes('a secret that was set over HTTP')) // answers() put them there
  t.match(before.audit, { rows: Number, findings: [] })

  const dump = join(folder(t), 'agents.dump')
  if (binDir) run('pg_dump', ['--format=custom', '--no-owner', `--file=${dump}`, `--dbname=${source.url}`])
  await source.stop()
  const copy = folder(t)
  execFileSync('cp', ['-a', join(dataDir, 'postgresql'), copy])
  const target = await startEmbedded({ dataDir: copy, ...options })
  t.teardown(() => target.stop())
  t.strictSame(await answers(target.url, tokens), before)

  if (!binDir) return t.comment('no folder has pg_dump beside postgres (PG_BIN_DIR): the dump was not tried')
  const text = run('pg_restore', ['--file=-', dump])
  t.notMatch(text, /a secret that was set over HTTP/, 'the dump holds no secret in clear')
  t.notMatch(text, tokens.admin, 'nor a token')
  const client = new pg.Client({ connectionString: target.url })
  await client.connect()
  await client.query('create database restored template template0')
  await client.end()
  const url = target.url.replace('/postgres?', '/restored?')
  run('pg_restore', ['--exit-on-error', '--single-transaction', '--no-owner', `--dbname=${url}`, dump])
  t.strictSame(await answers(url, tokens), before)
})
