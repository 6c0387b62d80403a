import { join } from 'node:path'
import t from 'tap'
import { type DatabaseAddress, parseDatabaseUrl } from '../../src/db/connection/database-url.js'

t.test('one host with everything', async t => {
  const text =
    'postgresql://al%40ice:p%3Aw%2F1@db.example.com:6432/agents?sslmode=verify-full&sslrootcert=system&application_name=a%20b&options=-c%20search_path%3Dagents'
  t.match(read(`${text}\n`), {
    host: 'db.example.com',
    port: 6432,
    user: 'al@ice',
    password: 'p:w/1',
    database: 'agents',
    ssl: {},
    application_name: 'a b',
    options: '-c search_path=agents',
    enableChannelBinding: false,
  })
})

t.test(
  'the host: a name, IPv6, a Unix socket, in the authority or as a parameter; the description names it',
  async t => {
    const cases: [string, string, number][] = [
      ['postgres://a', 'a', 5432],
      ['postgresql://u@[::1]:3/db', '::1', 3],
      ['postgresql:///db?host=/run/pg', '/run/pg', 5432],
      ['postgresql:///db?host=%2Frun%2Fpg&port=5433', '/run/pg', 5433],
      ['postgresql://u@%2Frun%2Fpg/db', '/run/pg', 5432],
    ]
    for (const [text, host, port] of cases) t.match(read(text), { host, port }, text)
    t.equal(
      addressOf('postgresql://u:p@[::1]:1/db?sslmode=require').description,
      'postgresql://u@[::1]:1/db (sslmode=require)',
    )
    t.equal(addressOf('postgresql:///db?host=/run/pg').description, 'postgresql:///run/pg:5432/db (sslmode=disable)')
    t.match(read('postgresql://a/d?user=u&password=p'), { user: 'u', password: 'p', database: 'd' })
  },
)

t.test('encryption: the modes of libpq that keep their word', async t => {
  const ca = join(t.testdir({ 'ca.pem': 'a certificate' }), 'ca.pem')
  const withCa = (mode: string) => read(`postgresql://a/db?sslmode=${mode}&sslrootcert=${ca}`).ssl
  t.equal(read('postgresql://a/db').ssl, false)
  t.match(read('postgresql://a/db?sslmode=require').ssl, { rejectUnauthorized: false })
  for (const mode of ['require', 'verify-ca'])
    t.match(withCa(mode), { ca: 'a certificate', checkServerIdentity: Function })
  const full = withCa('verify-full')
  t.strictSame({ ...(full as object) }, { ca: 'a certificate' }, 'the name is checked')
  t.match(faults('postgresql://a/db?sslmode=verify-full&sslrootcert=/none'), [
    /^a certificate or key cannot be read: ENOENT/,
  ])
  t.strictSame(faults('postgresql://a/db?sslmode=verify-ca'), ['sslmode=verify-ca needs sslrootcert'])
  for (const mode of ['allow', 'prefer', 'yes']) t.equal(faults(`postgresql://a/db?sslmode=${mode}`).length, 1)
  t.equal(faults('postgresql://a/db?sslrootcert=/c').length, 1)
})

t.test('channel_binding, as services hand it out, is taken where the connection is encrypted', async t => {
  t.equal(read('postgresql://u:p@a/db?sslmode=require&channel_binding=require').enableChannelBinding, true)
  t.equal(read('postgresql://a/db?channel_binding=disable').enableChannelBinding, false)
  t.match(faults('postgresql://a/db?channel_binding=require'), [/channel_binding=require need TLS/])
  t.match(faults('postgresql://a/db?channel_binding=x'), [/^channel_binding must be disable, prefer or require/])
})

t.test('every fault is reported at once, what is not supported by its name', async t => {
  t.match(faults('postgresql://u@a/d%zz?sslmode=prefer&target_session_attrs=standby&foo=1&user=v'), [
    /^sslmode must be disable/,
    /^target_session_attrs must be any, primary/,
    /^the parameter foo is not supported; use only these parameters: host, port/,
  ])
  t.match(faults('postgresql://a,b/db'), [/^host must be one address/])
  t.match(faults('postgresql:///db'), [/^it has no host/])
  for (const text of ['mysql://a/b', 'postgresql://a:1,b:2/db', 'host=a dbname=b', '']) {
    t.match(faults(text), [/^it is not a URL like postgresql:/], text)
  }
  t.match(parseDatabaseUrl('postgresql://a/db?target_session_attrs=read-write'), { address: { writesOnly: true } })
})

t.test('no part of the password is in a fault, a description or a warning, however it was written', async t => {
  const after = `u:hunter2@a/db u:hunter2@a,b/db u:hunter2@a:x/db?foo=1 u:hunter2 u:hunter2/db u:x?hunter2=y@a/db
    u:1?hunter2=y@a/db u:x/hunter2@a/db u:1/hunter2@a/db u:x@hunter2@a:p/db u:%zzhunter2@a/db
    a?password=hunter2&sslmode=x u:p#hunter2@a:x/db`
  const urls = after.split(/\s+/).map(each => `postgresql://${each}`)
  const texts = [...urls, 'hunter2', 'host=a password=hunter2 foo=1']
  for (const text of texts) {
    const parsed = parseDatabaseUrl(text)
    const said = parsed.ok ? [parsed.address.description, parsed.warnings] : parsed.faults
    t.notMatch(JSON.stringify(said), /hunter2/, text)
  }
})

function addressOf(text: string): DatabaseAddress {
  const parsed = parseDatabaseUrl(text)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  return parsed.address
}

function read(text: string) {
  return addressOf(text).config
}

function faults(text: string): string[] {
  const parsed = parseDatabaseUrl(text)
  return parsed.ok ? [] : parsed.faults
}
