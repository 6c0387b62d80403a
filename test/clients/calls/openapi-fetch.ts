import createClient from 'openapi-fetch'
import type { paths } from '../generated/openapi-typescript'
import { bearer, check, recordOf, target } from './service.js'

/* Checks the types of answers at compile time. `hey-api.ts` covers the operations that are not called here. */

const { base, unreachable, tokens } = target
const as = (token: string, baseUrl = base) => createClient<paths>({ baseUrl, headers: bearer(token) })
const client = as(tokens.admin)
const agent = { path: { persona_id: 1 } }
const mask = { ...agent, query: { update_mask: 'name' } }

const masked = await client.PATCH('/persona/{persona_id}', { params: mask, body: { name: 'From openapi-fetch' } })
check(recordOf(masked.data)?.name === 'From openapi-fetch', '200: one field by a mask')

const tool = await client.PUT('/admin/tool/custom/{tool_id}', {
  params: { path: { tool_id: 1 }, query: { dry_run: true } },
  body: {},
})
const stored = recordOf(tool.data)
const [secret] = stored?.custom_headers ?? []
check(secret?.value.startsWith('****') === true, '200: the read of a tool, its header typed and masked')

const validated = await client.POST('/admin/tool/custom/validate', {
  params: { query: { report: 'full' } },
  body: { definition: stored?.definition ?? {} },
})
check(validated.data?.methods[0]?.name === 'get_forecast', '200: a validation')

const { error: stale } = await client.PATCH('/persona/{persona_id}', {
  params: { ...mask, header: { 'if-match': '"persona-1-1"' } },
  body: { name: 'Stale' },
})
const isStale = stale !== undefined && 'current_etag' in stale
check(isStale && stale.current_etag?.startsWith('"persona-1-') === true, '412: with the tag')

const { error: invalid } = await client.PATCH('/persona/{persona_id}', { params: agent, body: { name: 'Alone' } })
const hasFaults = invalid !== undefined && !('error_code' in invalid)
check(hasFaults && (invalid.detail?.length ?? 0) > 1, '422: every fault')

for (const [token, code] of [
  [tokens.reader, 'INSUFFICIENT_PERMISSIONS'],
  [tokens.careful, 'PRECONDITION_REQUIRED'],
] as const) {
  const { error } = await as(token).PATCH('/persona/{persona_id}', { params: mask, body: { name: 'No' } })
  check(error !== undefined && 'error_code' in error && error.error_code === code, code)
}

const { error: down } = await as(tokens.admin, unreachable).PATCH('/persona/{persona_id}', {
  params: mask,
  body: { name: 'No' },
})
check(down !== undefined && 'reason' in down && down.reason === 'database_unreachable', '503: with its reason')

const listed = await client.GET('/persona', { params: { query: { limit: 1 } } })
check(listed.data?.[0]?.etag.startsWith('"persona-') === true, '200: a page of agents, each with its tag')
