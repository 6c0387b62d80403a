// node verify-proof.mjs PROOF.json 'NAME+HASH+KEY': checks a proof of agentctl audit prove with the public key alone.
import { createHash, createPublicKey, verify } from 'node:crypto'
import { readFileSync } from 'node:fs'

const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts.map(part => Buffer.from(part)))).digest()
const must = (holds, what) => {
  if (!holds) throw new Error(`NOT PROVED: ${what}`)
}
const [file, publicKey] = process.argv.slice(2)
const proof = JSON.parse(readFileSync(file, 'utf8'))
const [name, id, key] = publicKey.split(/\+([0-9a-f]{8})\+/)

// The checkpoint is signed: three lines, an empty one, and the signature.
const [text, signatures] = proof.checkpoint.split('\n\n')
const signature = Buffer.from(signatures.split('\n').find(line => line.startsWith(`— ${name} `)).split(' ')[2], 'base64')
const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), Buffer.from(key, 'base64').subarray(1)])
const signer = createPublicKey({ key: der, format: 'der', type: 'spki' })
must(signature.subarray(0, 4).toString('hex') === id, 'another key signed the checkpoint')
must(verify(null, Buffer.from(`${text}\n`), signer, signature.subarray(4)), 'the signature of the checkpoint')
const [origin, size, root] = text.split('\n')
must(origin === name, 'the checkpoint is of another log')

// The leaf leads to the root (RFC 9162, section 2.1.3.2).
let [index, last, node] = [proof.index, Number(size) - 1, sha256([0], Buffer.from(proof.hash, 'hex'))]
must(index <= last, 'the place is outside of the tree')
for (const sibling of proof.path.map(text => Buffer.from(text, 'base64'))) {
  must(last > 0, 'the path is too long')
  const isRight = index % 2 === 1 || index === last
  node = isRight ? sha256([1], sibling, node) : sha256([1], node, sibling)
  if (isRight) while (index % 2 === 0 && index > 0) [index, last] = [Math.floor(index / 2), Math.floor(last / 2)]
  ;[index, last] = [Math.floor(index / 2), Math.floor(last / 2)]
}
must(last === 0 && node.toString('base64') === root, 'the change is not in the tree')

// What is shown is what was hashed.
const shown = { content: proof.content, identity: proof.identity, person: proof.person }
const commitment = (...texts) => sha256(JSON.stringify(texts)).toString('hex')
if (proof.hashed !== null) must(sha256(proof.hashed).toString('hex') === proof.hash, 'the row is not the one of the hash')
else must(Object.values(shown).every(value => value === null), 'a row without its text shows nothing')
const hashed = JSON.parse(proof.hashed ?? '[]')
const isEvent = typeof hashed[1] === 'string'
const { content, identity, person } = shown
if (content !== null) must(hashed.at(-2) === sha256(content).toString('hex'), 'the content')
const actor = identity && commitment(identity.salt, identity.actor, identity.client_address)
if (identity) must(hashed[isEvent ? 5 : 6] === actor, 'the actor')
if (person) must(isEvent && hashed[8] === commitment(person.salt, person.name), 'the person')
// What people wrote may hold characters that steer a terminal.
const show = text => console.log(text.replace(/[^\x20-\x7e\p{L}\p{N}\p{P}\p{S}]/gu, c => `\\u${c.codePointAt(0).toString(16).padStart(4, '0')}`))
show(`proved: ${proof.hashed}`)
for (const [what, value] of Object.entries(shown)) show(`${what}: ${JSON.stringify(value)}`)
