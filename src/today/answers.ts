import { InvalidRequest } from '../errors.js'
import { parseExact, writerFor } from '../schema/exact-json.js'

/** What answers of today's product have in addition, and of which nothing is kept here. */
const NOTHING_KEPT = '"default_model_configuration_id":null,"hierarchy_nodes":[],"attached_documents":[],"skill_ids":[]'

const [VISIBLE, DEFAULT] = [Buffer.from(',"is_visible":'), Buffer.from(',"is_default_persona":')]
const TRUE = 't'.charCodeAt(0)

/**
 * An agent's record with the fields that today's clients read; another text as it is. It is not parsed, because its definitions may be
 * large. No object or text that others wrote can hold these keys before the record's own: only texts come before them, with escaped quotes.
 */
export function withNewerFields(record: Buffer): Buffer {
  const [listed, featured] = [flagAfter(record, VISIBLE), flagAfter(record, DEFAULT)]
  if (listed === undefined || featured === undefined) return record
  const added = `,"is_listed":${listed},"is_featured":${featured},${NOTHING_KEPT}}`
  return Buffer.concat([record.subarray(0, -1), Buffer.from(added)])
}

function flagAfter(record: Buffer, key: Buffer): boolean | undefined {
  const at = record.indexOf(key)
  return at < 0 ? undefined : record[at + key.length] === TRUE
}

/** The answer of a validation, whose methods also have their name as `raw_name`: here they have no other. */
export function withRawNames(answer: string): string {
  const read = parseExact(answer) as { methods: { name: string }[] } // as the validation made it
  const methods = read.methods.map(({ name, ...method }) => ({ name, raw_name: name, ...method }))
  return writerFor(read)({ ...read, methods })
}

/** What today's clients call fields of the root. */
const NEWER_NAMES: Record<string, string> = { is_default_persona: 'is_featured' }
const NEWER_NAMES_OF_SHARES: Record<string, string> = { ...NEWER_NAMES, users: 'user_ids', groups: 'group_ids' }

/** The faults that an operation of the root found, at the fields that the client sent; any other error as it is. */
export function inNewerNames(error: unknown, operation: string): unknown {
  // A subclass has places of its own: the schema's, which are the client's, or those of headers.
  if (!(error instanceof InvalidRequest) || Object.getPrototypeOf(error) !== InvalidRequest.prototype) return error
  const names = operation === 'today_share_persona' ? NEWER_NAMES_OF_SHARES : NEWER_NAMES
  const nameOf = (part: string | number) => names[part] ?? part
  return new InvalidRequest(
    error.faults.map(({ loc: [part = '', name, ...rest], ...fault }) => {
      return { ...fault, loc: name === undefined ? [part] : [part, nameOf(name), ...rest] }
    }),
  )
}
