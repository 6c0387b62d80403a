import {
  approveProposal,
  createCustomTool,
  createPersona,
  deleteCustomTool,
  deletePersona,
  listChanges,
  listPersonas,
  listProposals,
  readMe,
  readPersona,
  readPersonaHistory,
  readProposal,
  readRuntimePersona,
  readToolHeaders,
  readToolHistory,
  rejectProposal,
  restoreCustomTool,
  restorePersona,
  updateCustomTool,
  updatePersona,
  validateCustomTool,
  withdrawProposal,
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
import { bearer, check, recordOf, target, WHOLE } from './service.js'

/* This client validates each request and answer with zod schemas made from the document, and throws if one does not match. */

const { base, unreachable, tokens } = target
const as = (token: string, baseUrl = base) => createClient({ baseUrl, headers: bearer(token) })
const client = as(tokens.admin)
const path = { persona_id: 1 }
const query = { update_mask: 'name' }
const body = { name: 'From hey-api' }

const masked = await updatePersona({ client, path, query, body })
check(recordOf(masked.data)?.name === 'From hey-api', '200: one field by a mask')

const sent = { ...WHOLE, document_set_ids: [], tool_ids: [] }
check(JSON.stringify(zUpdatePersonaBody.parse(sent)) === JSON.stringify(sent), 'the schema of the body adds nothing')
const whole = await updatePersona({ client, path: { persona_id: 3 }, body: sent })
check(recordOf(whole.data)?.is_default_persona === true, '200: a whole update resets nothing')

const read = await updatePersona({ client, path, query: { update_mask: '', dry_run: true }, body: {} })
check(recordOf(read.data)?.name === 'From hey-api', '200: the read of an agent')

const tool = await updateCustomTool({ client, path: { tool_id: 1 }, query: { dry_run: true }, body: {} })
const stored = recordOf(tool.data)
check(stored?.custom_headers?.[0]?.value.startsWith('****') === true, '200: the read of a tool')

const validated = await validateCustomTool({ client, body: { definition: stored?.definition ?? {} } })
check(validated.data?.methods[0]?.name === 'get_forecast', '200: a validation')

const newTool = { name: 'trips', definition: stored?.definition ?? {}, passthrough_auth: false }
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
check(recordOf(first.data)?.name === 'Once', '200: once')
check(again.response?.headers.get('idempotent-replayed') === 'true', '200: and again')

const prefer = { prefer: 'return=minimal' }
const minimal = await updatePersona({ client, path, query, body: { name: 'Minimal' }, headers: prefer })
check(minimal.response?.status === 204, '204: no record')

const { data: record } = await readPersona({ client, path })
check(record !== undefined && record.tools.length > 0, '200: an agent')

const runtime = as(tokens.runtime)
const loaded = await readRuntimePersona({ client: runtime, path })
const [secret] = loaded.data?.tools.find(({ id }) => id === 1)?.headers ?? []
check(secret !== undefined && !secret.value.startsWith('****'), '200: an agent as a runtime loads it')
const values = await readToolHeaders({ client: runtime, path: { tool_id: 1 } })
check(values.data?.headers[0]?.value === secret?.value, '200: the header values of a tool')

const now = await listChanges({ client })
const reader = as(tokens.reader)
const ends = {
  approved: (sent: { path: { proposal_id: number }; headers: { 'if-match': string } }) =>
    approveProposal({ client, ...sent }),
  rejected: (sent: { path: { proposal_id: number } }) => rejectProposal({ client, ...sent, body: { reason: 'no' } }),
  withdrawn: (sent: { path: { proposal_id: number } }) => withdrawProposal({ client: reader, ...sent }),
}
for (const [state, end] of Object.entries(ends)) {
  const proposal = { update_mask: 'name', propose: true, message: 'shorter' }
  const seen = await readPersona({ client: reader, path })
  const headers = { 'if-match': seen.response?.headers.get('etag') ?? '' }
  const proposed = await updatePersona({ client: reader, path, query: proposal, body: { name: state }, headers })
  check(proposed.response?.status === 202, '202: a proposal')
  const open = await listProposals({ client: reader, query: { state: 'open' } })
  const of = { path: { proposal_id: open.data?.[0]?.id ?? 0 } }
  const shown = await readProposal({ client, ...of })
  check(shown.data?.message === 'shorter', '200: the proposal, for one who decides')
  const ended = await end({ ...of, headers: { 'if-match': shown.response?.headers.get('etag') ?? '' } })
  check(ended.response?.status === 204, `204: ${state}`)
}
const changes = await listChanges({ client, query: { after: now.data?.next ?? '', kind: 'proposal' } })
check(changes.data?.changes.at(-1)?.action === 'withdrawn', '200: the changes since')
