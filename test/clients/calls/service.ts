/* The parts that the calls of all clients share. `run.ts` starts the services and passes their addresses and tokens. */

declare const process: { argv: string[]; exitCode?: number }

export interface Target {
  /** `base` is the address of a service with the demo organisation, `unreachable` of a service without a reachable database. */
  base: string
  unreachable: string
  tokens: { admin: string; reader: string; careful: string; runtime: string }
}

export const target = JSON.parse(process.argv[2] ?? '') as Target

/** An update with the twelve required fields that changes nothing in agent 3 of the demo organisation. */
export const WHOLE = {
  name: 'Welcome',
  description: 'Answers the first questions of a new reader.',
  document_set_ids: [],
  num_chunks: 10,
  is_public: true,
  recency_bias: 'auto',
  llm_filter_extraction: true,
  llm_relevance_filter: false,
  tool_ids: [],
  system_prompt: 'You welcome readers and answer in two sentences.',
  task_prompt: '',
  datetime_aware: true,
} as const

export function check(holds: boolean, what: string): void {
  console.log(`${holds ? 'ok    ' : 'NOT OK'}  ${what}`)
  if (!holds) process.exitCode = 1
}

/** Returns the answer if it is a record; undefined if it is a proposal. */
export function recordOf<Answer>(data: Answer) {
  const isRecord = typeof data === 'object' && data !== null && 'name' in data
  return isRecord ? (data as Extract<Answer, { name: string }>) : undefined
}

export const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })
