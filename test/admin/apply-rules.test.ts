import t from 'tap'
import { placeholder } from '../../src/admin/apply/placeholders.js'
import { type ApplyOptions, applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import type { Fault } from '../../src/errors.js'
import { worldDatabase } from '../world.js'

const { database, vault } = await worldDatabase(t)
const options = { vault, env: {} }

async function faultsOf(document: unknown, given: ApplyOptions = options): Promise<Fault[]> {
  try {
    await applyOrganisation(database, document, given)
    return []
  } catch (error) {
    if (error instanceof InvalidDocument) return error.faults
    throw error
  }
}

t.test('files whose ids UTF-16 and UTF-8 order differently: applied again, nothing changes', async t => {
  const files = ['\uFFFDa', '\u{1F600}'].map(id => ({ id, name: id, owner: 'alice@example.com' }))
  const agents = [{ id: 11, name: 'Full', user_files: files.map(file => file.id) }]
  const document = { version: 1, user_files: files, agents }
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 1)
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})

t.test('a variable is read only under the prefix AGENTS_, or where an export names it', async t => {
  const env = {
    AGENTS_KEY: 'allowed',
    AGENTS_EMPTY: '',
    OTHER_KEY: 'other',
    SECRET_KEYS: 'the ring',
    TOOL_16_AUTHORIZATION: 'own',
  }
  const found = async (variable: string) => {
    const tools = [{ id: 16, custom_headers: [{ key: 'Authorization', value: placeholder(variable) }] }]
    return (await faultsOf({ version: 1, tools }, { vault, env, plan: true })).map(({ type, msg }) => `${type}: ${msg}`)
  }
  const missing = (name: string) => [
    `variable_missing: the environment gives no ${name}: it must be set, and its name begin with AGENTS_`,
  ]
  t.same(await found('AGENTS_KEY'), [])
  t.match(await found('AGENTS_EMPTY'), [/^variable_missing: the environment gives no AGENTS_EMPTY/])
  t.same(await found('OTHER_KEY'), missing('OTHER_KEY'))
  t.same(await found('SECRET_KEYS'), missing('SECRET_KEYS'))
  t.same(await found('TOOL_16_AUTHORIZATION'), [], 'as an export writes it')
  t.same(await found('TOOL_17_AUTHORIZATION'), missing('TOOL_17_AUTHORIZATION'))
})

t.test('a refused document takes no id, and an id near the end of its sequence is refused', async t => {
  const last = { version: 1, labels: [{ id: 2_147_483_647, name: 'last' }] }
  t.match(await faultsOf(last), [{ loc: ['labels', 0, 'id'], type: 'less_than_equal' }])
  const faulty = {
    version: 1,
    labels: [{ id: 900, name: 'x' }, { name: 'y' }],
    agents: [{ name: 'z', tools: ['none'] }],
  }
  t.match(await faultsOf(faulty), [{ type: 'not_found' }])
  const { outcomes } = await applyOrganisation(database, { version: 1, labels: [{ name: 'next' }] }, options)
  t.equal(outcomes.find(outcome => outcome.name === 'next')?.id, 4)
})

t.test('two applies at once make each row once', async t => {
  const agents = Array.from({ length: 20 }, (_, index) => ({ name: `twin ${index}` }))
  const document = { version: 1, agents }
  const reports = await Promise.all([1, 2, 3, 4].map(() => applyOrganisation(database, document, options)))
  t.equal(
    reports.map(report => countOutcomes(report).created).reduce((sum, count) => sum + count),
    20,
  )
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).unchanged, 20)
})
