import type { ShareLevel } from '../../db/tables.js'
import { stringifyExact } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { countedAll } from '../counts.js'
import { deleteAgent, planAgentDeletion } from '../deletion.js'
import { Refusal } from '../refusal.js'
import { listAgents, resourceId, shareAgent, showAgent } from '../resources.js'
import { readGivenSource } from '../source.js'
import { deleteAsked } from './asking.js'
import {
  asOfOption,
  type Call,
  type Command,
  DELETE_OPTIONS,
  EXIT,
  JSON_OPTION,
  PLAN_OPTIONS,
  SHOW_OPTIONS,
  UsageError,
} from './command.js'
import { listCommand } from './list.js'
import { applyEntry, shortened } from './organisation.js'

const SHARE_OPTIONS = {
  user: { type: 'string', multiple: true, value: 'EMAIL', description: 'A user; may be repeated.' },
  group: { type: 'string', multiple: true, value: 'GROUP', description: 'A group by name or id; may be repeated.' },
  ...PLAN_OPTIONS,
} as const

export const agentCommands: Command[] = [
  listCommand({
    name: 'agent list',
    summary: 'Lists the agents.',
    options: { deleted: { type: 'boolean', description: 'Deleted ones as well.' } },
    columns: [
      { field: 'id', title: 'ID', whole: true },
      { field: 'name', title: 'NAME' },
      { field: 'owner', title: 'OWNER' },
      { field: 'is_public', title: 'ACCESS', show: agent => (agent.is_public ? 'public' : 'private') },
      { field: 'version', title: 'VERSION', show: agent => `version ${agent.version}` },
      {
        field: 'deleted',
        title: '',
        show: agent => (agent.deleted ? 'deleted' : agent.builtin_persona ? 'built in' : ''),
      },
      { field: 'builtin_persona' },
    ],
    rows: async (call, selection) => await listAgents((await call.database()).db, call.flag('deleted'), selection),
  }),
  {
    name: 'agent show',
    summary: 'Shows one agent.',
    positionals: ['AGENT'],
    options: SHOW_OPTIONS,
    run: showCommand,
  },
  {
    name: 'agent create',
    summary: 'Makes an agent.',
    positionals: ['NAME'],
    options: {
      owner: { type: 'string', value: 'EMAIL', description: 'The user who owns it.' },
      description: { type: 'string', description: 'What it is for.' },
      'system-prompt': { type: 'string', description: 'What it is told first.' },
      tool: { type: 'string', multiple: true, value: 'TOOL', description: 'A tool by id or name; may be repeated.' },
      public: {
        type: 'boolean',
        description: 'Everybody may use it; otherwise only its owner and whom it is shared with.',
      },
      from: {
        type: 'string',
        value: 'FILE',
        description: 'The other fields: an entry of agents as in an organisation document.',
      },
      ...PLAN_OPTIONS,
    },
    run: createCommand,
  },
  {
    name: 'agent share',
    summary: 'Shares an agent with users and groups.',
    positionals: ['AGENT'],
    options: {
      ...SHARE_OPTIONS,
      level: {
        type: 'string',
        value: 'LEVEL',
        choices: ['viewer', 'editor'],
        description: 'viewer (default) or editor.',
      },
      ...JSON_OPTION,
    },
    run: async call => await share(call, call.text('level') === 'editor' ? 'editor' : 'viewer'),
  },
  {
    name: 'agent unshare',
    summary: 'Takes shares of an agent away.',
    positionals: ['AGENT'],
    options: SHARE_OPTIONS,
    run: async call => await share(call, null),
  },
  {
    name: 'agent delete',
    summary: 'Deletes an agent: marks it, and takes it out of every relation.',
    positionals: ['AGENT'],
    options: DELETE_OPTIONS,
    run: deleteCommand,
  },
]

async function showCommand(call: Call): Promise<undefined> {
  const asOf = asOfOption(call)
  const database = await call.database()
  showRecord(call, await showAgent(database, await resourceId(database.db, 'persona', call.argument(0)), asOf))
}

async function createCommand(call: Call): Promise<number | undefined> {
  const from = call.text('from')
  const source = from === undefined ? undefined : await readGivenSource(from)
  const { id: _, ...fields } = source === undefined ? {} : entryOf(source.value, from)
  const given = {
    owner: call.text('owner'),
    description: call.text('description'),
    system_prompt: call.text('system-prompt'),
    is_public: call.flag('public') || undefined,
    tools: call.texts('tool').length > 0 ? call.texts('tool').map(idOrName) : undefined,
  }
  const options = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const entry = { ...fields, ...options, name: call.argument(0) }
  return await applyEntry(call, 'agents', entry, loc =>
    Object.hasOwn(options, String(loc[0])) || loc[0] === 'name' ? undefined : source?.lineOf(loc),
  )
}

function entryOf(value: unknown, file: string | undefined): Record<string, unknown> {
  if (!isJsonObject(value)) throw new Refusal(`${file} is not an entry of agents: a map of fields`)
  return value
}

/** As documents refer to rows: a number is an id, a text a name. */
function idOrName(text: string): number | string {
  return /^\d{1,10}$/.test(text) ? Number(text) : text
}

async function share(call: Call, level: ShareLevel | null): Promise<number> {
  const shares = { users: call.texts('user'), groups: call.texts('group') }
  if (shares.users.length + shares.groups.length === 0)
    throw new UsageError('name somebody: --user EMAIL or --group GROUP')
  const database = await call.database()
  const id = await resourceId(database.db, 'persona', call.argument(0))
  const plan = call.flag('plan')
  const { version, changed } = await shareAgent(database, id, shares, level, { plan, actor: call.actor })
  const done = `agent ${id} ${plan ? 'would be' : 'is now'} version ${version}`
  call.answer({ id, version, changed }, changed ? done : `nothing to change, version ${version}`)
  return plan && changed ? EXIT.planned : EXIT.ok
}

async function deleteCommand(call: Call): Promise<number | undefined> {
  const database = await call.database()
  const goes = await planAgentDeletion(database.db, await resourceId(database.db, 'persona', call.argument(0)))
  const what = `agent ${goes.id} ${goes.name}`
  const links = countedAll(', with its links to ', { tool: goes.tools, user: goes.users, group: goes.groups })
  const plan = { goes, lines: [`${what} would be deleted${links}`] }
  return await deleteAsked(call, what, plan, async () => await deleteAgent(database, goes.id, call.actor))
}

/** A record for people: one field a line, texts of several lines below their name. */
export function showRecord(call: Call, record: Record<string, unknown>): undefined {
  call.answer(record, () => {
    for (const [field, value] of Object.entries(record)) {
      const text =
        typeof value === 'string'
          ? value
          : isJsonObject(value)
            ? stringifyExact(value, 2)
            : shortened(value, Number.POSITIVE_INFINITY)
      if (text.includes('\n')) {
        call.print(`${field}:`)
        call.printIndented(text)
      } else call.print(`${field}: ${text}`)
    }
  })
}
