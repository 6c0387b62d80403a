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

t.test('every fault is reported at once', async t => {
  t.strictSame(
    faults(
      'postgresql://u@a:x,:5,b:70000/d%zz?sslmode=prefer&target_session_attrs=standby&foo=1&connect_timeout=soon',
    ).map(fault => fault.slice(0, 40)),
    [
      'dbname holds a percent sign that starts ',
      'the parameter foo is not supported; thes',
      'the port of host 1 is no number from 1 t',
      'host 2 is no host',
      'the port of host 3 is no number from 1 t',
      'target_session_attrs must be any or read',
      'sslmode=prefer is not supported, as it m',
      'connect_timeout must be a number of seco',
    ],
  )
  t.strictSame(faults('mysql://a/b'), ['it does not start with postgresql://'])
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
