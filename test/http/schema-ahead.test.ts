import { sql } from 'kysely'
import t from 'tap'
import { type Running, running } from './running.js'

t.test('503 schema_ahead: a schema that moves on under a running process is not written by it any more', async t => {
  const service = await running(t)
  t.match(await rename(service, 'Before'), { status: 200, etag: /./ })
  const before = await agentRow(service)

  await declare(service, '99.0.0')
  for (const answer of [await rename(service, 'Too old'), await rename(service, 'Again')]) {
    t.match(answer, {
      status: 503,
      body: { reason: 'schema_ahead', outcome: 'not_applied', detail: /version 99\.0\.0 of this program: update it/ },
    })
  }
  t.match(await validate(service), { status: 503, body: { reason: 'schema_ahead' } })
  t.strictSame(await agentRow(service), before, 'nothing was written')
  t.match(service.log.join(''), /"reason":"schema_ahead".*the schema has changed while this process runs/)

  await sql`delete from schema_requirement where migration = '9999_later'`.execute(service.database.db)
  t.match(await rename(service, 'Without it'), { status: 200 })
  await declare(service, '0.0.1')
  t.match(await rename(service, 'With one that this program can live with'), { status: 200 })
  t.match(await validate(service), { status: 200 })
})

async function declare({ database }: Running, oldestProgram: string): Promise<void> {
  await sql`insert into schema_requirement values ('9999_later', ${oldestProgram})`.execute(database.db)
}

async function agentRow({ database }: Running) {
  return await database.db.selectFrom('persona').select(['name', 'version']).where('id', '=', 1).executeTakeFirst()
}

async function rename({ app, token }: Running, name: string) {
  const answer = await app.inject({
    method: 'PATCH',
    url: '/persona/1?update_mask=name',
    headers: { authorization: `Bearer ${token}` },
    payload: { name },
  })
  return { status: answer.statusCode, etag: answer.headers.etag, body: answer.json() }
}

async function validate({ app, token }: Running) {
  const answer = await app.inject({
    method: 'POST',
    url: '/admin/tool/custom/validate',
    headers: { authorization: `Bearer ${token}` },
    payload: {
      definition: {
        openapi: '3.1.0',
        info: { title: 'Maps' },
        servers: [{ url: 'https://maps.example.com' }],
        paths: { '/route': { get: { operationId: 'get_route', summary: 'Route' } } },
      },
    },
  })
  return { status: answer.statusCode, body: answer.json() }
}
