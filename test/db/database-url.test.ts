import { join } from 'node:path'
import { inspect } from 'node:util'
import t from 'tap'
import { type DatabaseUrl, describeDatabase, parseDatabaseUrl } from '../../src/db/connection/database-url.js'

t.test('one host with everything', async t => {
  const url = read(
    'postgresql://al%40ice:p%3Aw%2F1@db.example.com:6432/agents?sslmode=verify-full&sslrootcert=system&application_name=a%20b&connect_timeout=3&options=-c%20search_path%3Dagents\n',
  )
  t.strictSame(
    { ...url, password: url.password },
    {
      host: 'db.example.com',
      port: 6432,
      user: 'al@ice',
      password: 'p:w/1',
      database: 'agents',
      writesOnly: false,
      sslmode: 'verify-full',
      channelBinding: false,
      applicationName: 'a b',
      connectTimeoutMs: 3_000,
      options: '-c search_path=agents',
    },
  )
})

t.test('the host: a name, IPv6, a Unix socket, in the authority or as a parameter', async t => {
  const cases: [string, string, number][] = [
    ['postgres://a', 'a', 5432],
    ['postgresql://u@[::1]:3/db', '::1', 3],
    ['postgresql:///db?host=/run/pg', '/run/pg', 5432],
    ['postgresql:///db?host=%2Frun%2Fpg&port=5433', '/run/pg', 5433],
    ['postgresql://u@%2Frun%2Fpg/db', '/run/pg', 5432],
  ]
  for (const [text, host, port] of cases) t.match(read(text), { host, port }, text)
  const url = read('postgresql://a/d?user=u&password=p')
  t.strictSame([url.user, url.password, url.database], ['u', 'p', 'd'])
})

t.test('encryption: the modes of libpq that keep their word', async t => {
  const ca = join(t.testdir({ 'ca.pem': 'a certificate' }), 'ca.pem')
  const withCa = (mode: string) => read(`postgresql://a/db?sslmode=${mode}&sslrootcert=${ca}`).ssl
  t.equal(read('postgresql://a/db').ssl, false)
  t.match(read('postgresql://a/db?sslmode=require').ssl, { rejectUnauthorized: false })
  for (const mode of ['require', 'verify-ca'])
    t.match(withCa(mode), { ca: 'a certificate', checkServerIdentity: Function })
  const full = withCa('verify-full')
  t.match(full, { ca: 'a certificate', rejectUnauthorized: undefined, checkServerIdentity: undefined })
  t.match(faults('postgresql://a/db?sslmode=verify-full&sslrootcert=/none'), [
    /^a certificate or key cannot be read: ENOENT/,
  ])
  t.match(faults('postgresql://a/db?sslmode=verify-ca'), ['sslmode=verify-ca needs sslrootcert'])
  for (const mode of ['allow', 'prefer', 'yes']) t.equal(faults(`postgresql://a/db?sslmode=${mode}`).length, 1)
  t.equal(faults('postgresql://a/db?sslrootcert=/c').length, 1)
})

t.test('channel_binding, as services hand it out: taken, and said where pg does not enforce it', async t => {
  const neon = parseDatabaseUrl('postgresql://u:p@a/db?sslmode=require&channel_binding=require')
  t.match(neon, { ok: true, url: { channelBinding: true }, warnings: [/^channel_binding=require is used where/] })
  t.equal(read('postgresql://a/db?sslmode=require&channel_binding=prefer').channelBinding, true)
  t.equal(read('postgresql://a/db?channel_binding=disable').channelBinding, false)
  t.match(faults('postgresql://a/db?channel_binding=require'), [/channel_binding=require need an sslmode/])
  t.match(faults('postgresql://a/db?channel_binding=x'), [/^channel_binding must be disable, prefer or require/])
})

t.test('every fault is reported at once, what is not supported by its name', async t => {
  t.match(
    faults('postgresql://u@a/d%zz?sslmode=prefer&target_session_attrs=standby&foo=1&connect_timeout=soon&user=v'),
    [
      /^sslmode must be disable/,
      /^target_session_attrs must be any, primary/,
      /^the parameter foo is not supported; these are: host, port/,
      /^connect_timeout must be a number/,
    ],
  )
  t.match(faults('postgresql://a,b/db'), [/^host must name one address/])
  t.match(faults('postgresql:///db'), [/^it names no host/])
  for (const text of ['mysql://a/b', 'postgresql://a:1,b:2/db', 'host=a dbname=b', '']) {
    t.match(faults(text), [/^it is not a URL like postgresql:/], text)
  }
  t.equal(read('postgresql://a/db?target_session_attrs=read-write').writesOnly, true)
})

t.test('no part of the password is in a fault, a description, printed or in JSON, however it was written', async t => {
  const texts = [
    'postgresql://u:hunter2@a/db',
    'postgresql://u:hunter2@a,b/db',
    'postgresql://u:hunter2@a:x/db?foo=1',
    'postgresql://u:hunter2',
    'postgresql://u:hunter2/db',
    'postgresql://u:x?hunter2=y@a/db',
    'postgresql://u:1?hunter2=y@a/db',
    'postgresql://u:x/hunter2@a/db',
    'postgresql://u:1/hunter2@a/db',
    'postgresql://u:x@hunter2@a:p/db',
    'postgresql://u:%zzhunter2@a/db',
    'postgresql://a?password=hunter2&sslmode=x',
    'postgresql://u:p#hunter2@a:x/db',
    'hunter2',
    'host=a password=hunter2 foo=1',
  ]
  for (const text of texts) {
    const parsed = parseDatabaseUrl(text)
    t.notMatch(inspect(parsed, { depth: 9 }) + JSON.stringify(parsed), /hunter2/, text)
    if (parsed.ok) t.notMatch(describeDatabase(parsed.url), /hunter2/, text)
  }
})

t.test('the description names the place', async t => {
  t.equal(
    describeDatabase(read('postgresql://u:p@[::1]:1/db?sslmode=require')),
    'postgresql://u@[::1]:1/db (sslmode=require)',
  )
  t.equal(describeDatabase(read('postgresql:///db?host=/run/pg')), 'postgresql:///run/pg:5432/db (sslmode=disable)')
})

function read(text: string): DatabaseUrl {
  const parsed = parseDatabaseUrl(text)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  return parsed.url
}

function faults(text: string): string[] {
  const parsed = parseDatabaseUrl(text)
  return parsed.ok ? [] : parsed.faults
}
