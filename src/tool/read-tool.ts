import type { FastifyInstance } from 'fastify'
import { InvalidRequest } from '../errors.js'
import { registerHistory, registerList, registerRead } from '../http/lists.js'
import type { OperationOptions } from '../updates/resource.js'
import { queryChoice } from '../validation/parameters.js'
import { toolResource } from './resource.js'
import { ToolRecord, ToolSummary } from './schema.js'
import { readToolPage } from './statements.js'
import { storedText } from './tool-use.js'
import type { BodyWorkers } from './worker/pool.js'

type ReadToolOptions = OperationOptions & { workers: BodyWorkers }

/** Registers the `GET` of a tool. Only callers who may manage the tool get the masks of its headers. */
export function registerReadTool(app: FastifyInstance, options: ReadToolOptions): void {
  const { database, workers, ...limits } = options
  registerRead(
    app,
    { database, ...limits },
    {
      resource: toolResource,
      record: ToolRecord,
      summary: 'Read Tool',
      description:
        'Returns a tool. `custom_headers` has masked values for callers who may manage the tool, and is `null` for all others. To update ' +
        'the tool, send its `ETag` as `If-Match`. With `version`, returns that version of the tool. With `view=functions`, returns the ' +
        'functions that a model gets and how their arguments are sent, or `faults` if the stored definition is no longer accepted.',
      query: {
        view: queryChoice(
          ['functions'],
          '`functions`: the functions that a model gets, instead of the fields of the tool.',
        ),
      },
      async view({ query, caller, raw }, state) {
        const { view, ...others } = query as { view?: 'functions' }
        if (view === undefined) return undefined
        if ('version' in others) throw new InvalidRequest([PRESENT_ONLY])
        const work = { headerNames: state.headers.map(({ name }) => name) }
        return await workers.run('read_functions', { body: {}, caller, raw }, work, storedText(database, state))
      },
    },
  )
}

const PRESENT_ONLY = {
  loc: ['query', 'view'],
  msg: 'view=functions shows only the current functions: leave out version',
  type: 'view_conflict',
}

/** Registers the list of tools, the read of one tool, and the history of a tool. */
export function registerReadTools(app: FastifyInstance, options: ReadToolOptions): void {
  registerList(app, options, { resource: 'tool', record: ToolSummary, read: readToolPage })
  registerReadTool(app, options)
  registerHistory(app, options, toolResource)
}
