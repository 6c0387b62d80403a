import type { FastifyRequest } from 'fastify'
import t from 'tap'
import { asksForDryRun } from '../../src/http/address.js'
import { running } from './running.js'

t.test('a dry run is one whose decoded query says so', async t => {
  const isDry = (originalUrl: string) => asksForDryRun({ originalUrl } as FastifyRequest)
  for (const query of ['dry_run=true', 'dry%5Frun=true', 'a=b&dry_run=%74rue', 'update_mask=&dry%5frun=true'])
    t.ok(isDry(`/persona/1?${query}`), query)
  for (const query of ['', '?', '?dry_run=false', '?x=dry_run=true', '?dry_run=true&dry_run=true'])
    t.notOk(isDry(`/persona/1${query}`), query)
})

t.test('an empty Content-Type is one that is absent, and an address without an id is 404', async t => {
  const { app, token } = await running(t)
  const send = async (url: string, headers: Record<string, string>) => {
    const all = { authorization: `Bearer ${token}`, ...headers }
    return (await app.inject({ method: 'PATCH', url, headers: all, payload: '{}' })).statusCode
  }
  const url = '/persona/999999?dry_run=true&update_mask='
  t.equal(await send(url, { 'content-type': '' }), 404, 'read as JSON: the agent is not there')
  t.equal(await send(url, { 'content-type': 'application/merge-patch+json' }), 404)
  t.equal(await send(url, { 'content-type': 'text/plain' }), 415)
  t.equal(await send('/persona/', { 'content-type': 'application/json' }), 404)
  t.equal(await send('/persona/?update_mask=', { 'content-type': 'application/json' }), 404)
})

t.test('the servers of the document are relative to it', async t => {
  const { app } = await running(t)
  t.strictSame((await app.inject('/openapi.json')).json().servers, [{ url: '.' }])
})
