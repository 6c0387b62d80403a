// node verify-proof.mjs PROOF.json 'NAME+HASH+KEY': checks a proof of agentctl audit prove with the public key alone. Ends with
// 0: proved and shown whole; 1: not proved; 2: asked in a wrong way; 3: proved, and something of it is not shown.
import { createHash, createPublicKey, verify } from 'node:crypto'
import { readFileSync } from 'node:fs'

const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts.map(part => Buffer.from(part)))).digest()
const hex = text => sha256(text).toString('hex')
const commitment = (...texts) => hex(JSON.stringify(texts))
const end = (status, text) => {
  console.error(text)
  process.exit(status)
}
const must = (holds, what) => holds || end(1, `NOT PROVED: ${what}`)
const [file, publicKey = ''] = process.argv.slice(2)
if (publicKey === '') end(2, "usage: node verify-proof.mjs PROOF.json 'NAME+HASH+KEY'")

const [name, id, encoded = ''] = publicKey.split(/\+([0-9a-f]{8})\+/)
const key = Buffer.from(encoded, 'base64')
const isKey = key.length === 33 && key[0] === 1 && sha256(`${name}\n`, key).toString('hex', 0, 4) === id
if (!isKey) end(2, 'the public key is not one: agentctl audit keygen printed it, as NAME+HASH+KEY')
const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), key.subarray(1)])
const signer = createPublicKey({ key: der, format: 'der', type: 'spki' })

// Each part has its type, and there is no other: what is not checked is not taken.
const isText = value => typeof value === 'string'
const hasOnly = (value, ...names) => {
  return value !== null && typeof value === 'object' && Object.keys(value).sort().join() === names.sort().join()
}
const readProof = () => {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch (error) {
    return end(2, `${file} cannot be read as JSON (${error.code ?? 'it is not JSON'})`)
  }
}
const proof = readProof()
must(hasOnly(proof, 'hash', 'hashed', 'content', 'identity', 'person', 'index', 'path', 'checkpoint'), 'a proof has other members')
const { hash, hashed, content, identity, person, index: place, path, checkpoint } = proof
must([hash, checkpoint, ...[path].flat()].every(isText) && Array.isArray(path), 'hash, path and checkpoint are texts')
must([hashed, content].every(value => value === null || isText(value)), 'hashed and content are texts, or null')

// The checkpoint is signed: three lines, an empty one, and the signatures.
const [text, signatures = ''] = checkpoint.split(/(?<=\n)\n/)
const own = signatures.split('\n').filter(line => line.startsWith(`— ${name} `)).map(line => Buffer.from(line.split(' ')[2] ?? '', 'base64'))
const mine = own.filter(bytes => bytes.toString('hex', 0, 4) === id)
must(mine.length > 0, 'another key signed the checkpoint, or none')
must(mine.some(bytes => verify(null, Buffer.from(text), signer, bytes.subarray(4))), 'the signature of the checkpoint')
const [origin, size, root] = text.split('\n')
must(origin === name, 'the checkpoint is of another log')

// The leaf leads to the root (RFC 9162, section 2.1.3.2).
let [index, last, node] = [place, Number(size) - 1, sha256([0], Buffer.from(hash, 'hex'))]
must(Number.isSafeInteger(index) && index >= 0 && index <= last, 'the place is outside of the tree')
for (const sibling of path.map(text => Buffer.from(text, 'base64'))) {
  must(last > 0, 'the path is too long')
  const isRight = index % 2 === 1 || index === last
  node = isRight ? sha256([1], sibling, node) : sha256([1], node, sibling)
  if (isRight) while (index % 2 === 0 && index > 0) [index, last] = [Math.floor(index / 2), Math.floor(last / 2)]
  ;[index, last] = [Math.floor(index / 2), Math.floor(last / 2)]
}
must(last === 0 && node.toString('base64') === root, 'the change is not in the tree')

// What stands where in the text that was hashed: a row, a row of 1.0 or 1.1, an event.
const START = ['kind (persona: an agent)', 'id', 'version before', 'version after', 'at', 'id of the user']
const FORMS = [
  [...START, 'who', 'token', 'request', 'command', 'bytes', 'hash of the content', 'fields', 'what changed', 'row before'],
  [...START, 'user', 'token', 'request', 'client address', 'fields', 'what changed', 'row before'],
  ['kind', 'id', 'number', 'at', 'action', 'who', 'request', 'command', 'whom it concerns', 'what changed', 'event before'],
]
const lines = [`proved: leaf ${place} of ${size} of ${origin}, ${hash}`]
const missing = []
// A value is shown where the text has its hash, and only as far as that hash was made of it.
const show = (what, said, value, hashOf, shown) => {
  if (said === null || said === undefined) return must(value === null, `${what}: nothing of it was hashed`)
  if (value === null) return missing.push(what)
  must(hashOf() === said, `${what}: it is not what was hashed`)
  lines.push(`${what}: ${shown()}`)
}
if (hashed === null) {
  must([content, identity, person].every(value => value === null), 'a row without its text shows nothing')
  missing.push('the row itself')
} else {
  must(hex(hashed) === hash, 'the row is not the one of the hash')
  const values = JSON.parse(hashed)
  const form = FORMS.find(names => names.length === values.length)
  must(form, 'a row of an unknown form')
  const said = what => values[form.indexOf(what)]
  lines.push(...form.map((what, at) => `  ${what}: ${JSON.stringify(values[at])}`))
  show('what changed', said('what changed'), content, () => hex(content), () => content)
  const { salt, actor, client_address } = identity ?? {}
  must(identity === null || (hasOnly(identity, 'salt', 'actor', 'client_address') && [salt, actor, client_address].every(isText)), 'who: it has not the members that were hashed')
  show('who', said('who'), identity, () => commitment(salt, actor, client_address), () => JSON.stringify({ actor, client_address }))
  must(person === null || (hasOnly(person, 'salt', 'name') && [person.salt, person.name].every(isText)), 'whom it concerns: it has not the members that were hashed')
  show('whom it concerns', said('whom it concerns'), person, () => commitment(person.salt, person.name), () => JSON.stringify(person.name))
}
for (const what of missing) lines.push(`${what}: NOT SHOWN (erased, pruned, or withheld by who handed on this proof)`)
if (missing.length > 0) lines.push('An erasure and a pruning are events of their own: ask for the proof of the one that took it.')
// What people wrote may hold characters that steer a terminal.
const harmless = text => text.replace(/[^\x20-\x7e\p{L}\p{N}\p{P}\p{S}]/gu, c => `\\u${c.codePointAt(0).toString(16).padStart(4, '0')}`)
for (const line of lines) console.log(harmless(line))
process.exitCode = missing.length > 0 ? 3 : 0
