import { InvalidRequest } from '../../../errors.js'
import { type CheckOptions, DEFAULT_AT } from '../check/check.js'
import type { Finding } from '../check/findings.js'
import { FUNCTIONS_STILL_CHOSEN, FUNCTIONS_WELL_CHOSEN, PROVIDERS, type Target } from './providers.js'
import { checkForTarget, type TargetCheck } from './report.js'

/** A tool of an agent, as much as its functions need. */
export interface AgentTool {
  id: number
  name: string
  /** Null for a tool that has none, such as a built-in one: it counts as one function. */
  definition: unknown
  headerNames?: readonly string[]
}

export interface AgentToolReport {
  id: number
  name: string
  functions: number
  tokens: number
  /** Why the tool's functions could not be made; its stored definition does not pass the check of now. */
  refused?: string
  warnings: Finding[]
}

export interface AgentReport {
  target: Target
  as_of: string
  /** False if the provider refuses a request with these functions, or a tool's own definition is refused. */
  ok: boolean
  functions: number
  /** An estimate of what all functions cost in every request that offers them. */
  tokens: number
  tools: AgentToolReport[]
  /** What only all tools together show. */
  warnings: { type: string; msg: string }[]
}

/** What a model makes of all tools of an agent: the functions and tokens together, names that collide, and what each tool warns of. */
export async function checkAgentTools(
  tools: readonly AgentTool[],
  target: Target,
  options: CheckOptions = {},
): Promise<AgentReport> {
  const report: AgentReport = {
    target,
    as_of: PROVIDERS[target].asOf,
    ok: true,
    functions: 0,
    tokens: 0,
    tools: [],
    warnings: [],
  }
  const owners = new Map<string, string>()
  for (const tool of tools) {
    if (tool.definition === null || tool.definition === undefined) {
      report.functions++
      report.tools.push({ id: tool.id, name: tool.name, functions: 1, tokens: 0, warnings: [] })
      continue
    }
    const at = options.at ?? DEFAULT_AT
    const headers = tool.headerNames === undefined ? {} : { headerNames: tool.headerNames }
    const { check, report: own } = await checkOf(tool.definition, target, { ...options, ...headers, at })
    if (!check.ok || own === undefined) {
      const refused = check.ok ? '' : (check.faults[0]?.msg ?? '')
      report.ok = false
      report.tools.push({ id: tool.id, name: tool.name, functions: 0, tokens: 0, refused, warnings: check.warnings })
      continue
    }
    report.functions += own.functions.length
    report.tokens += own.tokens
    for (const { name } of own.functions) {
      const owner = owners.get(name)
      if (owner === undefined) owners.set(name, tool.name)
      else warnOfName(report, name, [owner, tool.name])
    }
    const { length } = own.functions
    report.tools.push({ id: tool.id, name: tool.name, functions: length, tokens: own.tokens, warnings: check.warnings })
  }
  warnOfNumber(report)
  return report
}

/** One tool's check; that its functions would hold too much, which is thrown where they are made, is a fault of it as others are. */
async function checkOf(definition: unknown, target: Target, options: CheckOptions): Promise<TargetCheck> {
  try {
    return checkForTarget(definition, target, options)
  } catch (error) {
    if (!(error instanceof InvalidRequest)) throw error
    return { check: { ok: false, faults: error.faults, warnings: [] } }
  }
}

function warnOfName(report: AgentReport, name: string, owners: [string, string]): void {
  const [first, second] = owners.map(each => JSON.stringify(each))
  const both = `the tools ${first} and ${second} both have a function ${JSON.stringify(name)}`
  if (PROVIDERS[report.target].refusesSameNames) {
    report.ok = false
    report.warnings.push({ type: 'agent_names_refused', msg: `${both}: ${report.target} refuses the request` })
  } else report.warnings.push({ type: 'agent_functions_collide', msg: both })
}

function warnOfNumber(report: AgentReport): void {
  const most = PROVIDERS[report.target].functions
  const { functions, target } = report
  if (most !== undefined && functions > most) {
    const msg = `${target} takes at most ${most} functions in a request, the agent has ${functions}`
    report.ok = false
    report.warnings.push({ type: 'agent_functions_refused', msg })
  } else if (functions > FUNCTIONS_WELL_CHOSEN) {
    const how = functions > FUNCTIONS_STILL_CHOSEN ? 'clearly worse' : 'worse'
    const msg = `a model chooses ${how} among ${functions} functions than among ${FUNCTIONS_WELL_CHOSEN}`
    report.warnings.push({ type: 'agent_functions_many', msg })
  }
}
