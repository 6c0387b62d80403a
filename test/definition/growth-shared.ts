import { createHash } from 'node:crypto'
import {
  document,
  type Family,
  item,
  long,
  nested,
  operation,
  operations,
  record,
  ref,
  times,
  withBody,
} from './growth.js'

/*
 * Kinds of documents, as in `growth.ts`, whose cost lies in what many parts share, in what is compared with what, and in members of
 * one object or list that are many and small.
 */

type Json = Record<string, unknown>

/** Each way to write the methods in large and small letters: all are methods of a tool. */
const SPELLINGS: readonly string[] = ['get', 'put', 'post', 'patch', 'delete'].flatMap(method =>
  times(2 ** method.length, i => [...method].map((c, bit) => ((i >> bit) & 1 ? c.toUpperCase() : c)).join('')),
)

function inEverySpelling(make: (method: string, i: number) => Json): Json {
  return Object.fromEntries(SPELLINGS.map((method, i) => [method, make(method, i)]))
}

function swagger(paths: unknown, more: Json = {}): Json {
  return { swagger: '2.0', info: { title: 'Hostile' }, host: 'h.example.com', schemes: ['https'], paths, ...more }
}

function paths(count: number, make: (i: number) => unknown): Json {
  return record(count, i => `/p${i}`, make)
}

const form = { content: { 'multipart/form-data': {} } }

/** A reference to a component, each of the many ways to write its name with percent signs. */
function spelled(name: string, i: number): string {
  return [...name].map((c, bit) => ((i >> bit) & 1 ? `%${c.charCodeAt(0).toString(16)}` : c)).join('')
}

export const sharedFamilies: readonly Family[] = [
  // Servers.
  {
    name: 'a variable of many short values beside one that is long',
    bytes: 6,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: times(n / 7000, () => ({
        url: '{b}{a}',
        variables: {
          a: { default: `/${long(3500)}` },
          b: { default: '', enum: times(Math.min(n, 7000), i => `${i}`) },
        },
      })),
    }),
  },
  {
    name: 'a variable of many values beside one that leads to others',
    bytes: 6,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: times(n / 7000, () => ({
        url: '{b}{a}',
        variables: {
          a: { default: `/{c}${long(400)}` },
          b: { default: '', enum: times(Math.min(n, 7000), i => `${i}`) },
          ...record(
            8,
            i => 'cdefghij'[i] as string,
            i => ({ default: `{${'defghijk'[i]}}${long(400)}` }),
          ),
        },
      })),
    }),
  },
  {
    name: 'variables that the address of their server does not have',
    bytes: 20,
    make: n => ({
      ...document({ '/x': { get: operation('x') } }),
      servers: [
        {
          url: `https://{v}.example.com/${'{v'.repeat(4000)}`,
          variables: {
            v: { default: 'a' },
            ...record(
              n,
              i => `v${i}`,
              () => ({ enum: [] }),
            ),
          },
        },
      ],
    }),
  },
  {
    name: 'servers with an open end and paths that go on with it',
    bytes: 30,
    make: n =>
      document(
        record(
          n,
          i => `a${i}`,
          () => ({}),
        ),
        { 'x-a': { servers: times(n, i => ({ url: `b${i}` })) } },
      ),
  },
  // Names that many use.
  {
    name: 'paths that share an operation with a long operationId',
    bytes: 90,
    make: n =>
      document(
        paths(n, () => item('P')),
        { components: { pathItems: { P: { get: operation(long(n * 20)) } } } },
      ),
  },
  {
    name: 'operations that share eight header parameters with long names',
    bytes: 500,
    make: n =>
      operations(n, () => ({ parameters: times(8, k => ({ $ref: `#/components/parameters/P${k}` })) }), {
        components: {
          parameters: record(
            8,
            k => `P${k}`,
            k => ({ name: `${long(n * 15)}${k}`, in: 'header' }),
          ),
        },
      }),
  },
  {
    name: 'operations that share ten query parameters with long names',
    bytes: 600,
    make: n =>
      operations(n, () => ({ parameters: times(10, k => ({ $ref: `#/components/parameters/P${k}` })) }), {
        components: {
          parameters: record(
            10,
            k => `P${k}`,
            k => ({ name: `${long(n * 15)}${k}`, in: 'query' }),
          ),
        },
      }),
  },
  {
    name: 'references by an anchor to a schema with a long name',
    bytes: 14,
    make: n =>
      withBody(
        { allOf: times(n, () => ({ $ref: '#a' })) },
        { components: { schemas: { [long(Math.min(n, 8000))]: { $anchor: 'a', type: 'string' } } } },
      ),
  },
  {
    name: 'properties with long names that differ at their end',
    bytes: 8030,
    make: n =>
      withBody({
        properties: record(
          n,
          i => `${long(8000)}${i}`,
          () => ({ type: 'string' }),
        ),
      }),
  },
  {
    name: 'operations whose names are those that one long operationId would get',
    bytes: 170,
    make: n => {
      const id = long(n * 50)
      const taken = (round: number) => {
        const hash = createHash('sha256')
          .update(round === 0 ? id : `${id}#${round}`)
          .digest('hex')
        return `${long(55)}_${hash.slice(0, 8)}`
      }
      const most = Math.min(n, 300)
      const byHashes = operations(n, i => ({ operationId: i < most ? taken(i) : `o${i}` }))
      return { ...byHashes, paths: { ...(byHashes.paths as Json), '/x': { get: operation(id) } } }
    },
  },
  {
    name: 'paths that name one path item in as many ways',
    bytes: 90,
    make: n => {
      const name = 'abcdefghijklmnopqr'
      const P = {
        get: operation('x'),
        ...record(
          n,
          i => `x-${i}`,
          () => 0,
        ),
      }
      return document(
        paths(n, i => item(spelled(name, i))),
        { components: { pathItems: { [name]: P } } },
      )
    },
  },
  {
    name: 'parameters and properties that are called as members of every object',
    bytes: 200,
    make: n => {
      const names = ['constructor', 'toString', 'hasOwnProperty', '__proto__', 'valueOf']
      return operations(n, i => ({
        parameters: [
          { name: names[i % 5], in: 'query' },
          { name: names[(i + 1) % 5], in: 'header' },
        ],
      }))
    },
  },
  {
    name: 'letters that normalise to many',
    bytes: 2100,
    make: n =>
      document(
        record(
          n,
          i => `/${'\ufdfa'.repeat(1000)}${i}`,
          i => ({ get: { operationId: `${'\ufdfa'.repeat(1000)}${i}` } }),
        ),
      ),
  },
  {
    name: 'letters that normalise to many, without an operationId',
    bytes: 1100,
    make: n =>
      document(
        record(
          n,
          i => `/${'\ufdfa'.repeat(1000)}${i}`,
          () => ({ get: {} }),
        ),
      ),
  },
  // What is compared with what.
  {
    name: 'placeholders of paths that have methods in every spelling',
    bytes: 70,
    make: n =>
      document(
        record(
          n / SPELLINGS.length,
          j => `/${j}/${times(400, i => `{${i}}`).join('')}`,
          j => inEverySpelling((_, i) => operation(`o${j}.${i}`)),
        ),
      ),
  },
  {
    name: 'declared placeholders of paths that have methods in every spelling, with a parameter each',
    bytes: 190,
    make: n =>
      document(
        record(
          n / SPELLINGS.length,
          j => `/${j}/${times(400, i => `{${i}}`).join('')}`,
          j => ({
            parameters: times(400, i => ({ name: `${i}`, in: 'path' })),
            ...inEverySpelling((_, i) => operation(`o${j}.${i}`, { parameters: [{ name: 'q', in: 'query' }] })),
          }),
        ),
      ),
  },
  {
    name: 'one long placeholder, methods in every spelling, and nine parameters',
    bytes: 20,
    make: n =>
      document({
        [`/{${long(n * 16)}}`]: {
          parameters: times(9, i => ({ name: `p${i}`, in: 'query' })),
          ...inEverySpelling((_, i) => operation(`o${i}`)),
        },
      }),
  },
  {
    name: 'paths that share an operation with a hundred parameters beside four hundred',
    bytes: 48,
    make: n => {
      const parameters = (count: number, name: string) => times(count, i => ({ name: `${name}${i}`, in: 'query' }))
      const P = { parameters: parameters(398, 'p'), get: operation('x', { parameters: parameters(103, 'q') }) }
      return document(
        paths(n, () => item('P')),
        { components: { pathItems: { P } } },
      )
    },
  },
  {
    name: 'paths that share operations whose operationIds another path has',
    bytes: 48,
    make: n =>
      document(
        { '/a': inEverySpelling((_, i) => operation(`x${i}`)), ...paths(n, () => item('S')) },
        { components: { pathItems: { S: inEverySpelling((_, i) => operation(`x${i}`)) } } },
      ),
  },
  {
    name: 'paths with long names that share operations whose operationIds another path has',
    bytes: 200,
    make: n =>
      document(
        {
          [`/${long(150)}a`]: inEverySpelling((_, i) => operation(`x${i}`)),
          ...record(
            n,
            i => `/${long(150)}${i}`,
            () => item('S'),
          ),
        },
        { components: { pathItems: { S: inEverySpelling((_, i) => operation(`x${i}`)) } } },
      ),
  },
  {
    name: 'paths that share operations which send forms',
    bytes: 48,
    make: n =>
      document(
        paths(n, () => item('S')),
        {
          components: { pathItems: { S: inEverySpelling((_, i) => operation(`x${i}`, { requestBody: form })) } },
        },
      ),
  },
  {
    name: 'a path of many extensions that shares operations with others',
    bytes: 9,
    make: n =>
      document(
        {
          '/a': item('S'),
          '/b': {
            ...record(
              n,
              i => `x-${i}`,
              () => 0,
            ),
            ...item('S'),
          },
        },
        { components: { pathItems: { S: inEverySpelling((_, i) => operation(`x${i}`)) } } },
      ),
  },
  {
    name: 'paths that share operations with many extensions, in every spelling',
    bytes: 9,
    make: n =>
      document(
        { '/a': inEverySpelling((_, i) => operation(`x${i}`)), '/b': item('S'), '/c': item('S') },
        {
          components: {
            pathItems: {
              S: {
                ...inEverySpelling((_, i) => operation(`x${i}`)),
                ...record(
                  n,
                  i => `x-${i}`,
                  () => 0,
                ),
              },
            },
          },
        },
      ),
  },
  {
    name: 'references that nothing mends, at a deep place with long names',
    bytes: 13,
    make: n => {
      const names = Math.min(55, n / 100)
      return withBody(
        nested(names, inner => ({ properties: { [long(250)]: inner } }), { allOf: times(n, () => ({ $ref: '#/x' })) }),
      )
    },
  },
  {
    name: 'schemas that are references to the next, in one long chain',
    bytes: 46,
    make: n =>
      withBody(ref('S0'), {
        components: {
          schemas: record(
            n,
            i => `S${i}`,
            i => (i + 1 < n ? ref(`S${i + 1}`) : {}),
          ),
        },
      }),
  },
  {
    name: 'schemas that are references to the next, in one long ring, each used',
    bytes: 90,
    make: n =>
      withBody(
        { allOf: times(n, i => ref(`S${i}`)) },
        {
          components: {
            schemas: record(
              n,
              i => `S${i}`,
              i => ref(`S${(i + 1) % Math.round(n)}`),
            ),
          },
        },
      ),
  },
  {
    name: 'null parameters of operations, and of their paths',
    bytes: 100,
    make: n =>
      document(
        paths(n, i => ({
          get: operation(`o${i}`, { parameters: [null, { name: 'a', in: 'query' }, null] }),
          parameters: [null, { name: 'b', in: 'query' }],
        })),
      ),
  },
  {
    name: 'null parameters of one operation, between those that are none',
    bytes: 12,
    make: n => document({ '/x': { get: operation('x', { parameters: times(n, i => (i % 2 ? null : { in: i })) }) } }),
  },
  // Many small members of one object or list.
  {
    name: 'media types of short names',
    bytes: 8,
    make: n =>
      document({
        '/x': {
          post: operation('x', {
            requestBody: {
              content: record(
                n,
                i => `t${i}`,
                () => 0,
              ),
            },
          }),
        },
      }),
  },
  {
    name: 'extensions among the paths',
    bytes: 9,
    make: n =>
      document(
        record(
          n,
          i => `x-${i}`,
          () => 0,
        ),
      ),
  },
  {
    name: 'keys of a path item that look like methods',
    bytes: 10,
    make: n =>
      document({
        '/x': {
          get: operation('x'),
          ...record(
            n,
            i => `P${i.toString(36).padStart(4, '0')}`,
            () => 0,
          ),
        },
      }),
  },
  {
    name: 'one large value of an enum',
    bytes: 9,
    make: n => withBody({ enum: [times(n, i => [i])], const: times(n, i => i) }),
  },
  { name: 'types of one schema', bytes: 9, make: n => withBody({ type: times(n, i => `t${i}`) }) },
  {
    name: 'names that depend on others',
    bytes: 12,
    make: n =>
      withBody({
        dependentRequired: record(
          n,
          i => `d${i}`,
          () => [],
        ),
      }),
  },
  {
    name: 'schemas of one alternative each',
    bytes: 14,
    make: n => withBody({ anyOf: times(n, i => ({ minLength: i })) }),
  },
  {
    name: 'formats of many schemas',
    bytes: 30,
    make: n =>
      withBody(
        { allOf: times(n / 20, i => ref(`S${i}`)) },
        {
          components: {
            schemas: record(
              n / 20,
              i => `S${i}`,
              i => ({ anyOf: times(20, k => ({ format: `f${i}.${k}` })) }),
            ),
          },
        },
      ),
  },
  {
    name: 'patterns that are none, of one operation',
    bytes: 16,
    make: n => withBody({ anyOf: times(n, () => ({ pattern: '((' })) }),
  },
  {
    name: 'properties that the server sets',
    bytes: 30,
    make: n =>
      withBody({
        required: times(n, i => `p${i}`),
        properties: record(
          n,
          i => `p${i}`,
          () => ({ readOnly: true }),
        ),
      }),
  },
  {
    name: 'nullable values of an enum',
    bytes: 9,
    make: n => withBody({ nullable: true, type: 'string', enum: times(n, i => `v${i}`) }),
  },
  // Swagger 2.0.
  {
    name: 'fields of one form of Swagger 2.0',
    bytes: 52,
    make: n =>
      swagger({
        '/x': {
          post: operation('x', { parameters: times(n, i => ({ name: `f${i}`, in: 'formData', type: 'string' })) }),
        },
      }),
  },
  {
    name: 'headers of one response of Swagger 2.0',
    bytes: 11,
    make: n =>
      swagger({
        '/x': {
          get: operation('x', {
            responses: {
              200: {
                headers: record(
                  n,
                  i => `h${i}`,
                  () => ({}),
                ),
              },
            },
          }),
        },
      }),
  },
  {
    name: 'fields of one response of Swagger 2.0',
    bytes: 9,
    make: n =>
      swagger({
        '/x': {
          get: operation('x', {
            responses: {
              200: record(
                n,
                i => `f${i}`,
                () => 0,
              ),
            },
          }),
        },
      }),
  },
  {
    name: 'fields of one parameter of Swagger 2.0',
    bytes: 9,
    make: n =>
      swagger({
        '/x': {
          get: operation('x', {
            parameters: [
              {
                name: 'a',
                in: 'query',
                type: 'string',
                ...record(
                  n,
                  i => `x-${i}`,
                  () => 0,
                ),
              },
            ],
          }),
        },
      }),
  },
  {
    name: 'fields of one operation of Swagger 2.0',
    bytes: 9,
    make: n =>
      swagger({
        '/x': {
          get: {
            ...operation('x'),
            ...record(
              n,
              i => `x-${i}`,
              () => 0,
            ),
          },
        },
      }),
  },
  {
    name: 'fields of one path item of Swagger 2.0',
    bytes: 9,
    make: n =>
      swagger({
        '/x': {
          get: operation('x'),
          ...record(
            n,
            i => `x-${i}`,
            () => 0,
          ),
        },
      }),
  },
  {
    name: 'security definitions of Swagger 2.0',
    bytes: 24,
    make: n =>
      swagger(
        { '/x': { get: operation('x') } },
        {
          securityDefinitions: record(
            n,
            i => `s${i}`,
            () => ({ type: 'basic' }),
          ),
        },
      ),
  },
  {
    name: 'references into a list of parameters of Swagger 2.0',
    bytes: 75,
    make: n =>
      swagger(
        {
          '/x': {
            get: operation('x', {
              parameters: times(n, () => ({ $ref: '#/parameters/A' })),
              responses: { 200: { schema: { allOf: times(n, i => ({ $ref: `#/paths/~1x/get/parameters/${i}` })) } } },
            }),
          },
        },
        { parameters: { A: { name: 'a', in: 'query', type: 'string' } } },
      ),
  },
  {
    name: 'media types that operations of Swagger 2.0 take and give',
    bytes: 120,
    make: n => {
      const types = times(Math.sqrt(n), i => `application/vnd.x${i}+json`)
      return swagger(
        paths(n, i => ({
          post: operation(`o${i}`, {
            parameters: [{ name: 'b', in: 'body', schema: {} }],
            responses: { 200: { schema: {} } },
          }),
        })),
        { consumes: types, produces: types },
      )
    },
  },
]
