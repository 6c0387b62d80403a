import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { worldApp } from '../app.js'
import { hashOfEverything } from '../updates/stored-state.js'

/*
 * The requests of Onyx's clients and the parts of the answers that the clients read, recorded from the clients' sources with our values. `{agent}`
 * and `{tool}` are ids of records that an earlier step created. In a list, clients read only one record.
 */

interface Step {
  call: string
  method: string
  path: string
  body?: unknown
  status: number
  reads?: object
  keep?: 'agent' | 'tool'
}

type Steps<Phase extends string> = Record<Phase, Step[]>

const vectors = <Content>(name: string): Content =>
  JSON.parse(readFileSync(new URL(`../../../test/fixtures/today/${name}.json`, import.meta.url), 'utf8')) // files of this repository

/** Returns an organisation and a function that plays steps as an administrator, with both authorization headers of Onyx's clients. */
async function player() {
  const world = await worldApp(t)
  const authorization = `Bearer ${await world.token('admin@example.com')}`
  const headers = { authorization, 'x-onyx-authorization': authorization }
  const ids = new Map<string, number>()
  const filled = (value: unknown): string =>
    [...ids].reduce(
      (text, [name, id]) =>
        text
          .replaceAll(`:"{${name}}"`, `:${id}`)
          .replaceAll(`["{${name}}"]`, `[${id}]`)
          .replaceAll(`{${name}}`, `${id}`),
      JSON.stringify(value),
    )
  const play = async (t: Test, steps: readonly Step[]) => {
    const answers: unknown[] = []
    for (const { call, method, path, body, status, reads, keep } of steps) {
      const sent = { headers, ...(body !== undefined && { body: filled(body) }) }
      const answer = await world.call(method, `/api${JSON.parse(filled(path))}`, sent)
      t.equal(answer.statusCode, status, `${call} ${answer.body.slice(0, 300)}`)
      const shown = answer.body === '' ? undefined : answer.json()
      if (keep !== undefined) ids.set(keep, shown.id)
      if (reads !== undefined) readAs(t, shown, JSON.parse(filled(reads)), call)
      answers.push(shown)
    }
    return answers
  }
  return { ...world, play }
}

function readAs(t: Test, shown: unknown, reads: object, call: string): void {
  if (!Array.isArray(reads)) return void t.match(shown, reads, call)
  for (const wanted of reads)
    t.match(
      (shown as { id: number }[]).find(({ id }) => id === wanted.id),
      wanted,
      call,
    )
}

t.test('Terraform: a second apply changes nothing, and what is destroyed is gone', async t => {
  const { create, refresh, apply, change, destroy, gone } =
    vectors<Steps<'create' | 'refresh' | 'apply' | 'change' | 'destroy' | 'gone'>>('terraform')
  const { play, database } = await player()
  for (const _ of ['once', 'again']) {
    await play(t, create)
    const first = await play(t, refresh)
    const stored = await hashOfEverything(database.db)
    await play(t, apply)
    t.strictSame(await play(t, refresh), first)
    t.strictSame(await hashOfEverything(database.db), stored, 'the second apply stored nothing')
    await play(t, change)
    await play(t, [...destroy, ...gone])
  }
  t.strictSame((await verifyAudit(database.db)).findings, [])
})

for (const client of ['browser', 'web', 'integration'])
  t.test(`${client}: each call is answered with what the client reads`, async t => {
    const { play, database } = await player()
    await play(t, vectors<Step[]>(client))
    t.strictSame((await verifyAudit(database.db)).findings, [])
  })
