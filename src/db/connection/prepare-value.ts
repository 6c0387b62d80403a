import pg from 'pg'

/**
 * pg's own conversion of a value to what is sent for a parameter, so that it means the same in a single query, a pipeline and a
 * list. Not declared in its types.
 */
export const { prepareValue } = (pg as unknown as { utils: { prepareValue(value: unknown): string | Buffer | null } })
  .utils
