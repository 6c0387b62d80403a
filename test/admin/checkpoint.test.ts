import { execFile } from 'node:child_process'
import { createHash, createPublicKey, verify } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { type InclusionProof, proveChange } from '../../src/admin/audit-proof.js'
import { generateSigningKey, parseSigningKey, readNote, signedNote } from '../../src/admin/checkpoint.js'
import { growTree } from '../../src/updates/audit-leaves.js'
import { HashTree, siblingsOf } from '../../src/updates/hash-tree.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { database, url } = await worldDatabase(t)
const { db } = database
const folder = mkdtempSync(join(tmpdir(), 'checkpoint-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const { signer, verifier } = generateSigningKey('agents.example.com')
const agentctl = (...args: string[]) => agentctlOf({ url, args, env: { AUDIT_SIGNING_KEY: signer } })

/*
 * RFC 9162 once more, written from its text: section 2.1.1 (the hash of a list), 2.1.3.1 (the inclusion path) and 2.1.3.2 (its
 * check). Nothing of it is shared with the program.
 */
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest()

function listHash(list: readonly Buffer[]): Buffer {
  const [first] = list
  if (first === undefined) return sha256(Buffer.alloc(0))
  if (list.length === 1) return sha256(Buffer.concat([Buffer.from([0x00]), first]))
  const k = splitOf(list.length)
  return sha256(Buffer.concat([Buffer.from([0x01]), listHash(list.slice(0, k)), listHash(list.slice(k))]))
}

/** The largest power of two smaller than n. */
function splitOf(n: number): number {
  return 2 ** Math.floor(Math.log2(n - 1))
}

function pathOf(m: number, list: readonly Buffer[]): Buffer[] {
  if (list.length === 1) return []
  const k = splitOf(list.length)
  return m < k
    ? [...pathOf(m, list.slice(0, k)), listHash(list.slice(k))]
    : [...pathOf(m - k, list.slice(k)), listHash(list.slice(0, k))]
}

function isIncluded(leaf: Buffer, index: number, size: number, path: readonly Buffer[], root: Buffer): boolean {
  if (index >= size) return false
  let fn = BigInt(index)
  let sn = BigInt(size - 1)
  let r = sha256(Buffer.concat([Buffer.from([0x00]), leaf]))
  for (const p of path) {
    if (sn === 0n) return false
    if ((fn & 1n) === 1n || fn === sn) {
      r = sha256(Buffer.concat([Buffer.from([0x01]), p, r]))
      if ((fn & 1n) === 0n) {
        do {
          fn >>= 1n
          sn >>= 1n
        } while ((fn & 1n) === 0n && fn !== 0n)
      }
    } else r = sha256(Buffer.concat([Buffer.from([0x01]), r, p]))
    fn >>= 1n
    sn >>= 1n
  }
  return sn === 0n && r.equals(root)
}

t.test('roots and paths of trees of every size up to 70 are those of RFC 9162', async t => {
  const list = Array.from({ length: 70 }, (_, index) => sha256(Buffer.from(String(index))))
  const rootOf = (leaves: readonly Buffer[]) => {
    const tree = new HashTree()
    for (const leaf of leaves) tree.add(leaf)
    return tree.root()
  }
  for (let size = 0; size <= list.length; size++) {
    const leaves = list.slice(0, size)
    if (!rootOf(leaves).equals(listHash(leaves))) t.fail(`root of ${size}`)
    for (let index = 0; index < size; index += 1 + (index % 3)) {
      const path = siblingsOf(index, size).map(({ start, end }) => rootOf(leaves.slice(start, end)))
      if (!Buffer.concat(path).equals(Buffer.concat(pathOf(index, leaves)))) t.fail(`path of ${index} of ${size}`)
      if (!isIncluded(leaves[index] ?? sha256(Buffer.alloc(0)), index, size, path, listHash(leaves)))
        t.fail(`${index} of ${size}`)
    }
  }
  t.pass(`${list.length} sizes`)
})

t.test('a note has the form of a signed checkpoint, and only its own key and text are believed', async t => {
  const root = sha256(Buffer.from('root'))
  const note = signedNote({ size: 42, root }, parseSigningKey(signer))
  const [origin, size, hash, empty, line] = note.split('\n')
  t.same([origin, size, hash, empty], ['agents.example.com', '42', root.toString('base64'), ''])
  const [dash, name, signature = ''] = line?.split(' ') ?? []
  t.same([dash, name], ['—', 'agents.example.com'])
  // By the text of the note format: the first four bytes of SHA-256(name, line feed, 1, key), then Ed25519 over the text.
  const key = Buffer.from(verifier.split('+').slice(2).join('+'), 'base64')
  const bytes = Buffer.from(signature, 'base64')
  t.same(bytes.subarray(0, 4), sha256(Buffer.concat([Buffer.from('agents.example.com\n'), key])).subarray(0, 4))
  const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), key.subarray(1)])
  const publicKey = createPublicKey({ key: spki, format: 'der', type: 'spki' })
  t.ok(verify(null, Buffer.from(note.slice(0, note.indexOf('\n\n') + 1)), publicKey, bytes.subarray(4)))
  t.same(readNote(note, verifier), { origin: 'agents.example.com', size: 42, root })
  const other = generateSigningKey('agents.example.com')
  t.throws(() => readNote(note, other.verifier), /not signed by the key/)
  t.throws(() => readNote(note.replace('42', '43'), verifier), /not signed by the key/)
  t.throws(() => readNote('hello', verifier), /not a checkpoint of agents.example.com/)
  t.throws(() => readNote(note, verifier.replace('agents', 'others')), /public key is not one/)
  t.throws(() => parseSigningKey(signer.slice(0, -8)), /signing key is not one/)
  t.throws(() => generateSigningKey('two words'), /letters, digits/)
})

t.test('agentctl: keygen, checkpoint, verify against it later, and a proof that a third party checks', async t => {
  const keyFile = join(folder, 'key')
  const made = await agentctl('audit', 'keygen', 'agents.example.com', '--file', keyFile)
  t.match(made.stdout, /^the private key is in .*\nagents\.example\.com\+[0-9a-f]{8}\+/)
  t.match(readFileSync(keyFile, 'utf8'), /^PRIVATE\+KEY\+agents\.example\.com\+/)
  const [before, after, proof] = ['before', 'after', 'proof'].map(name => join(folder, name)) as [
    string,
    string,
    string,
  ]
  t.match((await agentctl('audit', 'checkpoint', '--out', before)).stdout, /: \d+ audit rows and events/)
  await agentctl('user', 'create', 'zoe@example.com')
  await agentctl('agent', 'share', '1', '--user', 'zoe@example.com')
  await agentctl('audit', 'checkpoint', '--out', after)
  for (const checkpoint of [before, after]) {
    const { status, stdout } = await agentctl('audit', 'verify', '--checkpoint', checkpoint, '--public-key', verifier)
    t.equal(status, 0, stdout)
    t.match(stdout, /compared with the checkpoint of \d+ leaves/)
  }
  await agentctl('audit', 'prove', 'agent:1', '2', '--checkpoint', after, '--out', proof)
  const { checkpoint, hash, index, path } = JSON.parse(readFileSync(proof, 'utf8')) as InclusionProof
  const { size, root } = readNote(checkpoint, verifier)
  const nodes = path.map(node => Buffer.from(node, 'base64'))
  t.ok(isIncluded(Buffer.from(hash, 'hex'), index, size, nodes, root))
  const leaves = await db.selectFrom('audit_leaf').select('hash').orderBy('position').execute()
  t.ok(listHash(leaves.map(leaf => leaf.hash)).equals(root))
  const { status, stderr } = await agentctl('audit', 'prove', 'agent:1', '2', '--checkpoint', before)
  t.equal(status, 1)
  t.match(stderr, 'agent:1 2 is not in the tree of the checkpoint')

  const check = (file: string) =>
    promisify(execFile)(process.execPath, [
      fileURLToPath(new URL('../../../ops/verify-proof.mjs', import.meta.url)),
      file,
      verifier,
    ])
  t.match((await check(proof)).stdout, /^proved: \["persona",1,1,2,.*\ncontent: .*users.*\nidentity: .*agentctl/)
  const event = join(folder, 'event')
  const zoe = await db
    .selectFrom('user_account')
    .select('id')
    .where('email', '=', 'zoe@example.com')
    .executeTakeFirstOrThrow()
  await agentctl('audit', 'prove', `user:${zoe.id}`, '1', '--out', event)
  t.match((await check(event)).stdout, /person: \{"salt":"[^"]+","name":"zoe@example.com"\}/)
  const forgeries: [keyof InclusionProof, (proof: InclusionProof) => unknown][] = [
    ['content', () => '{}'],
    ['identity', ({ identity }) => ({ ...identity, actor: 'bob@example.com' })],
    ['hashed', ({ hashed }) => hashed?.replace('"agentctl', '"someone')],
    ['index', ({ index }) => index + 1],
    ['path', ({ path }) => path.slice(1)],
    ['checkpoint', ({ checkpoint }) => checkpoint.replace(/\n\d+\n/, '\n7\n')],
  ]
  for (const [field, forged] of forgeries) {
    const original = JSON.parse(readFileSync(proof, 'utf8')) as InclusionProof
    const file = join(folder, 'forged')
    writeFileSync(file, JSON.stringify({ ...original, [field]: forged(original) }))
    await t.rejects(check(file), /NOT PROVED/, field)
  }

  t.equal((await agentctl('user', 'erase', 'zoe@example.com', '--yes')).status, 0)
  t.match((await check(event)).stdout, 'proved', 'a proof that was handed out before')
  await agentctl('audit', 'prove', `user:${zoe.id}`, '1', '--checkpoint', after, '--out', event)
  t.match((await check(event)).stdout, /person: null/, 'and one after the erasure')
  t.equal((await agentctl('audit', 'verify', '--checkpoint', before)).status, 0)
})

t.test('a service puts checkpoints into a folder, one for each change of the tree', async t => {
  const checkpoints = join(folder, 'checkpoints')
  const env = { AUDIT_SIGNING_KEY: signer, AUDIT_CHECKPOINT_DIR: checkpoints, AUDIT_CHECKPOINT_INTERVAL_S: '10' }
  t.match(
    (await agentctlOf({ url, args: ['config'], env: { AUDIT_CHECKPOINT_DIR: checkpoints } })).stderr,
    /needs AUDIT_SIGNING_KEY/,
  )
  const service = new ServiceProcess(0, { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, ...env })
  service.launch()
  t.teardown(() => service.stop('SIGKILL'))
  while (!existsSync(checkpoints) || readdirSync(checkpoints).length === 0)
    await new Promise(done => setTimeout(done, 50))
  const [name = ''] = readdirSync(checkpoints)
  const { size, root } = readNote(readFileSync(join(checkpoints, name), 'utf8'), verifier)
  t.equal(name, `checkpoint-${String(size).padStart(12, '0')}.txt`)
  t.equal(size, await growTree(db))
  await t.rejects(
    proveChange(
      db,
      { kind: 'persona', subject: '1', number: 1 },
      {
        note: signedNote({ size, root: sha256(root) }, parseSigningKey(signer)),
        verifier,
      },
    ),
    /not the one of the checkpoint/,
  )
})
