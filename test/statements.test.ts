import t from 'tap'
import { callerOnly } from '../src/auth/authenticate.js'
import { readTokenRecord } from '../src/auth/token-record.js'
import { RELATIONS } from '../src/persona/fields.js'
import { readPastSnapshot } from '../src/persona/past.js'
import { callerAndPersona } from '../src/persona/state.js'
import * as persona from '../src/persona/statements.js'
import { personaPages } from '../src/persona/statements.js'
import { callerAndTool } from '../src/tool/snapshot.js'
import * as tool from '../src/tool/statements.js'
import { readPastTool, toolPages } from '../src/tool/statements.js'
import { pastStatements } from '../src/updates/past.js'
import { lockStatements } from '../src/updates/write.js'
import { matchesGolden } from './golden.js'

const relations = RELATIONS.map(([name]) => name)

/** The statements that requests run, with the writing ones in their smallest and their largest shape. */
const STATEMENTS = [
  callerOnly,
  callerAndPersona,
  callerAndTool,
  readTokenRecord,
  lockStatements.persona,
  persona.readState,
  persona.readReferences,
  persona.readSnapshot,
  persona.readVersion,
  persona.writeStatement('none'),
  persona.writeStatement('all'),
  persona.writeStatement('none', true),
  pastStatements.persona,
  readPastSnapshot,
  readPastTool,
  lockStatements.tool,
  tool.readState,
  tool.readOauthConfig,
  tool.readTool,
  tool.readVersion,
  tool.writeStatement({ definition: false, headers: false, minimal: false }),
  tool.writeStatement({ definition: 'single', headers: true, minimal: false }),
  tool.writeStatement({ definition: 'shared', headers: false, minimal: true }),
  tool.writeStatement({ definition: false, headers: false, minimal: true }),
  ...Object.values(personaPages),
  ...Object.values(toolPages),
]

t.test('whatever lists updates change, few statements write them: each connection has names for 200', async t => {
  const sets = Array.from({ length: 2 ** relations.length }, (_, bits) => {
    return relations.filter((_, at) => (bits & (1 << at)) !== 0)
  })
  t.equal(sets.length, 64)
  const written = sets.map(set => persona.writtenRelations(set))
  for (const [at, set] of sets.entries()) {
    const inStatement = persona.relationsOf(written[at] ?? 'none')
    t.ok(set.every(relation => inStatement.includes(relation)))
  }
  const texts = written.flatMap(relations =>
    [false, true].map(minimal => persona.writeStatement(relations, minimal).sql),
  )
  t.equal(new Set(texts).size, 16)
})

t.test('the SQL of the request paths is the checked-in one', async t => {
  const text = STATEMENTS.map(({ name, sql }) => `-- ${name}\n${sql.trim().replaceAll(/[ \t]+$/gm, '')};\n`).join('\n')
  matchesGolden(t, 'test/golden/statements.sql', text)
})
