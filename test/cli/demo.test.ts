import t from 'tap'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { demoOrganisation, loadDemo } from '../../src/admin/demo.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { openVault } from '../../src/secrets/vault.js'
import { testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS } from '../world.js'

t.test('the demo organisation loads into an empty database, and again with nothing to do', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  await migrate(database)
  const vault = await openVault(database.db, parseKeyRing(TEST_SECRET_KEYS))
  const demo = await loadDemo(database, vault)
  t.match(demo, /^pat_/)
  t.equal(await loadDemo(database, vault), null, 'what is there stays')
  const counts = countOutcomes(await applyOrganisation(database, demoOrganisation(), { vault, env: {}, prune: true }))
  t.match(counts, { created: 0, changed: 0, removed: 0 })
})
