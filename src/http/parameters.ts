import { type TObject, Type } from '@sinclair/typebox'
import type { Precondition } from '../updates/tag.js'
import { parameter, patterned, queryFlag, queryId, queryMask } from '../validation/parameters.js'

export const DryRun = queryFlag(
  '`true` checks the request and returns its answer, but stores nothing. Read-only tokens, and changes that require approval, are accepted. ' +
    '`ETag` is the current tag. The answer to a creation has neither `ETag` nor `Location`, and its `id` is a placeholder.',
)

export function updateMask(body: TObject) {
  return queryMask(
    body,
    'Field names separated by commas. Only these fields of the body are stored. Other fields can be absent. With this ' +
      'parameter, `null` clears a nullable field. An empty value changes nothing.',
  )
}

const ENTITY_TAG = String.raw`(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"`
/** `*` or a list of entity tags. The list can have empty elements, but tags must be separated by commas (RFC 9110, section 5.6.1). */
const TAGS = new RegExp(String.raw`^(?:[ \t]*\*[ \t]*|[ \t,]*${ENTITY_TAG}(?:[ \t]*,[ \t,]*${ENTITY_TAG})*[ \t,]*)$`)

const NO_TAGS = 'Input should be * or a list of entity tags in double quotes, such as "persona-12-7"'

/** A header with entity tags. Refuses malformed tags: if they were ignored, the write would have no precondition. `isWeak`: weak tags also match. */
function entityTags(description: string, isWeak = false) {
  return patterned(TAGS, description, NO_TAGS, (header): Precondition => {
    if (header.trim() === '*') return { kind: 'any' }
    const tags = header.match(new RegExp(ENTITY_TAG, 'g')) ?? []
    const known = isWeak ? tags.map(tag => tag.replace('W/"', '"')) : tags.filter(tag => !tag.startsWith('W/'))
    return { kind: 'tags', tags: known }
  })
}

export const IfMatch = entityTags(
  '`*`, or entity tags such as `"persona-12-7"`. The request takes effect only if one of these tags is current.',
)

export const IfMatchOfApproval = entityTags(
  'The `ETag` of the proposal. The proposal is approved only if the proposal and its agent or tool are unchanged since this tag was read.',
)

export const IfNoneMatch = entityTags('`*`, or entity tags. If one matches, the answer is 304 without a body.', true)

export const IfNoneMatchOfUpdate = entityTags(
  '`*`, or entity tags. With `*` or the current tag, the answer is 412, and nothing is stored.',
  true,
)

export const CreationPreconditions = {
  'if-match': entityTags('A creation with this header is refused with 412, because nothing is stored yet.'),
  'if-none-match': entityTags('`*`, or entity tags. This header has no effect, because nothing is stored yet.', true),
}

const KEY = /^(?:"((?:[ !#-[\]-~]|\\["\\]){1,255})"|[!#-+\--:<-[\]-~]{1,255})$/
/** The header `idempotency-key`: a quoted string (RFC 8941, section 3.3.3), or text without blanks, quotes, commas, `;` or backslashes. */
export const IdempotencyKey = patterned(
  KEY,
  'A key of 1 to 255 characters, such as `"8f9c7b1e"`. A repeated request with the same key is not carried out again. Its answer has ' +
    'the current record and the `ETag` of the first answer. A repeated proposal has its current `ETag`, and a repeated deletion has an ' +
    'empty answer. Keys are kept as long as the history. A dry run ignores the key.',
  'Input should be 1 to 255 printable ASCII characters in double quotes, such as "8f9c7b1e"',
  header => KEY.exec(header)?.[1]?.replaceAll(/\\(.)/g, '$1') ?? header,
)

export const PastVersion = queryId(
  'Returns the record as it was in this version. The `ETag` `"persona-12-7"` names version `7`. Requires the right to update the record.',
)

export const NO_PRECONDITION: Precondition = { kind: 'none' }

/** The header `prefer` of an operation with a body (RFC 7240). */
export const Prefer = Type.Optional(
  parameter(
    {
      type: 'string',
      description:
        '`handling=strict`: an unknown field gets 422, and a field that the caller cannot change gets 403. `return=minimal`: ' +
        'the answer omits the record; a creation gets 201, and an update gets 204. Exception: an update that changes ' +
        'nothing and has an outdated `If-Match` gets 200 with the record. A validation ignores `return=minimal`.',
    },
    header => ({ value: preferencesIn(header) }),
  ),
)

export const NO_PREFERENCE = { strict: false, minimal: false }

/** Parses a `Prefer` header (RFC 7240). If a preference is repeated, the first one counts. `Prefer` describes `strict` and `minimal`. */
export function preferencesIn(header: string) {
  const asked = header
    .toLowerCase()
    .split(',')
    .map(one => one.replaceAll(/[\s"]|;.*/g, ''))
  const prefers = (name: string, value: string) => asked.find(one => one.startsWith(`${name}=`)) === `${name}=${value}`
  return { strict: prefers('handling', 'strict'), minimal: prefers('return', 'minimal') }
}
