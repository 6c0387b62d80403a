import { updateCustomTool, updatePersona, validateTool } from '../generated/orval'
import { bearer, check, target, WHOLE } from './service.js'

/* This client asks addresses without an origin, as in a page of the service itself: `fetch` gets the origin here. */

const { base, unreachable, tokens } = target
const plainFetch = globalThis.fetch
let origin = base
globalThis.fetch = (input, init) => plainFetch(`${origin}${String(input)}`, init)
const as = (token: string, headers: Record<string, string> = {}): RequestInit => ({
  headers: { ...bearer(token), ...headers },
})
const admin = as(tokens.admin)
const mask = { update_mask: 'name' }
const body = { name: 'From orval' }

const masked = await updatePersona(1, body, mask, admin)
check(masked.status === 200 && masked.data.name === 'From orval', '200: one field by a mask')

const whole = await updatePersona(3, { ...WHOLE, document_set_ids: [], tool_ids: [] }, {}, admin)
check(whole.status === 200 && whole.data.is_default_persona, '200: a whole update resets nothing')

const read = await updatePersona(1, {}, { update_mask: '', dry_run: true }, admin)
check(read.status === 200 && read.data.name === 'From orval', '200: the read of an agent')

const tool = await updateCustomTool(1, {}, { dry_run: true }, admin)
check(
  tool.status === 200 && tool.data.custom_headers?.[0]?.value.startsWith('****') === true,
  '200: the read of a tool',
)

const definition = tool.status === 200 ? (tool.data.definition ?? {}) : {}
const validated = await validateTool({ definition }, {}, admin)
check(validated.status === 200 && validated.data.methods[0]?.name === 'get_forecast', '200: a validation')

const stale = await updatePersona(1, { name: 'Stale' }, mask, as(tokens.admin, { 'if-match': '"persona-1-1"' }))
check(stale.status === 412 && stale.data.current_etag.startsWith('"persona-1-'), '412: with the current tag')

const invalid = await updatePersona(1, body, {}, admin)
check(invalid.status === 422 && (invalid.data.detail?.length ?? 0) > 1, '422: every fault')

const forbidden = await updatePersona(1, body, mask, as(tokens.reader))
check(forbidden.status === 403 && forbidden.data.error_code === 'INSUFFICIENT_PERMISSIONS', '403')

const demanded = await updatePersona(1, body, mask, as(tokens.careful))
check(demanded.status === 428 && demanded.data.error_code === 'PRECONDITION_REQUIRED', '428')

origin = unreachable
const down = await updatePersona(1, body, mask, admin)
check(down.status === 503 && down.data.reason === 'database_unreachable', '503: with its reason')
