import t from 'tap'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { demoOrganisation, loadDemo } from '../../src/admin/demo.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS } from '../world.js'

t.test('the demo organisation loads into an empty database, and again with nothing to do', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  await migrate(database)
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const demo = await loadDemo(database, ring)
  t.match(demo, /^pat_/)
  t.equal(await loadDemo(database, ring), null, 'what is there stays')
  const counts = countOutcomes(await applyOrganisation(database, demoOrganisation(), { ring, env: {}, prune: true }))
  t.match(counts, { created: 0, changed: 0, removed: 0 })
})
