/** A place in a request: `body`, `path`, `query` or `header`, then property names and array indexes. */
export type Loc = (string | number)[]

/** One fault of a request, in the words of the 422 answer. `type` and `msg` use pydantic v2's vocabulary. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
}

/** The request breaks a rule of its own content. Carries every fault of the stage that found it. */
export class InvalidRequest extends Error {
  constructor(readonly faults: Fault[]) {
    super('the request is invalid')
  }
}
