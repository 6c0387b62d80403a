import { generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql, type Transaction } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { checkSignature, readSigningKey, writeCheckpoint } from '../../src/admin/checkpoint.js'
import { readConfig } from '../../src/config.js'
import type { Tables } from '../../src/db/tables.js'
import { recordAccess } from '../../src/updates/access-events.js'
import { PRUNER, pruneHistory } from '../../src/updates/prune.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { deleteTool } from '../deletion.js'
import { worldDatabase } from '../world.js'
import { inVain, rewrite } from './trail.js'

const { database, url } = await worldDatabase(t)
const { db } = database
const folder = mkdtempSync(join(tmpdir(), 'checkpoint-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const at = (name: string) => join(folder, name)
const agentctl = (...args: string[]) => agentctlOf({ url, args })

/** A key pair as `openssl genpkey` and `openssl pkey -pubout` make it. */
function generateSigningKey(name: string): void {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  writeFileSync(at(name), privateKey.export({ format: 'pem', type: 'pkcs8' }))
  writeFileSync(at(`${name}.pub`), publicKey.export({ format: 'pem', type: 'spki' }))
}

const [sign, check] = [['--key', at('key')] as const, ['--public-key', at('key.pub')] as const]

t.test('agentctl: a key, a checkpoint, and verification against it later, with the public key alone', async t => {
  generateSigningKey('key')
  t.match(await agentctl('audit', 'checkpoint', at('first'), ...sign), {
    status: 0,
    stdout: /: \d+ chains, \d+ rows and events/,
  })
  await agentctl('user', 'create', 'zoe@example.com')
  t.equal((await agentctl('audit', 'checkpoint', at('second'), ...sign, '--json')).status, 0)
  for (const file of ['first', 'second']) {
    const answer = await agentctl('audit', 'verify', '--checkpoint', at(file), ...check)
    t.match(answer, { status: 0, stdout: /compared with \d+ chains of 20\d\d-.*Z/ })
  }
  t.match(await agentctl('audit', 'checkpoint', at('first'), ...sign), {
    status: 1,
    stderr: /cannot be written \(EEXIST\)/,
  })
  t.match(await agentctl('audit', 'checkpoint', at('third')), { status: 64, stderr: /--key FILE names/ })
  const verify = ['audit', 'verify', '--checkpoint', at('first')]
  t.match(await agentctl(...verify), { status: 64, stderr: /--public-key FILE names/ })
  t.match(await agentctl('audit', 'verify', ...check), { status: 64, stderr: /goes with --checkpoint/ })
  t.equal((await agentctl('user', 'erase', 'zoe@example.com', '--yes')).status, 0)
  t.equal((await agentctl(...verify, ...check)).status, 0, 'what was erased by rights is no tampering')
})

t.test('a file that was changed, cut, or signed by another key is refused', async t => {
  const text = readFileSync(at('first'), 'utf8')
  const [first = '', ...lines] = text.trimEnd().split('\n')
  generateSigningKey('other')
  const key = readSigningKey(readFileSync(at('key'), 'utf8'), 'public')
  await t.rejects(
    checkSignature(at('first'), readSigningKey(readFileSync(at('other'), 'utf8'), 'public')),
    /signed by this key/,
  )
  for (const [name, changed] of Object.entries({
    cut: lines.join('\n'),
    swapped: [lines[0], first, ...lines.slice(1)].join('\n'),
    counts: text.replace('"chains":', '"chains":1'),
    unsigned: text.split('\n').slice(0, -2).join('\n'),
    empty: '',
  })) {
    writeFileSync(at(name), `${changed}\n`)
    await t.rejects(checkSignature(at(name), key), /was changed|not a checkpoint/, name)
  }
  await t.rejects(checkSignature(at('missing'), key), /cannot be read \(ENOENT\)/)
  t.throws(() => readSigningKey('PRIVATE+KEY+x', 'private'), /not the private half of an Ed25519 key/)
})

t.test('what was cut, removed or rewritten since is found, though every chain is whole', async t => {
  const checkpoint = at('second')
  const found = (tamper: (trx: Transaction<Tables>) => Promise<unknown>) =>
    inVain(db, async trx => {
      await tamper(trx)
      t.same((await verifyAudit(trx)).findings, [], 'nothing shows without the checkpoint')
      const { findings } = await verifyAudit(trx, checkpoint)
      return findings.map(({ problem, kind, subject, number }) => `${problem} ${kind}:${subject} ${number}`)
    })
  const row = sql`resource_kind = 'persona' and resource_id = 11`
  const rewritten = found(async trx => {
    await sql`update audit set actor = 'mallory@example.com' where ${row} and version_after = 1`.execute(trx)
    await rewrite(trx, 'persona', 11)
  })
  t.same(await rewritten, ['checkpoint_mismatch persona:11 1'])
  const removed = found(async trx => {
    const links = [
      'persona_tool',
      'persona_document_set',
      'persona_label',
      'persona_user_file',
      'persona_user',
      'persona_group',
    ]
    for (const table of links) await sql`delete from ${sql.table(table)} where persona_id = 11`.execute(trx)
    await sql`delete from persona where id = 11`.execute(trx)
    await sql`delete from audit where ${row}`.execute(trx)
  })
  t.same(await removed, ['checkpoint_mismatch persona:11 1'])
  const { rows } = await sql<{ subject: string }>`
    select subject from access_chain where kind = 'user' and number = 1 order by 1 limit 1`.execute(db)
  const own = sql`kind = 'user' and subject = ${rows[0]?.subject}`
  const cut = found(async trx => {
    await sql`set local session_replication_role = replica`.execute(trx)
    await sql`delete from access_event where ${own}`.execute(trx)
    await sql`delete from access_chain where ${own}`.execute(trx)
    await sql`delete from user_account where id::text = ${rows[0]?.subject}`.execute(trx)
    const detail = { anchor_version: 99, anchor_hash: '00', content_hash: null, emptied_to: 0 }
    await recordAccess(trx, PRUNER, [{ kind: 'prune', subject: `user:${rows[0]?.subject}`, action: 'pruned', detail }])
  })
  t.same(await cut, [`checkpoint_mismatch user:${rows[0]?.subject} 1`])
  const noted = found(async trx => {
    await sql`insert into audit_upgrade_head select 'persona', '11', 1, hash from audit where ${row}`.execute(trx)
    await sql`update audit set identity_hash = null, actor = 'mallory@example.com' where ${row}`.execute(trx)
  })
  t.same(await noted, ['checkpoint_mismatch upgrade: 0'], 'nor does a forged note of the upgrade hide a change')
})

t.test('what was pruned or removed by rights since is not taken for tampering', async t => {
  const { id } = await db
    .selectFrom('tool')
    .select('id')
    .where('in_code_tool_id', 'is', null)
    .orderBy('id', 'desc')
    .executeTakeFirstOrThrow()
  await deleteTool(database, id)
  await writeCheckpoint(db, readSigningKey(readFileSync(at('key'), 'utf8'), 'private'), at('later'))
  await pruneHistory(db, { ...readConfig({}).history, auditRetentionDays: 0 })
  for (const file of ['first', 'second', 'later']) {
    t.same((await verifyAudit(db, at(file))).findings, [], file)
  }
})
