/* What every client is tried with; run.ts starts the services and hands their addresses and tokens over. */

declare const process: { argv: string[]; exitCode?: number }

export interface Target {
  /** The service over the demo organisation, and one whose database cannot be reached. */
  base: string
  unreachable: string
  tokens: { admin: string; reader: string; careful: string; runtime: string }
}

export const target = JSON.parse(process.argv[2] ?? '') as Target

/** The twelve required fields: agent 3 of the demo organisation, which is a default agent, as it is. */
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

/** The record in an answer whose type has proposals too: those come only where one is asked for. */
export function recordOf<Answer>(data: Answer) {
  const isRecord = typeof data === 'object' && data !== null && 'name' in data
  return isRecord ? (data as Extract<Answer, { name: string }>) : undefined
}

export const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })
