import { inspect } from 'node:util'
import t from 'tap'
import { type DatabaseUrl, describeDatabase, parseDatabaseUrl } from '../../src/db/connection/database-url.js'

t.test('one host with everything', async t => {
  const url = read(
    'postgresql://al%40ice:p%3Aw%2F1@db.example.com:6432/agents?sslmode=verify-full&sslrootcert=%2Fca.pem&application_name=a%20b&connect_timeout=3',
  )
  t.strictSame(
    { ...url, password: url.password },
    {
      hosts: [{ host: 'db.example.com', port: 6432 }],
      user: 'al@ice',
      password: 'p:w/1',
      database: 'agents',
      targetSessionAttrs: 'any',
      ssl: { mode: 'verify-full', rootCertFile: '/ca.pem' },
      applicationName: 'a b',
      connectTimeoutMs: 3_000,
    },
  )
})

t.test('hosts: several, with and without ports, IPv6, Unix sockets, in the authority or as parameters', async t => {
  const cases: [string, DatabaseUrl['hosts']][] = [
    ['postgres://a', [{ host: 'a', port: 5432 }]],
    [
      'postgresql://u@a:1,b,[::1]:3/db',
      [
        { host: 'a', port: 1 },
        { host: 'b', port: 5432 },
        { host: '::1', port: 3 },
      ],
    ],
    ['postgresql:///db?host=/run/pg', [{ host: '/run/pg', port: 5432 }]],
    ['postgresql:///db?host=%2Frun%2Fpg&port=5433', [{ host: '/run/pg', port: 5433 }]],
    ['postgresql://u@%2Frun%2Fpg/db', [{ host: '/run/pg', port: 5432 }]],
    [
      'postgresql:///db?host=a,b&port=1,2',
      [
        { host: 'a', port: 1 },
        { host: 'b', port: 2 },
      ],
    ],
    [
      'postgresql:///db?host=a,b&port=7',
      [
        { host: 'a', port: 7 },
        { host: 'b', port: 7 },
      ],
    ],
  ]
  for (const [text, hosts] of cases) t.strictSame(read(text).hosts, hosts, text)
})

t.test('with several hosts only one that accepts writes will do, unless the URL says any', async t => {
  t.equal(read('postgresql://a/db').targetSessionAttrs, 'any')
  t.equal(read('postgresql://a,b/db').targetSessionAttrs, 'read-write')
  t.equal(read('postgresql://a,b/db?target_session_attrs=any').targetSessionAttrs, 'any')
  t.equal(read('postgresql://a/db?target_session_attrs=read-write').targetSessionAttrs, 'read-write')
})

t.test('encryption: the modes of libpq that keep their word', async t => {
  t.strictSame(read('postgresql://a/db').ssl, { mode: 'disable' })
  t.strictSame(read('postgresql://a/db?sslmode=require').ssl, { mode: 'require' })
  t.strictSame(read('postgresql://a/db?sslmode=no-verify').ssl, { mode: 'require' })
  t.strictSame(read('postgresql://a/db?sslmode=require&sslrootcert=/c').ssl, { mode: 'verify-ca', rootCertFile: '/c' })
  for (const mode of ['allow', 'prefer', 'yes']) t.equal(faults(`postgresql://a/db?sslmode=${mode}`).length, 1)
  t.equal(faults('postgresql://a/db?sslrootcert=/c').length, 1)
  t.equal(faults('postgresql://a/db?sslmode=require&sslcert=/c').length, 1)
})

t.test('user, password and database may stand in the parameters; given twice they are a fault', async t => {
  const url = read('postgresql://a?user=u&password=p&dbname=d')
  t.strictSame([url.user, url.password, url.database], ['u', 'p', 'd'])
  t.strictSame(faults('postgresql://u@a/d?user=v&dbname=e'), ['user is given twice', 'dbname is given twice'])
})

t.test('hosts in the authority with one port for all, as libpq reads it', async t => {
  t.strictSame(read('postgresql://u@a,b/db?port=5433').hosts, [
    { host: 'a', port: 5433 },
    { host: 'b', port: 5433 },
  ])
  t.strictSame(faults('postgresql://u@a:1,b/db?port=5433'), ['port is given twice'])
  t.strictSame(faults('postgresql://u@a/db?host=b'), ['host is given twice'])
})

t.test('a list of key=value, as libpq reads it', async t => {
  const url = read(
    String.raw`host=a,b port=1,2 dbname = 'my db' user=al\ ice password='it\'s \\ secret' connect_timeout=3`,
  )
  t.strictSame(
    { ...url, password: url.password },
    {
      hosts: [
        { host: 'a', port: 1 },
        { host: 'b', port: 2 },
      ],
      user: 'al ice',
      password: String.raw`it's \ secret`,
      database: 'my db',
      targetSessionAttrs: 'read-write',
      ssl: { mode: 'disable' },
      connectTimeoutMs: 3_000,
    },
  )
  t.strictSame(read('host=/run/postgresql dbname=d').hosts, [{ host: '/run/postgresql', port: 5432 }])
  t.strictSame(faults('host=a foo=1').length, 1)
  for (const text of ['host', "host='a", 'host=a nonsense', 'a b=c', '']) t.equal(faults(text).length, 1, text)
})

t.test('what operators write is taken', async t => {
  const taken: [string, Partial<DatabaseUrl>][] = [
    ['target_session_attrs=primary', { targetSessionAttrs: 'read-write' }],
    ['target_session_attrs=read-write', { targetSessionAttrs: 'read-write' }],
    ['keepalives=1&keepalives_idle=30', { keepAliveIdleMs: 30_000 }],
    ['keepalives=0', { keepAliveIdleMs: null }],
    ['options=-c%20search_path%3Dagents', { options: '-c search_path=agents' }],
  ]
  for (const [query, expected] of taken) t.match(read(`postgresql://a/db?${query}`), expected, query)
})

t.test('what is not supported is refused with what to write instead', async t => {
  const refused: [string, RegExp][] = [
    ['target_session_attrs=standby', /any, primary or read-write/],
    ['target_session_attrs=prefer-standby', /any, primary or read-write/],
    ['sslmode=prefer', /write disable or require$/],
    ['sslmode=allow', /write disable or require$/],
    ['tcp_user_timeout=5000', /STATEMENT_TIMEOUT_MS/],
    ['keepalives_interval=5', /leave it out/],
    ['keepalives_count=5', /leave it out/],
    ['hostaddr=10.0.0.1', /write the address as host$/],
    ['channel_binding=require', /sslmode=verify-full/],
    ['ssl=true', /write sslmode=require/],
    ['pgbouncer=true', /PREPARED_STATEMENTS=off$/],
    ['schema=agents', /search_path/],
    ['client_encoding=utf8', /leave it out/],
    ['passfile=x', /DATABASE_URL_FILE/],
    ['constructor=x', /^the parameter constructor is not supported; these are: host, port/],
  ]
  for (const [query, sentence] of refused) {
    const found = faults(`postgresql://a/db?${query}`)
    t.equal(found.length, 1, query)
    t.match(found[0], sentence, query)
  }
})

t.test('every fault is reported at once', async t => {
  t.strictSame(
    faults(
      'postgresql://u@a:x,:5,b:70000/d%zz?sslmode=prefer&target_session_attrs=standby&foo=1&connect_timeout=soon',
    ).map(fault => fault.slice(0, 40)),
    [
      'dbname holds a percent sign that starts ',
      'the parameter foo is not supported; thes',
      'the port of host 1 is not a number from ',
      'host 2 is empty',
      'the port of host 3 is not a number from ',
      'target_session_attrs must be any, primar',
      'sslmode=prefer is not supported, as it m',
      'connect_timeout must be a number of seco',
    ],
  )
  t.strictSame(faults('mysql://a/b'), ['it does not start with postgresql:// and is not a list of key=value'])
  t.equal(faults('postgresql:///db').length, 1)
})

t.test('no part of the password is in a fault, a description, printed or in JSON, however it was written', async t => {
  const texts = [
    'postgresql://u:hunter2@a,b/db',
    'postgresql://u:hunter2@a:x/db?foo=1',
    'postgresql://u:hunter2',
    'postgresql://u:hunter2/db',
    'postgresql://u:x?hunter2=y@a/db',
    'postgresql://u:x/hunter2@a/db',
    'postgresql://u:x@hunter2@a:p/db',
    'postgresql://u:%zzhunter2@a/db',
    'postgresql://a?password=hunter2&sslmode=x',
    'postgresql://u:p#hunter2@a:x/db',
    'hunter2',
    'password=hunter2',
    'host=a password=hunter2 foo=1',
    "host=a password='hunter2",
    'host=a password=x hunter2',
  ]
  for (const text of texts) {
    const parsed = parseDatabaseUrl(text)
    t.notMatch(inspect(parsed, { depth: 9 }) + JSON.stringify(parsed), /hunter2/, text)
    if (parsed.ok) t.notMatch(describeDatabase(parsed.url), /hunter2/, text)
  }
})

t.test('the description names the place', async t => {
  t.equal(
    describeDatabase(read('postgresql://u:p@a:1,[::1]/db?sslmode=require')),
    'postgresql://u@a:1,[::1]:5432/db (sslmode=require, target_session_attrs=read-write)',
  )
  t.equal(
    describeDatabase(read('postgresql:///db?host=/run/pg')),
    'postgresql:///run/pg:5432/db (sslmode=disable, target_session_attrs=any)',
  )
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

t.test('a new line behind it, as a secret made with echo has, is not part of the database', async t => {
  t.equal(read('postgresql://a/agents\n').database, 'agents')
})
