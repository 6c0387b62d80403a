import t from 'tap'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { worldDatabase } from '../world.js'

const { database, vault } = await worldDatabase(t)
const options = { vault, env: {} }

t.test('files whose ids UTF-16 and UTF-8 order differently: applied again, nothing changes', async t => {
  const files = ['\uFFFDa', '\u{1F600}'].map(id => ({ id, name: id, owner: 'alice@example.com' }))
  const agents = [{ id: 11, name: 'Full', user_files: files.map(file => file.id) }]
  const document = { version: 1, user_files: files, agents }
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 1)
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})
