import { readFileSync } from 'node:fs'
import { BaseResolver, createConfig, lintDocument, makeDocumentFromString } from '@redocly/openapi-core'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { checkDefinition, completeDefinition } from '../../src/definition/index.js'
import { MADE, VENDORS, VENDORS_FOLDER } from './made.js'

type Differences = [pattern: RegExp, count: number, reason: string][]

/** Faults that this service reports and Redocly does not. Each pattern matches kind, document and place. */
const OURS_ALONE: Differences = [
  [/^openapi_version_unsupported /, 14, 'Redocly reads Swagger 2.0; here only a completion does'],
  [/^summary_missing /, 19, 'its rule wants a summary even beside a description, so it is not asked'],
  [/^path_parameter_undeclared .*[^ -~]/, 2, 'it sees no placeholder outside ASCII'],
  [/^path_parameter_undeclared placeholders-odd/, 7, 'it sees only placeholders that are plain names'],
  [/^operations_missing /, 3, 'OpenAPI needs no operation; a tool needs a function'],
  [/^missing style-components-only .paths/, 1, 'OpenAPI 3.1 needs no paths'],
  [/^path_template_invalid /, 1, 'it pairs no braces'],
  [/^ref_unresolved insurance-schemas31/, 1, 'it resolves "$anchor"; only pointers are read here'],
  [/^ref_target_type .*parameters.1$/, 1, 'it reports the target of the reference'],
  [/^operation_id_duplicate references-odd/, 1, 'it counts a shared path item once'],
  [/^dict_type references-odd.*patch$/, 1, 'it follows a reference in place of an operation'],
]

/** Errors that Redocly reports where this service finds no fault. */
const THEIRS_ALONE: Differences = [
  [/^path-p.*: Path .*[{]([+.;]|[^}]*:|.*[^ -~])/, 119, 'the placeholder is {+name}, has a pattern, or is not ASCII'],
  [/^path-p.*: Path .*placeholders-odd/, 24, 'the placeholder has blanks, signs or another case than the name'],
  [/^path-p.*: Path .*logistics-hub/, 1, 'a path parameter without placeholder is a warning at its "in"'],
  [/^path-p.*: The .*events-openapi32/, 3, 'it takes a reference by "$self" for another document'],
  [/^(oper|path-p).*(webhooks|components|COPY)/, 20, 'webhooks and additional operations become no functions'],
  [/^struct: key (GET|POST) /, 3, 'a method in capitals is read'],
  [/^struct: key nullable /, 19, '"nullable" of 3.0 is read in 3.1'],
  [/^struct: key \w+ events-openapi32/, 6, 'it takes a shared media type for a map of them'],
  [/^struct: key (urll|flattened) /, 2, 'keys of servers and of XML are no input of a function'],
  [/^struct: no (responses|description) /, 9, 'responses are not read'],
  [/^struct: no default generated-nestjs/, 2, 'a variable without a default is a warning at the url'],
  [/^struct: _ can be one of .*type$/, 11, 'lists of types are read in 3.0 and 2.0'],
  [/^struct: _ can be one of .*style$/, 1, '"cookie" is a style of 3.2'],
  [/^struct: key anyOf mail-sendgrid/, 1, '"anyOf" is read in 2.0'],
  [/^struct: Expected .* insurance-schemas31/, 2, '"true" and "false" are schemas in 3.1'],
  [/^struct: .* references-odd.*.components/, 6, 'it reports the target of a wrong reference'],
  [/^no-unresolved-refs insurance-schemas31.*leaf$/, 1, 'the pointer starts at an "$id"'],
  [/^no-unresolved-refs references-odd.*(contact|responses)/, 3, 'contacts and responses are not read'],
  [/^throws: Self-referencing/, 1, 'a security scheme refers to itself'],
  [/^throws: Unsupported OpenAPI version: 3.9.* version-next/, 1, 'a later version 3 is read as 3.2'],
]

/** Refuses all references outside the document, so that nothing is read or fetched. */
class RefusingResolver extends BaseResolver {
  override loadExternalRef = (ref: string) => Promise.reject(new Error(`${ref} is refused`))
}

const RULES =
  'struct no-unresolved-refs no-empty-servers path-declaration-must-exist path-parameters-defined operation-operationId operation-operationId-unique operation-parameters-unique'
const config = await createConfig({ rules: Object.fromEntries(RULES.split(' ').map(rule => [rule, 'error' as const])) })

/** The kind of a fault, warning or error, and the JSON pointer of its place. */
type Found = [kind: string, place: string]

/** Returns the kinds and places of Redocly's errors. If Redocly throws, returns one error at the root. */
async function redocly(definition: unknown): Promise<Found[]> {
  const document = makeDocumentFromString(JSON.stringify(definition), 'definition.json')
  try {
    const problems = await lintDocument({ document, externalRefResolver: new RefusingResolver(config.resolve), config })
    return problems.map(({ ruleId, message, location }) => {
      const place = (location[0]?.pointer ?? '#/').slice(1).replace(/^\/$/, '')
      const absent = /^The field `(.+)` must be present/.exec(message)?.[1]
      if (absent !== undefined) return [`struct: no ${absent}`, `${place}/${absent}`]
      if (ruleId === 'no-empty-servers') return [ruleId, '/servers']
      if (ruleId === 'operation-operationId-unique') return [ruleId, place.replace(/[^/]*$/, 'operationId')]
      const shape = message.replace(/^Property `(.+)` is.*/s, 'key $1').replace(/[`"].*?[`"](, )?/g, '_')
      return [/^(struct|path)/.test(ruleId) ? `${ruleId}: ${shape.split('\n')[0]}` : ruleId, place]
    })
  } catch (error) {
    return [[`throws: ${error instanceof Error ? error.message : ''}`, '']]
  }
}

/** Returns the kinds and places of this service's faults or warnings. */
function found(list: { type: string; loc: (string | number)[] }[]): Found[] {
  const escaped = (key: string | number) => `/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
  const pointer = (loc: (string | number)[]) => loc.slice(2).map(escaped).join('')
  return list.map(({ type, loc }) => [type, pointer(loc).replace(/.[$]ref$/, '')])
}

/** True if both findings are at the same place, or if one is at a direct member of the other's place. */
function together([, a]: Found, [, b]: Found): boolean {
  const parentOf = (place: string) => place.slice(0, place.lastIndexOf('/'))
  return a === b || a === parentOf(b) || b === parentOf(a)
}

const odd = readFileSync(`${VENDORS_FOLDER}references-odd.yaml`, 'utf8').replace(/^ +(Circle|Alias): .*$/gm, '')
const uncircled = { name: 'references-odd.yaml without circles', definition: parse(odd) as unknown }
/** All documents, and the completed form of those that are valid only after completion. */
const documents = [...MADE, ...VENDORS, uncircled].flatMap(({ name, definition }) => {
  if (checkDefinition(definition).ok) return [{ name, definition }]
  const { definition: completed, check } = completeDefinition(definition, { server: 'https://api.example.com' })
  return [{ name, definition }, ...(check.ok ? [{ name: `${name}, completed`, definition: completed }] : [])]
})

/** Requires that each difference matches a listed pattern, and each pattern the listed number of differences. */
function explained(t: Test, differences: string[], listed: Differences): void {
  let rest = [...new Set(differences)]
  for (const [pattern, count, reason] of listed) {
    t.equal(rest.filter(each => pattern.test(each)).length, count, `${pattern}: ${reason}`)
    rest = rest.filter(each => !pattern.test(each))
  }
  t.strictSame(rest, [], 'no difference is new')
}

t.test('every difference from the verdicts of Redocly has its reason', async t => {
  const [alone, missed]: [string[], string[]] = [[], []]
  for (const { name, definition } of documents) {
    const check = checkDefinition(definition)
    const [faults, theirs] = [found(check.ok ? [] : check.faults), await redocly(definition)]
    if (faults.length > 0 && theirs.some(([kind]) => kind.startsWith('throws'))) continue
    const without = (some: Found[], others: Found[]) => some.filter(each => !others.some(one => together(each, one)))
    const note = ([kind, place]: Found) => `${kind} ${name} ${place}`
    alone.push(...without(faults, theirs).map(note))
    missed.push(...without(theirs, [...faults, ...found(check.warnings)]).map(note))
  }
  explained(t, alone, OURS_ALONE)
  explained(t, missed, THEIRS_ALONE)
})
