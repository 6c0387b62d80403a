type Json = Record<string, unknown>

/**
 * A kind of document made to cost more than its size says: `make(n)` has about `bytes` bytes for each of its `n` parts. It is a
 * text where it has what `JSON.stringify` never writes.
 */
export interface Family {
  name: string
  bytes: number
  make: (n: number) => Json | string
}

const HEAD = { openapi: '3.1.0', info: { title: 'Hostile' }, servers: [{ url: 'https://h.example.com' }] }
const METHODS = ['get', 'post', 'put', 'patch', 'delete']

export function times<T>(count: number, make: (i: number) => T): T[] {
  return Array.from({ length: Math.max(1, Math.round(count)) }, (_, i) => make(i))
}

export function record(count: number, key: (i: number) => string, value: (i: number) => unknown): Json {
  return Object.fromEntries(times(count, i => [key(i), value(i)]))
}

export function operation(id: string, more: Json = {}): Json {
  return { operationId: id, summary: id, ...more }
}

export function document(paths: Json, more: Json = {}): Json {
  return { ...HEAD, paths, ...more }
}

export function withBody(schema: unknown, more: Json = {}): Json {
  const requestBody = { content: { 'application/json': { schema } } }
  return document({ '/x': { post: operation('x', { requestBody }) } }, more)
}

function withParameters(parameters: unknown[], more: Json = {}): Json {
  // Many operations, as one takes few parameters.
  const perOperation = 400
  const paths = record(
    Math.ceil(parameters.length / perOperation),
    i => `/p${i}`,
    i => ({ get: operation(`o${i}`, { parameters: parameters.slice(i * perOperation, (i + 1) * perOperation) }) }),
  )
  return document(paths, more)
}

export function nested(levels: number, wrap: (inner: unknown, level: number) => unknown, leaf: unknown = {}): unknown {
  let value = leaf
  for (let i = 0; i < levels; i++) value = wrap(value, i)
  return value
}

export const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })
export const item = (name: string) => ({ $ref: `#/components/pathItems/${name}` })
export const long = (length: number) => 'a'.repeat(Math.max(1, Math.round(length)))

/** A chain of path items that end in `last`, the i-th having `members(i)` beside its reference. */
function chainOfItems(length: number, members: (i: number) => Json, last: Json): Json {
  return record(
    length,
    i => `C${i}`,
    i => (i === length - 1 ? last : { ...members(i), $ref: `#/components/pathItems/C${i + 1}` }),
  )
}

/** The text of a document with an extension that is written as it stands here. */
function withText(extension: string): string {
  const text = JSON.stringify(document({ '/x': { get: operation('x') } }, { 'x-a': 0 }))
  return text.replace('"x-a":0', () => `"x-a":${extension}`)
}

/** Operations at paths of their own. */
export function operations(count: number, more: (i: number) => Json, rest: Json = {}): Json {
  return document(
    record(
      count,
      i => `/p${i}`,
      i => ({ get: operation(`o${i}`, more(i)) }),
    ),
    rest,
  )
}

export const families: readonly Family[] = [
  // Bases: what references are resolved against.
  {
    name: 'references relative to one long $id',
    bytes: 48,
    make: n =>
      withBody({ $id: `https://h.example.com/${long(n * 10)}`, allOf: times(n, i => ({ $ref: `r${i}.json` })) }),
  },
  {
    name: 'references relative to one $id of the allowed length',
    bytes: 22,
    make: n => withBody({ $id: `https://h.example.com/${long(480)}`, allOf: times(n, i => ({ $ref: `r${i}` })) }),
  },
  {
    name: 'relative references that find their schema',
    bytes: 60,
    make: n =>
      withBody({
        $id: `https://h.example.com/${long(400)}/`,
        allOf: times(n, i => ({ $id: `https://h.example.com/${long(400)}/r${i % 50}`, $ref: `r${i % 50}` })),
      }),
  },
  {
    name: 'references to a long $self',
    bytes: 40,
    make: n =>
      withBody({ allOf: times(n, i => ({ $ref: `r${i}.json` })) }, { $self: `https://h.example.com/${long(n * 10)}` }),
  },
  {
    name: 'references to a $self of the allowed length',
    bytes: 22,
    make: n => withBody({ allOf: times(n, i => ({ $ref: `r${i}` })) }, { $self: `/${long(480)}` }),
  },
  {
    name: 'identifiers and references to them',
    bytes: 44,
    make: n => withBody({ allOf: times(n, i => ({ $id: `urn:a:${i}`, $ref: `urn:a:${i + 1}` })) }),
  },
  {
    name: 'named schemas at a deep place',
    bytes: 24,
    make: n => withBody(nested(50, not => ({ not }), { allOf: times(n, i => ({ $anchor: `a${i}` })) })),
  },
  {
    name: 'pointers inside a schema with an identifier',
    bytes: 36,
    make: n =>
      withBody({ $id: 'urn:a', $defs: { a: {} }, allOf: times(n, i => ({ $ref: `#/$defs/a${i % 2 ? '' : '/x'}` })) }),
  },
  {
    name: 'long references of one length that differ at their end',
    bytes: 20_040,
    make: n => withBody({ allOf: times(n, i => ({ $ref: `#/${long(20_000)}${String(i).padStart(6, '0')}` })) }),
  },
  {
    name: 'deep pointers',
    bytes: 160,
    make: n =>
      withBody({ allOf: times(n, i => ({ $ref: `#/x${'/a'.repeat(60)}/${i}` })) }, { x: nested(70, a => ({ a })) }),
  },
  {
    name: 'percent signs in pointers',
    bytes: 180,
    make: n => withBody({ allOf: times(n, i => ({ $ref: `#/${'%41'.repeat(50)}%${i}` })) }),
  },
  // Shared path items.
  {
    name: 'paths of one chain of path items with null methods',
    bytes: 48,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => item('C0'),
        ),
        { components: { pathItems: chainOfItems(63, () => Object.fromEntries(METHODS.map(m => [m, null])), {}) } },
      ),
  },
  {
    name: 'paths of one chain of path items without methods',
    bytes: 48,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => item('C0'),
        ),
        { components: { pathItems: chainOfItems(63, () => ({ summary: 'x' }), {}) } },
      ),
  },
  {
    name: 'paths of one chain of path items with one method at its end',
    bytes: 48,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => item('C0'),
        ),
        { components: { pathItems: chainOfItems(63, () => ({ summary: 'x' }), { get: operation('x') }) } },
      ),
  },
  {
    name: 'paths that each refer to the next',
    bytes: 34,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ $ref: `#/paths/~1p${i + 1}` }),
        ),
      ),
  },
  {
    name: 'paths that each refer to the next, in rings of 60',
    bytes: 34,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ $ref: `#/paths/~1p${i % 60 === 59 ? i - 59 : i + 1}` }),
        ),
      ),
  },
  {
    name: 'paths in chains of 63, without methods',
    bytes: 34,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => (i % 63 === 62 ? {} : { $ref: `#/paths/~1p${i + 1}` }),
        ),
      ),
  },
  {
    name: 'paths of one path item with many unknown methods',
    bytes: 62,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => item('P'),
        ),
        {
          components: {
            pathItems: {
              P: record(
                n,
                i => `bad${i}`,
                () => ({}),
              ),
            },
          },
        },
      ),
  },
  {
    name: 'paths of one path item with many parameters',
    bytes: 48,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => item('P'),
        ),
        {
          components: {
            pathItems: { P: { parameters: times(400, i => ({ name: `p${i}`, in: 'path' })), get: operation('x') } },
          },
        },
      ),
  },
  {
    name: 'paths of one operation with a large body',
    bytes: 64,
    make: n => {
      const requestBody = {
        content: { 'application/json': { schema: { allOf: times(n, () => ({ type: 'string' })) } } },
      }
      return document(
        record(
          n,
          i => `/p${i}`,
          () => item('P'),
        ),
        { components: { pathItems: { P: { post: operation('x', { requestBody }) } } } },
      )
    },
  },
  {
    name: 'paths whose methods shadow those of a chain',
    bytes: 80,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: operation(`o${i}`), ...item('C0') }),
        ),
        { components: { pathItems: chainOfItems(63, () => ({ get: operation('x') }), {}) } },
      ),
  },
  // Operations and parameters.
  {
    name: 'operations',
    bytes: 58,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: operation(`o${i}`) }),
        ),
      ),
  },
  {
    name: 'operations of one operationId',
    bytes: 57,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => ({ get: operation('x') }),
        ),
      ),
  },
  {
    name: 'operations that refer to as many bodies that are forms',
    bytes: 190,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ post: operation(`o${i}`, { requestBody: { $ref: `#/components/requestBodies/B${i}` } }) }),
        ),
        {
          components: {
            requestBodies: record(
              n,
              i => `B${i}`,
              () => ({ content: { 'multipart/form-data': {} } }),
            ),
          },
        },
      ),
  },
  {
    name: 'null operations',
    bytes: 20,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => ({ get: null }),
        ),
      ),
  },
  {
    name: 'null paths',
    bytes: 13,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          () => null,
        ),
      ),
  },
  {
    name: 'unknown methods',
    bytes: 12,
    make: n =>
      document({
        '/x': record(
          n,
          i => `m${i}`,
          () => null,
        ),
      }),
  },
  {
    name: 'placeholders of one length that differ at their end',
    bytes: 8020,
    make: n =>
      document(
        record(
          n / 100,
          j => `/${j}/${times(100, i => `{${long(8000)}${j}.${i}}`).join('')}`,
          j => ({ get: operation(`o${j}`) }),
        ),
      ),
  },
  {
    name: 'placeholders and as many declarations',
    bytes: 45,
    make: n =>
      document(
        record(
          n / 400,
          j => `/${j}/${times(400, i => `{p${i}}`).join('')}`,
          j => ({
            get: operation(`o${j}`, { parameters: times(400, i => ({ name: `p${i}`, in: 'path' })) }),
          }),
        ),
      ),
  },
  {
    name: 'parameters that are references to a chain of 63',
    bytes: 42,
    make: n =>
      withParameters(
        times(n, () => ({ $ref: '#/components/parameters/P0' })),
        {
          components: {
            parameters: record(
              63,
              i => `P${i}`,
              i => (i === 62 ? { name: 'p', in: 'query' } : { $ref: `#/components/parameters/P${i + 1}` }),
            ),
          },
        },
      ),
  },
  {
    name: 'parameters that refer to each other in one long chain',
    bytes: 100,
    make: n =>
      withParameters(
        times(n, i => ({ $ref: `#/components/parameters/P${i}` })),
        {
          components: {
            parameters: record(
              n,
              i => `P${i}`,
              i => ({ $ref: `#/components/parameters/P${i + 1}` }),
            ),
          },
        },
      ),
  },
  {
    name: 'operations that share a large schema',
    bytes: 160,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({
            post: operation(`o${i}`, { requestBody: { content: { 'application/json': { schema: ref('A') } } } }),
          }),
        ),
        {
          components: {
            schemas: {
              A: {
                properties: record(
                  n,
                  i => `a${i}`,
                  () => ({ type: 'string' }),
                ),
              },
            },
          },
        },
      ),
  },
  {
    name: 'operations that share many schemas',
    bytes: 200,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({
            post: operation(`o${i}`, { requestBody: { content: { 'application/json': { schema: ref('S0') } } } }),
          }),
        ),
        {
          components: {
            schemas: record(
              n,
              i => `S${i}`,
              i => ({ items: ref(`S${i + 1 < n ? i + 1 : 0}`), title: 'x' }),
            ),
          },
        },
      ),
  },
  {
    name: 'operations that share a parameter with a large schema',
    bytes: 120,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({
            get: operation(`o${i}`, { parameters: [{ $ref: '#/components/parameters/P' }] }),
          }),
        ),
        {
          components: {
            parameters: { P: { name: 'p', in: 'query', schema: { enum: times(n, i => `v${i}`) } } },
          },
        },
      ),
  },
  {
    name: 'operations that share a header parameter that is not asked for, with a long description',
    bytes: 400,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: operation(`o${i}`, { parameters: [{ $ref: '#/components/parameters/A' }] }) }),
        ),
        { components: { parameters: { A: { name: 'Accept', in: 'header', description: long(n * 300) } } } },
      ),
  },
  {
    name: 'operations that share a parameter with a long name of another script',
    bytes: 400,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: operation(`o${i}`, { parameters: [{ $ref: '#/components/parameters/A' }] }) }),
        ),
        { components: { parameters: { A: { name: '名'.repeat(100 * n), in: 'query' } } } },
      ),
  },
  {
    name: 'operations that share 400 path-level parameters',
    bytes: 80,
    make: n =>
      document({
        '/x': {
          parameters: times(400, i => ({ name: `p${i}`, in: 'query' })),
          ...record(
            Math.min(n, 60),
            i => [...'delete'].map((c, bit) => ((i >> bit) & 1 ? c.toUpperCase() : c)).join(''),
            i => operation(`o${i}`),
          ),
        },
        ...record(
          n,
          i => `/p${i}`,
          i => ({ get: operation(`q${i}`) }),
        ),
      }),
  },
  {
    name: 'operationIds of one length that differ at their end',
    bytes: 20_060,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: { operationId: `${long(20_000)}${String(i).padStart(6, '0')}`, summary: 'x' } }),
        ),
      ),
  },
  {
    name: 'operationIds that read the same to a model',
    bytes: 60,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({ get: { operationId: String.fromCodePoint(0x4e00 + (i % 5000)) + i, summary: 'x' } }),
        ),
      ),
  },
  // Schemas.
  { name: 'empty schemas in one list', bytes: 3, make: n => withBody({ allOf: times(n, () => ({})) }) },
  {
    name: 'properties',
    bytes: 12,
    make: n =>
      withBody({
        properties: record(
          n,
          i => `p${i}`,
          () => ({}),
        ),
      }),
  },
  {
    name: 'properties that are no schemas',
    bytes: 10,
    make: n =>
      withBody({
        properties: record(
          n,
          i => `p${i}`,
          () => 1,
        ),
      }),
  },
  {
    name: 'unknown keywords',
    bytes: 10,
    make: n =>
      withBody(
        record(
          n,
          i => `k${i}`,
          () => 1,
        ),
      ),
  },
  { name: 'values of an enum', bytes: 8, make: n => withBody({ enum: times(n, i => `v${i}`) }) },
  {
    name: 'large values of an enum that differ little',
    bytes: 1010,
    make: n => withBody({ enum: times(n, i => `${long(1000)}${i}`) }),
  },
  { name: 'required names', bytes: 8, make: n => withBody({ required: times(n, i => `v${i}`) }) },
  {
    name: 'allOf nested to the limit, wide at its end',
    bytes: 14,
    make: n => withBody(nested(40, inner => ({ allOf: [inner] }), { allOf: times(n, i => ({ minLength: i })) })),
  },
  {
    name: 'schemas of one name in many places',
    bytes: 60,
    make: n =>
      withBody(
        { allOf: times(n, i => ({ $ref: `#/components/schemas/S${i}/items` })) },
        {
          components: {
            schemas: record(
              n,
              i => `S${i}`,
              () => ({ items: {} }),
            ),
          },
        },
      ),
  },
  {
    name: 'schemas that refer to each other in one long chain',
    bytes: 45,
    make: n =>
      withBody(ref('S0'), {
        components: {
          schemas: record(
            n,
            i => `S${i}`,
            i => ({ items: ref(`S${i + 1 < n ? i + 1 : 0}`) }),
          ),
        },
      }),
  },
  {
    name: 'references to references, 60 in a row',
    bytes: 45,
    make: n =>
      withBody(
        { allOf: times(n, i => ref(`S${i}`)) },
        {
          components: {
            schemas: record(
              n,
              i => `S${i}`,
              i => (i % 60 === 59 ? {} : ref(`S${i + 1 < n ? i + 1 : 0}`)),
            ),
          },
        },
      ),
  },
  {
    name: 'every schema refers to every schema',
    bytes: 40,
    make: n => {
      const side = Math.ceil(Math.sqrt(n))
      return withBody(ref('S0'), {
        components: {
          schemas: record(
            side,
            i => `S${i}`,
            () => ({ anyOf: times(side, j => ref(`S${j}`)) }),
          ),
        },
      })
    },
  },
  {
    name: 'patterns',
    bytes: 44,
    make: n => withBody({ allOf: times(n, i => ({ pattern: `^(([a-z])+.)+[A-Z]${i}$` })) }),
  },
  { name: 'patterns that are none', bytes: 24, make: n => withBody({ allOf: times(n, i => ({ pattern: `((${i}` })) }) },
  {
    name: 'patterns of the allowed length that are none',
    bytes: 2016,
    make: n => withBody({ allOf: times(n, i => ({ pattern: `${'(a|[b-c]'.repeat(248)}${i}` })) }),
  },
  {
    name: 'schemas that each have a name and a pattern that is none',
    bytes: 72,
    make: n =>
      withBody(
        { allOf: times(n, i => ref(`S${i}`)) },
        {
          components: {
            schemas: record(
              n,
              i => `S${i}`,
              i => ({ pattern: `((${i}` }),
            ),
          },
        },
      ),
  },
  {
    name: 'properties under patterns that are none',
    bytes: 14,
    make: n =>
      withBody({
        patternProperties: record(
          n,
          i => `((${i}`,
          () => ({}),
        ),
      }),
  },
  {
    name: 'required flags of properties',
    bytes: 28,
    make: n =>
      withBody({
        properties: record(
          n,
          i => `p${i}`,
          () => ({ required: true }),
        ),
      }),
  },
  // Servers, texts, containers.
  {
    name: 'servers',
    bytes: 14,
    make: n => ({ ...document({ '/x': { get: operation('x') } }), servers: times(n, () => ({ url: '//a' })) }),
  },
  {
    name: 'values of a server variable',
    bytes: 14,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: [
        {
          url: `https://{a}.example.com/${long(7000)}`,
          variables: { a: { default: 'x', enum: times(n, i => `v${i}.${i}`) } },
        },
      ],
    }),
  },
  {
    name: 'servers of operations with variables',
    bytes: 180,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => ({
            get: operation(`o${i}`, {
              servers: [{ url: '{a}{a}{b}', variables: { a: { default: 'http' }, b: { enum: ['x', 'y'] } } }],
            }),
          }),
        ),
      ),
  },
  { name: 'empty lists', bytes: 3, make: n => document({ 'x-a': times(n, () => []) }) },
  {
    name: 'nested brackets',
    bytes: 2,
    make: n => document({ 'x-a': times(n / 100, () => nested(100, inner => [inner])) }),
  },
  {
    name: 'keys of one object',
    bytes: 9,
    make: n =>
      document({
        'x-a': record(
          n,
          i => `k${i}`,
          () => 0,
        ),
      }),
  },
  { name: 'numbers', bytes: 2, make: n => document({ 'x-a': times(n, () => 1) }) },
  { name: 'large integers', bytes: 20, make: n => document({ 'x-a': times(n, () => 2 ** 60) }) },
  { name: 'half surrogate pairs', bytes: 9, make: n => document({ 'x-a': times(n, () => '\ud800') }) },
  {
    name: 'long keys',
    bytes: 9010,
    make: n =>
      document({
        'x-a': record(
          n,
          i => `${long(9000)}${i}`,
          () => 0,
        ),
      }),
  },
  { name: 'one long text', bytes: 1, make: n => document({ '/x': { get: operation('x', { description: long(n) }) } }) },
  {
    name: 'security schemes',
    bytes: 50,
    make: n =>
      document(
        { '/x': { get: operation('x') } },
        {
          components: {
            securitySchemes: record(
              n,
              i => `s${i}`,
              () => ({ type: 'apiKey', in: 'query', name: 'k' }),
            ),
          },
        },
      ),
  },
  // Forms that only some parts of the specification have.
  {
    name: 'long patterns',
    bytes: 4030,
    make: n => withBody({ allOf: times(n, i => ({ pattern: `^(${'a*'.repeat(2000)}){${i}}$` })) }),
  },
  {
    name: 'one pattern of classes and groups',
    bytes: 12,
    make: n => withBody({ pattern: '([^a-z]|.)*'.repeat(n), patternProperties: { ['(a|b)+'.repeat(n / 2)]: {} } }),
  },
  {
    name: 'an enum of numbers that JavaScript would write in another way',
    bytes: 7,
    make: n =>
      JSON.stringify(withBody({ enum: [0] })).replace(
        '"enum":[0]',
        () => `"enum":[${times(n, i => `${i}.0e0`).join()}]`,
      ),
  },
  {
    name: 'an enum of objects that differ at their end',
    bytes: 60,
    make: n => withBody({ enum: times(n, i => ({ a: { b: [1, 2, 3, { c: long(20) }] }, z: i })) }),
  },
  {
    name: 'schemas that are each allOf the next',
    bytes: 55,
    make: n =>
      withBody(ref('S0'), {
        components: {
          schemas: record(
            n,
            i => `S${i}`,
            i => ({ allOf: [ref(`S${(i + 1) % Math.ceil(n)}`), { title: 'x' }] }),
          ),
        },
      }),
  },
  {
    name: 'schemas that are each allOf two others',
    bytes: 80,
    make: n =>
      withBody(ref('S0'), {
        components: {
          schemas: record(
            n,
            i => `S${i}`,
            i => ({ allOf: [ref(`S${(2 * i + 1) % Math.ceil(n)}`), ref(`S${(2 * i + 2) % Math.ceil(n)}`)] }),
          ),
        },
      }),
  },
  {
    name: 'mappings of a discriminator',
    bytes: 46,
    make: n =>
      withBody({
        oneOf: [ref('A')],
        discriminator: {
          propertyName: 'kind',
          mapping: record(
            n,
            i => `kind${i}`,
            i => `#/components/schemas/${i % 2 ? 'A' : `B${i}`}`,
          ),
        },
      }),
  },
  {
    name: 'schemas with a discriminator over all of them',
    bytes: 90,
    make: n => {
      const side = Math.ceil(Math.sqrt(n))
      return withBody(ref('S0'), {
        components: {
          schemas: record(
            side,
            i => `S${i}`,
            () => ({
              oneOf: times(side, j => ref(`S${j}`)),
              discriminator: {
                propertyName: 'k',
                mapping: record(
                  side,
                  j => `k${j}`,
                  j => `S${j}`,
                ),
              },
            }),
          ),
        },
      })
    },
  },
  {
    name: 'links of responses',
    bytes: 100,
    make: n =>
      operations(n, i => ({
        responses: { 200: { description: 'x', links: { next: { operationRef: `#/paths/~1p${i + 1}/get` } } } },
      })),
  },
  {
    name: 'responses, headers and links that refer to one chain',
    bytes: 100,
    make: n =>
      operations(n, () => ({ responses: { default: { $ref: '#/components/responses/R0' } } }), {
        components: {
          responses: record(
            63,
            i => `R${i}`,
            i => ({ $ref: `#/components/responses/R${i + 1}` }),
          ),
        },
      }),
  },
  {
    name: 'callbacks',
    bytes: 110,
    make: n =>
      operations(n, i => ({
        callbacks: { c: { '{$request.body#/url}': { post: operation(`c${i}`, { callbacks: {} }) } } },
      })),
  },
  {
    name: 'callbacks inside callbacks',
    bytes: 1100,
    make: n =>
      operations(n, i => ({
        callbacks: nested(20, inner => ({ c: { '/u': { post: operation(`c${i}`, { callbacks: inner }) } } })),
      })),
  },
  {
    name: 'callbacks that lead back to their path',
    bytes: 90,
    make: n => operations(n, i => ({ callbacks: { c: { '/u': { $ref: `#/paths/~1p${i}` } } } })),
  },
  {
    name: 'paths and path items that refer to each other, in rings of 60',
    bytes: 80,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => item(`C${i}`),
        ),
        {
          components: {
            pathItems: record(
              n,
              i => `C${i}`,
              i => ({ $ref: `#/paths/~1p${i % 30 === 29 ? i - 29 : i + 1}` }),
            ),
          },
        },
      ),
  },
  {
    name: 'security requirements of operations',
    bytes: 110,
    make: n =>
      operations(n, i => ({ security: times(3, j => ({ [`k${i + j}`]: ['a', 'b'] })) }), {
        components: {
          securitySchemes: record(
            n / 4,
            i => `k${i}`,
            i => ({ type: 'apiKey', in: 'header', name: `X-${i}` }),
          ),
        },
      }),
  },
  {
    name: 'security requirements of the whole, for each operation',
    bytes: 160,
    make: n =>
      operations(n, () => ({}), {
        security: times(n, i => ({ [`k${i}`]: [] })),
        components: {
          securitySchemes: record(
            n,
            i => `k${i}`,
            i => ({ type: 'apiKey', in: i % 2 ? 'query' : 'header', name: `X-${i}` }),
          ),
        },
      }),
  },
  {
    name: 'examples as deep as they may be',
    bytes: 420,
    make: n => withBody({ examples: times(n, () => nested(60, inner => ({ a: inner }))) }),
  },
  {
    name: 'operations whose parameters have large examples',
    bytes: 600,
    make: n =>
      operations(n, () => ({
        parameters: [
          { name: 'p', in: 'query', example: nested(20, inner => [inner, { a: 1 }]), examples: { a: { value: {} } } },
        ],
      })),
  },
  {
    name: 'servers with a variable of many values each',
    bytes: 130,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: times(n, i => ({
        url: `https://{a}.x${i}.example.com`,
        variables: { a: { default: 'q', enum: times(8, k => `v${k}`) } },
      })),
    }),
  },
  {
    name: 'servers of paths whose variables have four values each',
    bytes: 700,
    make: n => {
      const variables = record(
        12,
        i => `v${i}`,
        () => ({ default: 'a', enum: ['a', 'b', 'c', 'd'] }),
      )
      const servers = [{ url: `https://${times(12, i => `{v${i}}`).join('.')}.example.com`, variables }]
      return document(
        record(
          n,
          i => `/p${i}`,
          i => ({ servers, get: operation(`o${i}`) }),
        ),
      )
    },
  },
  {
    name: 'servers that cannot be used before those that can',
    bytes: 38,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: [...times(n, () => ({ url: 'ftp://a' })), ...times(n, () => ({ url: '//a.example.com' }))].map(
        each => each,
      ),
    }),
  },
  {
    name: 'servers that cannot be used before numbers that JavaScript would write in another way',
    bytes: 22,
    make: n =>
      JSON.stringify({ ...document({ '/x': { get: operation('x') } }), servers: 0 }).replace('"servers":0', () => {
        return `"servers":[${times(n, () => '{"url":"ftp://a"}').join()},${times(n, () => '1.0').join()}]`
      }),
  },
  {
    name: 'tags that are each the parent of the next',
    bytes: 130,
    make: n =>
      operations(n, i => ({ tags: times(5, k => `t${i + k}`) }), {
        openapi: '3.2.0',
        tags: times(n, i => ({ name: `t${i}`, parent: `t${i + 1}` })),
      }),
  },
  {
    name: 'media types of one body',
    bytes: 34,
    make: n =>
      document({
        '/x': {
          post: operation('x', {
            requestBody: {
              content: record(
                n,
                i => `application/vnd.x${i}+json`,
                () => ({}),
              ),
            },
          }),
        },
      }),
  },
  {
    name: 'parameters with content and styles',
    bytes: 130,
    make: n =>
      withParameters(
        times(n, i => ({
          name: `p${i}`,
          in: 'query',
          style: 'deepObject',
          explode: true,
          content: { 'application/json': { schema: { $ref: '#/components/schemas/S' } } },
        })),
        { components: { schemas: { S: { type: 'object' } } } },
      ),
  },
  {
    name: 'dynamic references and their anchors',
    bytes: 60,
    make: n => withBody({ allOf: times(n, i => ({ $dynamicAnchor: `a${i}`, items: { $dynamicRef: `#a${i + 1}` } })) }),
  },
  {
    name: 'conditions and dependent schemas',
    bytes: 80,
    make: n =>
      withBody({
        allOf: times(n, i => ({ if: { const: i }, else: false })),
        dependentSchemas: record(
          n,
          i => `d${i}`,
          () => ({ unevaluatedProperties: false }),
        ),
      }),
  },
  {
    name: 'paths that differ in the names of their placeholders',
    bytes: 110,
    make: n =>
      document(
        record(
          n,
          i => `/a/{p${i}}/b/{q${i}}`,
          i => ({ get: operation(`o${i}`, { parameters: times(2, k => ({ name: `${'pq'[k]}${i}`, in: 'path' })) }) }),
        ),
      ),
  },
  {
    name: 'references through escaped keys',
    bytes: 70,
    make: n =>
      withBody(
        { allOf: times(n, i => ({ $ref: `#/x/${'~1~0'.repeat(10)}/${encodeURIComponent('名')}${i % 3}` })) },
        { x: { ['/~'.repeat(10)]: { 名0: {}, 名1: {} } } },
      ),
  },
  {
    name: 'texts that grow sixfold as JSON',
    bytes: 6060,
    make: n => operations(n, () => ({ description: '\u0001'.repeat(1000) })),
  },
  {
    name: 'forms of Swagger 2.0 that share a field with many numbers that JavaScript would write in another way',
    bytes: 110,
    make: n => {
      const F = { name: 'f', in: 'formData', type: 'string', 'x-n': 0 }
      const form = operations(n, () => ({ parameters: [{ $ref: '#/parameters/F' }] }), { parameters: { F } })
      return JSON.stringify(form).replace('"x-n":0', () => times(n, i => `"x-${i}":1.0`).join())
    },
  },
  {
    name: 'operations of Swagger 2.0 with schemes of their own, and a long host',
    bytes: 180,
    make: n => operations(n, () => ({ schemes: ['https'] }), { host: long(n * 100), schemes: ['https'] }),
  },
  {
    name: 'operations of Swagger 2.0 under media types that are none',
    bytes: 80,
    make: n =>
      operations(n, () => ({ responses: { 200: { schema: {} } } }), {
        consumes: times(n * 5, () => 0),
        produces: times(n * 5, () => 0),
      }),
  },
  {
    name: 'parameters of Swagger 2.0 that go on by one long reference',
    bytes: 200,
    make: n =>
      operations(n, () => ({ parameters: [{ $ref: '#/parameters/A' }] }), {
        parameters: { A: { $ref: `#/parameters/${long(n * 100)}` } },
      }),
  },
  {
    name: 'paths of one id whose path items go on by one long reference',
    bytes: 180,
    make: n =>
      document(
        record(
          n,
          i => `/p${i}`,
          i => (i % 2 ? item('A') : { get: operation('x') }),
        ),
        { components: { pathItems: { A: { $ref: `#/components/pathItems/${long(n * 100)}` } } } },
      ),
  },
  {
    name: 'methods of every spelling over fields of one form of Swagger 2.0',
    bytes: 20,
    make: n =>
      document({
        '/x': {
          parameters: times(n, () => ({ in: 'formData' })),
          ...record(
            200,
            i =>
              [...'optionsx']
                .slice(0, 7)
                .map((c, bit) => ((i >> bit) & 1 ? c.toUpperCase() : c))
                .join(''),
            () => ({}),
          ),
        },
      }),
  },
  {
    name: 'a body of any type with a large example',
    bytes: 9,
    make: n =>
      document({
        '/x': { post: operation('x', { requestBody: { content: { '*/*': { example: times(n, i => [i]) } } } }) },
      }),
  },
  // What `JSON.stringify` never writes.
  {
    name: 'keys written as escapes',
    bytes: 50,
    make: n => withText(`{${times(n, i => `"\\u0061\\ud83d\\ude00\\u006${i % 10}${i}":"\\u0062"`).join()}}`),
  },
  {
    name: 'keys that stand twice',
    bytes: 22,
    make: n => withText(`{${times(n, i => `"k${i % 1000}":{"a":${i}}`).join()}}`),
  },
  { name: 'one key, again and again', bytes: 10, make: n => withText(`{${times(n, () => '"kkkk":[1]').join()}}`) },
  { name: 'one integer of many digits', bytes: 1, make: n => withText('9'.repeat(n)) },
  { name: 'one fraction of many digits', bytes: 1, make: n => withText(`0.${'1'.repeat(n)}`) },
  { name: 'integers of 400 digits', bytes: 401, make: n => withText(`[${times(n, () => '1'.repeat(400)).join()}]`) },
  { name: 'numbers beyond a double', bytes: 8, make: n => withText(`[${times(n, i => `1e9${i}`).join()}]`) },
  {
    name: 'numbers that JavaScript would write in another way',
    bytes: 5,
    make: n => withText(`[${times(n, () => '1.00').join()}]`),
  },
  {
    name: 'fields of numbers that JavaScript would write in another way',
    bytes: 14,
    make: n => withText(`{${times(n, i => `"k${i}":1.0e0`).join()}}`),
  },
  { name: 'blanks', bytes: 1, make: n => withText(`[${' \n\t'.repeat(n / 3)}]`) },
]

/** How far from the size that was asked for a document may be; the parts of a few kinds are larger the more they are. */
const NEARLY = 1.08
const SIZING_ROUNDS = 4

/** The text of a family's document that has `bytes` bytes, nearly, or as many as the least that it is made of. */
export function textOf({ bytes: bytesOfPart, make }: Family, bytes: number): string {
  let parts = (bytes - 200) / bytesOfPart
  let text = ''
  for (let round = 0; round < SIZING_ROUNDS; round++) {
    const made = make(Math.max(1, Math.round(parts)))
    text = typeof made === 'string' ? made : JSON.stringify(made)
    const size = Buffer.byteLength(text)
    if (size < bytes * NEARLY && (size * NEARLY > bytes || parts < 10)) break
    if (parts <= 1) break
    parts *= bytes / size
  }
  return text
}
