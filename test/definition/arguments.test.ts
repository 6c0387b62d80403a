import t from 'tap'
import { checkDefinition, definitionChanges, type FunctionView, toFunctions } from '../../src/definition/index.js'
import { TASKS } from '../../src/tool/worker/tasks.js'
import { MADE, VENDORS } from './made.js'

const documents = [...MADE, ...VENDORS].flatMap(({ name, definition }) =>
  checkDefinition(definition).ok ? [{ name, definition: definition as Record<string, unknown> }] : [],
)

/** Returns all arguments of the functions, and the names of those in a header or cookie. */
function argumentsOf(functions: readonly FunctionView[]) {
  const all = functions.flatMap(view => view.arguments.map(each => ({ ...each, of: view.operationId })))
  return {
    all: all.map(each => `${each.of} ${each.argument}`),
    headers: all.filter(each => each.in === 'header' || each.in === 'cookie').map(each => String(each.name)),
  }
}

t.test('validation, the update, apply, the functions and impact agree on the arguments', async t => {
  let supplied = 0
  for (const { name, definition } of documents) {
    const without = argumentsOf(toFunctions(definition))
    const first = without.headers.slice(0, 1).map(each => each.toUpperCase())
    for (const headerNames of [[], first, ['Cookie', ...without.headers]]) {
      const { all, headers } = argumentsOf(toFunctions(definition, { headerNames }))
      if (headerNames[0] === 'Cookie') t.strictSame(headers, [], `${name}: the headers supply all`)
      const query = { report: 'full' } as const
      const validated = TASKS.validate_tool.run({ definition }, { query, use: { ids: [], others: 0 }, headerNames })
      const { warnings } = JSON.parse(Buffer.from(validated.answer).toString()) as { warnings: unknown[] }
      const updated = TASKS.update_custom_tool.run({ definition }, { storedHeaders: headerNames })
      const noted = Number(/has (\d+) warning/.exec(updated.notes.join())?.[1] ?? 0)
      t.equal(noted, warnings.length, `${name}: as many warnings`)
      const changes = definitionChanges(definition, definition, { headerNames, headerNamesBefore: [] })
      const removed = changes.filter(({ kind }) => kind === 'argument_removed')
      const gone = removed.map(({ operation, argument }) => `${operation} ${argument}`)
      t.strictSame(gone.sort(), without.all.filter(each => !all.includes(each)).sort(), `${name}: impact`)
      t.equal(changes.length, gone.length)
      supplied += gone.length
    }
  }
  t.ok(supplied > 50, `${supplied} arguments were supplied by headers`)
})
