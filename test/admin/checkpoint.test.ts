import { createHash, createPublicKey, verify } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, watch, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateSigningKey, parseSigningKey, readNote, signedNote } from '../../src/admin/checkpoint.js'
import { CheckpointFolder, CheckpointRefuted } from '../../src/admin/checkpoint-folder.js'
import { growTree } from '../../src/updates/audit-leaves.js'
import { HashTree, siblingsOf } from '../../src/updates/hash-tree.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

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

t.test('agentctl: keygen, checkpoint, verify against it later', async t => {
  const keyFile = join(folder, 'key')
  const made = await agentctl('audit', 'keygen', 'agents.example.com', '--file', keyFile)
  t.match(made.stdout, /^the private key is in .*\nagents\.example\.com\+[0-9a-f]{8}\+/)
  t.match(readFileSync(keyFile, 'utf8'), /^PRIVATE\+KEY\+agents\.example\.com\+/)
  const [before, after] = [join(folder, 'before'), join(folder, 'after')]
  t.match((await agentctl('audit', 'checkpoint', '--out', before)).stdout, /: \d+ audit rows and events/)
  await agentctl('user', 'create', 'zoe@example.com')
  t.match(await agentctl('audit', 'verify', '--resource', 'agent:999'), {
    status: 1,
    stdout: '',
    stderr: /there is no agent 999, and never was one/,
  })
  await agentctl('audit', 'checkpoint', '--out', after)
  for (const checkpoint of [before, after]) {
    const { status, stdout } = await agentctl('audit', 'verify', '--checkpoint', checkpoint, '--public-key', verifier)
    t.equal(status, 0, stdout)
    t.match(stdout, /compared with the checkpoint of \d+ leaves/)
  }
  const keyless = await agentctlOf({ url, args: ['audit', 'verify', '--checkpoint', after] })
  t.equal(keyless.status, 1)
  t.match(keyless.stderr, /--checkpoint needs --public-key NAME\+HASH\+KEY/)
  t.notMatch(keyless.stderr, 'AUDIT_SIGNING_KEY')
  const never = await agentctl('audit', 'verify', '--resource', 'agent:999')
  t.match(never, { status: 1, stdout: '', stderr: /there is no agent 999, and never was one/ })
  t.match((await agentctl('audit', 'checkpoint', '--out', after)).stderr, /cannot be written \(EEXIST\)/)
  t.equal((await agentctl('user', 'erase', 'zoe@example.com', '--yes')).status, 0)
  t.equal((await agentctl('audit', 'verify', '--checkpoint', before)).status, 0)
})

t.test('a service puts checkpoints into a folder, one for each change of the tree', async t => {
  const checkpoints = join(folder, 'checkpoints')
  const env = { AUDIT_SIGNING_KEY: signer, AUDIT_CHECKPOINT_DIR: checkpoints, AUDIT_CHECKPOINT_INTERVAL_S: '10' }
  t.match(
    (await agentctlOf({ url, args: ['user', 'list'], env: { AUDIT_CHECKPOINT_DIR: checkpoints } })).stderr,
    /needs AUDIT_SIGNING_KEY/,
  )
  const missing = new CheckpointFolder(db, parseSigningKey(signer), checkpoints)
  await t.rejects(missing.store(), /the folder .*checkpoints is not there: mount it, or make it/)
  t.notOk(existsSync(checkpoints), 'a mount that is not there is no folder of this disk')
  mkdirSync(checkpoints)
  const service = new ServiceProcess(0, { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, ...env })
  service.launch()
  t.teardown(() => service.stop('SIGKILL'))
  while (readdirSync(checkpoints).length === 0) await sleep(50)
  const [name = ''] = readdirSync(checkpoints)
  const { size } = readNote(readFileSync(join(checkpoints, name), 'utf8'), verifier)
  t.equal(name, `checkpoint-${String(size).padStart(12, '0')}.txt`)
  t.equal(size, await growTree(db))
})

t.test('a folder that only takes new files is enough, and none of them is written over', async t => {
  const own = join(folder, 'only-new')
  mkdirSync(own)
  const made: string[] = []
  const watcher = watch(own, (_, name) => made.push(String(name)))
  t.teardown(() => watcher.close())
  const key = parseSigningKey(signer)
  const store = (instance = new CheckpointFolder(db, key, own)) => instance.store()
  const first = new CheckpointFolder(db, key, own)
  const size = await growTree(db)
  const nameOf = (count: number, more = '') => `checkpoint-${String(count).padStart(12, '0')}${more}.txt`
  t.same(await store(first), { path: join(own, nameOf(size)), unreadable: [] })
  t.same(await store(first), { path: undefined, unreadable: [] }, 'nothing has changed')
  t.same(await store(), { path: undefined, unreadable: [] }, 'nor for another instance')
  await agentctl('user', 'create', 'yan@example.com')
  writeFileSync(join(own, nameOf(size + 1)), 'garbage')
  t.same(await store(first), { path: join(own, nameOf(size + 1, '-2')), unreadable: [nameOf(size + 1)] })
  await agentctl('user', 'create', 'xia@example.com')
  t.same((await Promise.all([store(), store(first)])).filter(({ path }) => path !== undefined).length, 1, 'two at once')
  const all = [nameOf(size), nameOf(size + 1), nameOf(size + 1, '-2'), nameOf(size + 2)]
  t.same(readdirSync(own).sort(), all.sort())
  while (!made.includes(nameOf(size + 2))) await sleep(10)
  t.same(new Set(made), new Set(all), 'no draft that is renamed')
  t.equal(readFileSync(join(own, nameOf(size + 1)), 'utf8'), 'garbage')
  for (const name of all.filter(name => name !== nameOf(size + 1))) {
    t.equal((await agentctl('audit', 'verify', '--checkpoint', join(own, name))).status, 0, name)
  }
})

t.test('a database that the newest checkpoint refutes is not signed beside it, and everybody is told', async t => {
  const own = join(folder, 'refuting')
  mkdirSync(own)
  const key = parseSigningKey(signer)
  const running = new CheckpointFolder(db, key, own)
  const { path = '' } = await running.store()
  const kept = await db.selectFrom('audit_leaf').selectAll().orderBy('position').execute()
  const tree = await db.selectFrom('audit_tree').select(['size', 'subtrees']).executeTakeFirstOrThrow()
  const rewrite = async (hashes: readonly Buffer[]) => {
    const other = new HashTree()
    for (const hash of hashes) other.add(hash)
    await db.deleteFrom('audit_leaf').execute()
    const leaves = kept.slice(0, hashes.length).map((leaf, at) => ({ ...leaf, hash: hashes[at] ?? leaf.hash }))
    await db.insertInto('audit_leaf').values(leaves).execute()
    await db
      .updateTable('audit_tree')
      .set({ size: other.size, subtrees: Buffer.concat(other.subtrees) })
      .execute()
  }
  const hashes = kept.map(leaf => leaf.hash)
  await rewrite(hashes.map((hash, at) => (at === 3 ? sha256(hash) : hash)))
  for (const instance of [running, new CheckpointFolder(db, key, own)]) {
    const refused = await instance.store().catch(error => error)
    t.type(refused, CheckpointRefuted)
  }
  await agentctl('user', 'create', 'will@example.com')
  for (const instance of [running, new CheckpointFolder(db, key, own)]) {
    await t.rejects(instance.store(), /not the one of .*: they were others/, 'nor when it has grown')
  }
  const service = await ServiceProcess.start({
    DATABASE_URL: url,
    SECRET_KEYS: TEST_SECRET_KEYS,
    AUDIT_SIGNING_KEY: signer,
    AUDIT_CHECKPOINT_DIR: own,
    METRICS_TOKEN: 'shown-to-this-test',
  })
  t.teardown(() => service.stop('SIGKILL'))
  const metrics = async () => {
    const answer = await fetch(`http://127.0.0.1:${service.port}/metrics`, {
      headers: { authorization: 'Bearer shown-to-this-test' },
    })
    return await answer.text()
  }
  while (!(await metrics()).includes('agents_audit_checkpoint_problem{reason="refuted"} 1')) await sleep(50)
  t.match(await metrics(), 'agents_audit_checkpoint_problem{reason="not_stored"} 0')
  const line = service.log.split('\n').find(text => text.includes('the audit trail is not the one of'))
  t.match(JSON.parse(line ?? '{}'), { level: 50 })
  t.same(readdirSync(own), [basename(path)])
  await db.deleteFrom('audit_leaf').where('position', '>=', kept.length).execute()
  await rewrite(hashes)
  await db.updateTable('audit_tree').set(tree).execute()
  t.ok((await running.store()).path, 'the right one goes on')
})
