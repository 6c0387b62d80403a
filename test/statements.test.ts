import { format } from 'sql-formatter'
import t from 'tap'
import { RELATIONS } from '../src/persona/fields.js'
import * as persona from '../src/persona/statements.js'
import * as tool from '../src/tool/statements.js'
import { matchesGolden } from './golden.js'

const relations = RELATIONS.map(([name]) => name)

/** For a person who reviews the file. */
const FORMAT = { language: 'postgresql', keywordCase: 'lower', expressionWidth: 110 } as const

/** Statements that write, in their largest and their smallest shape. */
const STATEMENTS = [
  persona.writeStatement('all'),
  persona.writeStatement('none', true),
  tool.writeStatement({ definition: 'single', headers: true, minimal: false }),
  tool.writeStatement({ definition: 'shared', headers: false, minimal: true }),
  tool.writeStatement({ definition: false, headers: false, minimal: true }),
]

t.test('whatever lists updates change, few statements write them: each costs memory on every connection', async t => {
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

t.test('the SQL of the writing statements is the checked-in one', async t => {
  const texts = STATEMENTS.map(({ name, sql }) => `-- ${name}\n${format(sql, FORMAT)};\n`)
  matchesGolden(t, 'test/golden/statements.sql', texts.join('\n'))
})
