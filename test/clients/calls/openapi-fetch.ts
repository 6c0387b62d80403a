import createClient from 'openapi-fetch'
import type { paths } from '../generated/openapi-typescript'
import { bearer, check, target, WHOLE } from './service.js'

const { base, unreachable, tokens } = target
const as = (token: string, baseUrl = base) => createClient<paths>({ baseUrl, headers: bearer(token) })
const client = as(tokens.admin)
const agent = { path: { persona_id: 1 } }
const mask = { ...agent, query: { update_mask: 'name' } }

const masked = await client.PATCH('/persona/{persona_id}', { params: mask, body: { name: 'From openapi-fetch' } })
check(masked.data?.name === 'From openapi-fetch', '200: one field by a mask')

const whole = await client.PATCH('/persona/{persona_id}', {
  params: { path: { persona_id: 3 } },
  body: { ...WHOLE, document_set_ids: [], tool_ids: [] },
})
check(whole.data?.is_default_persona === true, '200: a whole update resets nothing')

const read = await client.PATCH('/persona/{persona_id}', {
  params: { ...agent, query: { update_mask: '', dry_run: true } },
  body: {},
})
check(read.data?.name === 'From openapi-fetch', '200: the read of an agent')

const tool = await client.PUT('/admin/tool/custom/{tool_id}', {
  params: { path: { tool_id: 1 }, query: { dry_run: true } },
  body: {},
})
const [secret] = tool.data?.custom_headers ?? []
check(secret?.value.startsWith('****') === true, '200: the read of a tool, its header typed and masked')

const validated = await client.POST('/admin/tool/custom/validate', {
  params: { query: { report: 'full' } },
  body: { definition: tool.data?.definition ?? {} },
})
check(validated.data?.methods[0]?.name === 'get_forecast', '200: a validation')

const newTool = { name: 'trips', definition: tool.data?.definition ?? {}, passthrough_auth: false }
const madeTool = await client.POST('/admin/tool/custom', { body: newTool })
const tool_id = madeTool.data?.id ?? 0
check(madeTool.response.headers.get('location') === `/tool/${tool_id}`, '201: a new tool')
const header = { 'idempotency-key': '"once"' }
const madeAgent = await client.POST('/persona', {
  params: { header },
  body: { ...WHOLE, document_set_ids: [], tool_ids: [tool_id] },
})
const persona_id = madeAgent.data?.id ?? 0
check(madeAgent.response.headers.get('etag') === `"persona-${persona_id}-1"`, '201: a new agent')
const used = await client.DELETE('/admin/tool/custom/{tool_id}', { params: { path: { tool_id } } })
const usedError = used.error
const isUsed = usedError !== undefined && 'agents' in usedError
check(used.response.status === 409 && isUsed && usedError.agents?.[0]?.id === persona_id, '409: an agent has the tool')
const goneAgent = await client.DELETE('/persona/{persona_id}', { params: { path: { persona_id } } })
check(goneAgent.response.status === 204, '204: the agent is deleted')
const goneTool = await client.DELETE('/admin/tool/custom/{tool_id}', { params: { path: { tool_id } } })
check(goneTool.response.status === 204, '204: the tool is deleted')

/* A refusal differs by what its type has: the compiler knows the rest. */

const stale = await client.PATCH('/persona/{persona_id}', {
  params: { ...mask, header: { 'if-match': '"persona-1-1"' } },
  body: { name: 'Stale' },
})
const staleError = stale.error
const isStale = staleError !== undefined && 'current_etag' in staleError
check(
  stale.response.status === 412 && isStale && staleError.current_etag?.startsWith('"persona-1-') === true,
  '412: with the tag',
)

const invalid = await client.PATCH('/persona/{persona_id}', { params: agent, body: { name: 'Alone' } })
const invalidError = invalid.error
const hasFaults = invalidError !== undefined && !('error_code' in invalidError)
check(invalid.response.status === 422 && hasFaults && (invalidError.detail?.length ?? 0) > 1, '422: every fault')
check(/update_mask/.test(invalid.response.headers.get('warning') ?? ''), '422: the header that names update_mask')

const { error: forbidden } = await as(tokens.reader).PATCH('/persona/{persona_id}', {
  params: mask,
  body: { name: 'No' },
})
const isRefused = forbidden !== undefined && 'error_code' in forbidden
check(isRefused && forbidden.error_code === 'INSUFFICIENT_PERMISSIONS', '403')

const { error: demanded } = await as(tokens.careful).PATCH('/persona/{persona_id}', {
  params: mask,
  body: { name: 'No' },
})
const isDemanded = demanded !== undefined && 'error_code' in demanded
check(isDemanded && demanded.error_code === 'PRECONDITION_REQUIRED', '428')

const down = await as(tokens.admin, unreachable).PATCH('/persona/{persona_id}', { params: mask, body: { name: 'No' } })
const downError = down.error
const isDown = downError !== undefined && 'reason' in downError
check(down.response.status === 503 && isDown && downError.reason === 'database_unreachable', '503: with its reason')

const listed = await client.GET('/persona', { params: { query: { limit: 1 } } })
check(listed.data?.[0]?.etag.startsWith('"persona-') === true, '200: a page of agents, each with its tag')
check(listed.response.headers.get('link')?.includes('rel="next"') === true, '200: and where the next page is')

const me = await client.GET('/me')
check(me.data?.user.email === 'admin@example.com', '200: who the token stands for')

const keyed = { params: { ...mask, header: { 'idempotency-key': '"openapi-fetch"' } }, body: { name: 'Once' } }
const first = await client.PATCH('/persona/{persona_id}', keyed)
const again = await client.PATCH('/persona/{persona_id}', keyed)
check(
  first.data?.name === 'Once' && again.response.headers.get('idempotent-replayed') === 'true',
  '200: once, and again',
)

const minimal = await client.PATCH('/persona/{persona_id}', {
  params: { ...mask, header: { prefer: 'return=minimal' } },
  body: { name: 'Minimal' },
})
check(minimal.response.status === 204 && minimal.error === undefined, '204: no record')

const { data: record } = await client.GET('/persona/{persona_id}', { params: agent })
check(record !== undefined && record.tools.length > 0, '200: an agent')

/* What happened, and back to what was. */

const past = await client.GET('/persona/{persona_id}/history', { params: { ...agent, query: { limit: 1 } } })
check(past.data?.[0]?.changes?.[0]?.field === 'name', '200: the history of an agent')
check(/rel="next"/.test(past.response.headers.get('link') ?? ''), '200: and where the next page is')
const back = await client.POST('/persona/{persona_id}/restore', {
  params: { ...agent, query: { dry_run: true } },
  body: { version: 1 },
})
check(back.data?.id === 1, '200: an agent as it was in version 1')
const toolPast = await client.GET('/tool/{tool_id}/history', { params: { path: { tool_id: 1 } } })
check(toolPast.data?.at(-1)?.action === 'created', '200: the history of a tool')
const toolBack = await client.POST('/admin/tool/custom/{tool_id}/restore', {
  params: { path: { tool_id: 1 }, query: { dry_run: true } },
  body: { version: 1 },
})
check(toolBack.data?.id === 1, '200: a tool as it was in version 1')
