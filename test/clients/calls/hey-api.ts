import {
  createCustomTool,
  createPersona,
  deleteCustomTool,
  deletePersona,
  listPersonas,
  readMe,
  readPersona,
  readPersonaHistory,
  readToolHistory,
  restoreCustomTool,
  restorePersona,
  updateCustomTool,
  updatePersona,
  validateCustomTool,
} from '../generated/hey-api'
import { createClient } from '../generated/hey-api/client'
import {
  zConflictError,
  zForbiddenError,
  zHttpValidationError,
  zPreconditionFailedError,
  zPreconditionRequiredError,
  zServiceUnavailableError,
  zUpdatePersonaBody,
} from '../generated/hey-api/zod.gen'
import { bearer, check, target, WHOLE } from './service.js'

/* The client checks each request and answer with the zod schemas of the document, and throws when one does not fit. */

const { base, unreachable, tokens } = target
const as = (token: string, baseUrl = base) => createClient({ baseUrl, headers: bearer(token) })
const client = as(tokens.admin)
const path = { persona_id: 1 }
const query = { update_mask: 'name' }
const body = { name: 'From hey-api' }

const masked = await updatePersona({ client, path, query, body })
check(masked.data?.name === 'From hey-api', '200: one field by a mask')

const sent = { ...WHOLE, document_set_ids: [], tool_ids: [] }
check(JSON.stringify(zUpdatePersonaBody.parse(sent)) === JSON.stringify(sent), 'the schema of the body adds nothing')
const whole = await updatePersona({ client, path: { persona_id: 3 }, body: sent })
check(whole.data?.is_default_persona === true, '200: a whole update resets nothing')

const read = await updatePersona({ client, path, query: { update_mask: '', dry_run: true }, body: {} })
check(read.data?.name === 'From hey-api', '200: the read of an agent')

const tool = await updateCustomTool({ client, path: { tool_id: 1 }, query: { dry_run: true }, body: {} })
check(tool.data?.custom_headers?.[0]?.value.startsWith('****') === true, '200: the read of a tool')

const validated = await validateCustomTool({ client, body: { definition: tool.data?.definition ?? {} } })
check(validated.data?.methods[0]?.name === 'get_forecast', '200: a validation')

const newTool = { name: 'trips', definition: tool.data?.definition ?? {}, passthrough_auth: false }
const madeTool = await createCustomTool({ client, body: newTool })
const tool_id = madeTool.data?.id ?? 0
check(madeTool.response?.status === 201 && tool_id > 0, '201: a new tool')
const madeAgent = await createPersona({ client, body: { ...sent, tool_ids: [tool_id] } })
const persona_id = madeAgent.data?.id ?? 0
check(madeAgent.response?.status === 201 && persona_id > 0, '201: a new agent')
const used = await deleteCustomTool({ client, path: { tool_id } })
check(zConflictError.parse(used.error).agents?.[0]?.id === persona_id, '409: an agent has the tool')
check((await deletePersona({ client, path: { persona_id } })).response?.status === 204, '204: the agent is deleted')
const past = await readPersonaHistory({ client, path: { persona_id } })
check(past.data?.[0]?.action === 'deleted' && past.data[0].actor.email !== undefined, '200: the history of an agent')
const back = await restorePersona({ client, path: { persona_id }, body: { version: 1 } })
check(back.data?.tools[0]?.id === tool_id, '200: a deleted agent is back')
const pastOfTool = await readToolHistory({ client, path: { tool_id } })
check(pastOfTool.data?.[0]?.changes?.[0]?.field === 'name', '200: the history of a tool')
const restoredTool = await restoreCustomTool({ client, path: { tool_id }, body: { version: 1 } })
check(restoredTool.data?.name === 'trips', '200: a restored tool')
const none = await restorePersona({ client, path: { persona_id }, body: { version: 99 } })
check(none.response?.status === 404, '404: no such version')
await deletePersona({ client, path: { persona_id } })
check((await deleteCustomTool({ client, path: { tool_id } })).response?.status === 204, '204: the tool is deleted')

const headers = { 'if-match': '"persona-1-1"' }
const stale = await updatePersona({ client, path, query, body: { name: 'Stale' }, headers })
const staleTag = zPreconditionFailedError.parse(stale.error).current_etag
check(staleTag?.startsWith('"persona-1-') === true, '412: with the current tag')

const invalid = await updatePersona({ client, path, body })
check((zHttpValidationError.parse(invalid.error).detail?.length ?? 0) > 1, '422: every fault')

const forbidden = await updatePersona({ client: as(tokens.reader), path, query, body })
check(zForbiddenError.parse(forbidden.error).error_code === 'INSUFFICIENT_PERMISSIONS', '403')

const demanded = await updatePersona({ client: as(tokens.careful), path, query, body })
check(zPreconditionRequiredError.parse(demanded.error).error_code === 'PRECONDITION_REQUIRED', '428')

const down = await updatePersona({ client: as(tokens.admin, unreachable), path, query, body })
check(zServiceUnavailableError.parse(down.error).reason === 'database_unreachable', '503: with its reason')

const listed = await listPersonas({ client, query: { limit: 1 } })
check(listed.data?.[0]?.etag.startsWith('"persona-') === true, '200: a page of agents, each with its tag')

const me = await readMe({ client })
check(me.data?.user.email === 'admin@example.com', '200: who the token stands for')

const keyed = { client, path, query, body: { name: 'Once' }, headers: { 'idempotency-key': '"hey-api"' } }
const first = await updatePersona(keyed)
const again = await updatePersona(keyed)
check(first.data?.name === 'Once', '200: once')
check(again.response?.headers.get('idempotent-replayed') === 'true', '200: and again')

const prefer = { prefer: 'return=minimal' }
const minimal = await updatePersona({ client, path, query, body: { name: 'Minimal' }, headers: prefer })
check(minimal.response?.status === 204, '204: no record')

const { data: record } = await readPersona({ client, path })
check(record !== undefined && record.tools.length > 0, '200: an agent')
