import { createHash, createPublicKey, verify } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { generateSigningKey, parseSigningKey, readNote, signedNote } from '../../src/admin/checkpoint.js'
import { HashTree, siblingsOf } from '../../src/updates/hash-tree.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { url } = await worldDatabase(t)
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
