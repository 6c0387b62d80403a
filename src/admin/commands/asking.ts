import { type Call, EXIT } from './command.js'

/**
 * Deletes something after its plan was shown and a person said yes (`--yes`), or only shows the plan (`--plan`).
 * `what` names it: `agent 7 Support`; `words` are for what is not quite a deletion.
 */
export async function deleteAsked(
  call: Call,
  what: string,
  plan: { goes: object; lines: readonly string[] },
  remove: () => Promise<unknown>,
  words = { ask: 'Delete', done: 'deleted' },
): Promise<number> {
  if (!call.json) for (const line of plan.lines) call.print(line)
  if (call.flag('plan')) {
    call.answer(plan.goes, () => undefined)
    return EXIT.planned
  }
  if (!(await call.confirmed(`${words.ask} ${what}?`))) {
    call.remark(`nothing was ${words.done}`)
    return EXIT.refused
  }
  await remove()
  call.answer(plan.goes, `${words.done} ${what}`)
  return EXIT.ok
}
