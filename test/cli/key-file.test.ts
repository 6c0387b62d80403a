import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))
const NOBODY = 65_534
const needsRoot = { skip: process.getuid?.() !== 0 && 'only root gives files away' }

function generate(path: string, uid?: number) {
  const options = uid === undefined ? {} : { uid, gid: uid }
  return spawnSync(process.execPath, [CLI, 'keys', 'generate', '--file', path], { encoding: 'utf8', ...options })
}

function folderOf(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'key-file-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  return folder
}

t.test('keys generate --file makes a file of mode 0600 and puts each new key first', async t => {
  const path = join(folderOf(t), 'keys')
  t.match(generate(path), { status: 0, stderr: '' })
  const first = parseKeyRing(readFileSync(path, 'utf8')).currentId
  t.equal(generate(path).status, 0)
  t.equal(parseKeyRing(readFileSync(path, 'utf8')).ids[1], first)
  t.equal(statSync(path).mode & 0o777, 0o600)
})

t.test('keys generate --file keeps owner, group and mode of the file', needsRoot, async t => {
  const path = join(folderOf(t), 'keys')
  writeFileSync(path, `${generateKey()}\n`)
  chownSync(path, NOBODY, NOBODY)
  chmodSync(path, 0o640)
  t.equal(generate(path).status, 0)
  t.equal(parseKeyRing(readFileSync(path, 'utf8')).ids.length, 2)
  t.match(statSync(path), { uid: NOBODY, gid: NOBODY })
  t.equal(statSync(path).mode & 0o777, 0o640)
})

t.test('keys generate --file follows a link: it stays one, and the file behind it has the key', async t => {
  const folder = folderOf(t)
  const [path, link] = [join(folder, 'keys'), join(folder, 'link')]
  writeFileSync(path, `${generateKey()}\n`)
  symlinkSync('keys', link)
  t.equal(generate(link).status, 0)
  t.ok(lstatSync(link).isSymbolicLink())
  t.equal(parseKeyRing(readFileSync(path, 'utf8')).ids.length, 2)
  symlinkSync('nothing', join(folder, 'dangling'))
  t.match(generate(join(folder, 'dangling')), { status: 1, stderr: 'cannot be written (EEXIST)' })
})

t.test('1: a key file that cannot be replaced stays as it is, and no draft with a key is left', needsRoot, async t => {
  const folder = folderOf(t)
  chownSync(folder, NOBODY, NOBODY)
  const path = join(folder, 'keys')
  const text = `${generateKey()}\n`
  writeFileSync(path, text, { mode: 0o644 })
  const { status, stderr } = generate(path, NOBODY)
  t.equal(status, 1)
  t.match(stderr, 'EPERM')
  t.equal(readFileSync(path, 'utf8'), text)
  t.strictSame(readdirSync(folder), ['keys'])
})
