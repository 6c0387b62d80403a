import { type Call, EXIT } from './command.js'

/**
 * Deletes something after its plan was shown and a person said yes (`--yes`), or only shows the plan (`--plan`).
 * `what` names it: `agent 7 Support`.
 */
export async function deleteAsked(
  call: Call,
  what: string,
  plan: { goes: object; lines: readonly string[] },
  remove: () => Promise<unknown>,
): Promise<number | undefined> {
  if (!call.json) for (const line of plan.lines) call.print(line)
  if (call.flag('plan')) {
    if (call.json) call.printJson(plan.goes)
    return EXIT.planned
  }
  if (!(await call.confirmed(`Delete ${what}?`))) {
    call.remark('nothing was deleted')
    return EXIT.refused
  }
  await remove()
  if (call.json) call.printJson(plan.goes)
  else call.print(`deleted ${what}`)
  return undefined
}
