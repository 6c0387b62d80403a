import { type TObject, Type } from '@sinclair/typebox'
import type { Loc } from '../errors.js'
import type { Precondition } from '../updates/tag.js'
import { type Parsed, parameter, queryFlag, queryId, queryMask } from '../validation/parameters.js'

/* Parameters that several operations share. Other parameters are defined in the file of their operation. */

export const DryRun = queryFlag(
  'Every check and the same answer as the real request, but nothing is stored. ETag is the stored state; a creation has neither ETag nor ' +
    'Location then, and the `id` in the answer is never assigned.',
)

export function updateMask(body: TObject) {
  return queryMask(
    body,
    'Field names separated by commas: only these are read and written, and the rest may be absent. Inside the mask ' +
      '`null` means null for every nullable field. The empty mask changes nothing.',
  )
}

const ENTITY_TAG = String.raw`(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"`
/** `*` or a list of tags. List elements may be empty (RFC 9110, section 5.6.1), but tags must be separated by commas. */
const TAGS = new RegExp(String.raw`^(?:[ \t]*\*[ \t]*|[ \t,]*${ENTITY_TAG}(?:[ \t]*,[ \t,]*${ENTITY_TAG})*[ \t,]*)$`)

export const IfMatch = ifMatch('`*`, or entity tags such as `"persona-12-7"`: write only if one is the stored state.')

function ifMatch(description: string) {
  return Type.Optional(parameter({ type: 'string', pattern: TAGS.source, description }, parseIfMatch))
}

export const IfNoneMatch = ifNoneMatch('`*`, or entity tags: 304 without a body where one is that of the answer.')

export const IfNoneMatchOfUpdate = ifNoneMatch(
  '`*`, or entity tags: 412 where one is the stored state, as `*` always is; nothing is written then.',
)

/** The preconditions of a creation. No stored state can meet them. */
export const CreationPreconditions = {
  'if-match': ifMatch('Always 412, because nothing is stored before a creation.'),
  'if-none-match': ifNoneMatch('`*`, or entity tags: always true, because nothing is stored yet.'),
}

function ifNoneMatch(description: string) {
  return Type.Optional(
    parameter(
      { type: 'string', pattern: TAGS.source, description },
      (header, loc) => parseIfMatch(header.replaceAll(/(^|[\s,])W\/(?=")/g, '$1'), loc), // weak comparison (RFC 9110, section 13.1.2)
    ),
  )
}

const KEY = /^(?:"((?:[ !#-[\]-~]|\\["\\]){1,255})"|[!#-+\--:<-[\]-~]{1,255})$/
/** The header `idempotency-key`: a quoted string (RFC 8941, section 3.3.3), or an unquoted one without blanks, quotes, commas, `;` and backslashes. */
export const IdempotencyKey = Type.Optional(
  parameter(
    {
      type: 'string',
      pattern: KEY.source,
      description:
        'Names this request, such as `"8f9c7b1e"` (1 to 255 characters): sent again with the same key, it has no second effect ' +
        'and is answered with the record as it is now and the first `ETag`, for as long as audit rows are kept. A dry run ignores it.',
    },
    (header, loc): Parsed<string> => {
      const key = KEY.exec(header)
      if (key !== null) return { value: key[1]?.replaceAll(/\\(.)/g, '$1') ?? header }
      const msg = 'Input should be 1 to 255 printable ASCII characters in double quotes, such as "8f9c7b1e"'
      return { faults: [{ loc, msg, type: 'string_pattern_mismatch' }] }
    },
  ),
)

/** The query parameter that selects an earlier version. */
export const PastVersion = queryId(
  'Answers this version, to callers who may edit: what the number in an `ETag` such as `"persona-12-7"` names.',
)

export const NO_PRECONDITION: Precondition = { kind: 'none' }

/** The header `prefer` of an operation with a body (RFC 7240). */
export const Prefer = Type.Optional(
  parameter(
    {
      type: 'string',
      description:
        '`handling=strict`: unknown fields are 422, fields that would be kept are 403. ' +
        '`return=minimal`: no record in the answer, which is 201 of a creation and 204 of an update; 200 with it where an older ' +
        '`If-Match` is let through because nothing is left to change.',
    },
    header => ({
      value: { strict: prefers(header, 'handling', 'strict'), minimal: prefers(header, 'return', 'minimal') },
    }),
  ),
)

export const NO_PREFERENCE = { strict: false, minimal: false }

/**
 * Parses `If-Match` (RFC 9110, section 13.1.1). Weak tags never match. A malformed tag is a fault, because ignoring it would allow an unguarded
 * write.
 */
function parseIfMatch(header: string, loc: Loc): Parsed<Precondition> {
  if (header.trim() === '*') return { value: { kind: 'any' } }
  if (!TAGS.test(header)) {
    const msg = 'Input should be * or a list of entity tags in double quotes, such as "persona-12-7"'
    return { faults: [{ loc, msg, type: 'string_pattern_mismatch' }] }
  }
  const tags = header.match(new RegExp(ENTITY_TAG, 'g')) ?? []
  return { value: { kind: 'tags', tags: tags.filter(tag => !tag.startsWith('W/')) } }
}

/** True if a `Prefer` header requests strict handling (RFC 7240), under which unknown and kept fields are errors. */
export function prefersStrict(header: string | string[] | undefined): boolean {
  return header !== undefined && prefers(String(header), 'handling', 'strict')
}

const PREFER_LENGTH_MAX = 1_000

/** True if the first occurrence of a preference has this value. */
function prefers(header: string, name: string, value: string): boolean {
  const unquoted = header
    .slice(0, PREFER_LENGTH_MAX)
    .replaceAll(/"(?:[^"\\]|\\.)*"/g, text => (/^"[\w-]+"$/.test(text) ? text.slice(1, -1) : '?'))
  const found = new RegExp(String.raw`(?:^|,)\s*${name}\s*=\s*([\w-]+)\s*(?=[;,]|$)`, 'i').exec(unquoted)
  return found?.[1]?.toLowerCase() === value
}
