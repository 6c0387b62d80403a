import { connect } from 'node:net'
import t from 'tap'
import { ADDRESS_LENGTH_MAX } from '../../src/http/address.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

/* What a client writes into headers, path and query takes time as it has bytes, whatever it is: the longest that is let in. */

/** The headers and the address of a request have 16 KiB together, and an address less. */
const LENGTH = 15_000
const ADDRESS_LENGTH = ADDRESS_LENGTH_MAX - 100

/**
 * So much more than a plain one nothing takes. What takes the square of its length takes more: 15,000 characters, each with half of
 * the others, are 100 million steps.
 */
const DEAR_MS = 12
const METRICS_TOKEN = 'a-metrics-token-of-some-length'

/** What is hostile to a list, a quoted text, a pattern that goes back, a loop in a loop. */
const VALUES: Record<string, (length: number) => string> = {
  'quotes that are escaped': repeated('\\"'),
  quotes: repeated('"'),
  'quotes and a backslash': length => `"${'\\"'.repeat(length / 2 - 2)}\\`,
  'empty tags': repeated('"",'),
  'tags and a letter': length => `${'"a",'.repeat(length / 4 - 1)}x`,
  'weak tags': repeated('W/"a" , '),
  'weak signs': repeated(' W/'),
  'tags of the resource': repeated('"persona-1-1",'),
  'tags with digests': repeated('"persona-1-1.0123456789ab", '),
  'a tag, blanks and a letter': length => `"a"${' '.repeat(length - 4)}x`,
  'a tag, blanks, commas and a letter': length => `"a"${' ,'.repeat(length / 2 - 3)}x`,
  'a tag behind another, commas and a quote': length => `"a"${','.repeat(length - 8)}"b"x"`,
  commas: repeated(','),
  'commas and blanks': repeated(' , \t'),
  'blanks in the middle': length => `a${' '.repeat(length - 2)}x`,
  'words and an end of another kind': length => `${'a,'.repeat(length / 2 - 1)}"`,
  'keys and an end of another kind': length => `${'"a",'.repeat(length / 4 - 1)}"`,
  'one word': repeated('a'),
  'words with equals signs': repeated('a='),
  preferences: repeated('return=minimal,'),
  'preferences with parameters': repeated('handling=strict;a="b,c";d="'),
  'parameters without an end': repeated(';a="\\'),
  'parameters with blanks': repeated('; \t a'),
  'a preference, blanks and a letter': length => `a="b"${' '.repeat(length - 10)}x`,
  'media types': repeated('+json'),
  'a media type and blanks': length => `application/json${' '.repeat(length - 20)}x`,
  'a media type with parameters': length => `application/json${';a="\\"'.repeat(length / 6 - 3)}`,
  'many suffixes': length => `application/${'a+json'.repeat(length / 6 - 3)} x`,
  'a token behind blanks': length => `Bearer ${' '.repeat(length - 20)}a b`,
  'a token before blanks': length => `Bearer a${' '.repeat(length - 20)}b`,
  addresses: repeated('127.0.0.1, '),
  'addresses of the other family': repeated('::ffff:127.0.0.1,'),
  digits: repeated('9'),
  zeros: repeated('0'),
  'a trace': length => `00-${'0'.repeat(length - 10)}-01`,
  colons: repeated(':'),
  'letters beyond ASCII': repeated('\xff'),
}

const HEADERS = [
  'prefer',
  'if-match',
  'if-none-match',
  'idempotency-key',
  'authorization',
  'content-type',
  'content-encoding',
  'accept',
  'accept-encoding',
  'traceparent',
  'tracestate',
  'baggage',
  'x-request-id',
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-forwarded-host',
  'forwarded',
  'origin',
  'access-control-request-headers',
  'host',
  'connection',
  'expect',
  'te',
  'cookie',
]

/** Addresses whose path or query is hostile. */
const ADDRESSES: Record<string, (length: number) => string> = {
  'many names in a query': length =>
    `/persona/1?${numbered(length / 6, n => `a${n.toString(36).padStart(3, '0')}=`, '&')}`,
  'one name in a query, again and again': length => `/persona/1?${'version=1&'.repeat(length / 10 - 2)}`,
  'names that are nearly declared': length =>
    `/persona/1?${numbered(length / 12, n => `versio${n.toString(36)}`, '&').slice(0, length - 20)}`,
  'names as long as those that are compared': length =>
    `/persona/1?${numbered(length / 65, n => `${n}`.padEnd(62, 'i'), '&')}`,
  'a mask of names that are nearly fields': length =>
    `/persona/1?update_mask=${numbered(length / 14, n => `descriptio${n.toString(36)}`, ',').slice(0, length - 40)}`,
  'a mask of one field': length => `/persona/1?update_mask=${'name,'.repeat(length / 5 - 6)}name`,
  'a mask of blanks': length => `/persona/1?update_mask=${'+'.repeat(length - 30)}x`,
  'a mask of commas': length => `/persona/1?update_mask=${','.repeat(length - 30)}`,
  'a time of many digits': length => `/persona/1?at=2020-01-01T00:00:00.${'1'.repeat(length - 50)}x`,
  'a time of blanks': length => `/persona/1?at=${'+'.repeat(length - 30)}01:00`,
  'a version of many digits': length => `/persona/1?version=${'9'.repeat(length - 30)}`,
  'an escaped name': length => `/persona?name=${'%F0%9F%98%80'.repeat(length / 12 - 2)}`,
  'escapes that are none': length => `/persona?name=${'%25%f'.repeat(length / 5 - 4)}`,
  'a limit of zeros': length => `/persona?limit=${'0'.repeat(length - 20)}1`,
  'blanks for plus signs': length => `/persona?name=${'+'.repeat(length - 20)}`,
  'a long id': length => `/persona/${'1'.repeat(length - 10)}`,
  'an id as long as the router takes': () => `/persona/${'1'.repeat(250)}`,
  'many slashes': length => '/'.repeat(length),
  'many parts': length => `/persona${'/a'.repeat(length / 2 - 4)}`,
  'a path of escapes': length => `/docs/${'%2e%2e%2f'.repeat(length / 9 - 1)}`,
}

t.test('hostile headers and addresses take no more time than plain ones of their length, nearly', async t => {
  const { url, token } = await worldDatabase(t)
  const admin = await token('admin@example.com')
  const service = await ServiceProcess.start({
    DATABASE_URL: url,
    SECRET_KEYS: TEST_SECRET_KEYS,
    METRICS_TOKEN,
    FAILED_AUTH_LIMIT_PER_MINUTE: '0',
    RATE_LIMIT_BYTES_PER_MINUTE: '0',
    CORS_ORIGINS: 'https://console.example.com',
    TRUST_PROXY: 'loopback',
    LOG_LEVEL: 'silent',
  })
  t.teardown(async () => {
    await service.stop('SIGKILL')
  })

  const requestOf = ({ method = 'PATCH', address = '/persona/1?update_mask=', name = 'x-plain', value = 'x' }) => {
    const headers: Record<string, string> = {
      host: 'localhost',
      authorization: `Bearer ${admin}`,
      'content-type': 'application/json',
      'content-length': '2',
      [name]: value,
      connection: name === 'connection' ? `close, ${value}` : 'close',
    }
    const lines = Object.entries(headers).map(([key, text]) => `${key}: ${text}`)
    return `${method} ${address} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n{}`
  }

  /** The processor time of the whole process for these requests, in ms. */
  async function cost(requests: readonly string[]): Promise<number> {
    const before = await cpuMs(service)
    for (const request of requests) await answered(service.port, request)
    return (await cpuMs(service)) - before
  }

  const plain = Array.from({ length: 40 }, () => requestOf({ value: 'x'.repeat(LENGTH) }))
  for (let n = 0; n < 3; n++) await cost(plain) // until it is warm
  const plainMs = (await cost(plain)) / plain.length
  const limitMs = 3 * plainMs + 10 * DEAR_MS

  /** Of these requests those that take far more than a plain one. */
  async function dear(requests: readonly (readonly [string, string])[]): Promise<string[]> {
    const found: string[] = []
    for (const [title, request] of requests) {
      let leastMs = Number.POSITIVE_INFINITY // what the process has to do beside may be dear, too
      for (let n = 0; n < 3 && leastMs > limitMs; n++) leastMs = Math.min(leastMs, await cost([request]))
      if (leastMs > limitMs) found.push(`${title}: ${Math.round(leastMs)} ms`)
    }
    return found
  }

  for (const name of HEADERS) {
    const requests = Object.entries(VALUES).map(
      ([title, make]) => [title, requestOf({ name, value: make(LENGTH) })] as const,
    )
    const ms = await cost(requests.map(([, request]) => request))
    // Each alone is asked for only where all together are dear.
    if (ms > requests.length * 2 * plainMs + limitMs) t.strictSame(await dear(requests), [], `${name}, all ${ms} ms`)
    else t.pass(`${name}, all ${Math.round(ms)} ms`)
  }
  for (const method of ['GET', 'PATCH', 'OPTIONS']) {
    const requests = Object.entries(ADDRESSES).map(
      ([title, make]) => [title, requestOf({ method, address: make(ADDRESS_LENGTH) })] as const,
    )
    t.strictSame(await dear(requests), [], `addresses of ${method}`)
  }
})

function repeated(text: string): (length: number) => string {
  return length => text.repeat(Math.floor(length / text.length))
}

function numbered(count: number, write: (index: number) => string, separator: string): string {
  return Array.from({ length: Math.floor(count) }, (_, index) => write(index)).join(separator)
}

/** Sends a request, and resolves when its connection has ended. */
async function answered(port: number, request: string): Promise<void> {
  await new Promise<void>(resolve => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    socket.once('close', () => resolve())
    socket.resume().write(request, 'latin1')
  })
}

/** The processor time that the service has taken so far. */
async function cpuMs({ port }: ServiceProcess): Promise<number> {
  const headers = { authorization: `Bearer ${METRICS_TOKEN}` }
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`, { headers })).text()
  return 1_000 * Number(/^process_cpu_seconds_total ([\d.e-]+)/m.exec(text)?.[1])
}
