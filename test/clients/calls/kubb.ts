import {
  forbiddenErrorSchema,
  HTTPValidationErrorSchema,
  personaSnapshotSchema,
  preconditionFailedErrorSchema,
  preconditionRequiredErrorSchema,
  serviceUnavailableErrorSchema,
  toolSnapshotSchema,
  updateCustomTool,
  updatePersona,
  updatePersonaMutationRequestSchema,
  validateTool,
} from '../generated/kubb'
import { bearer, check, target, WHOLE } from './service.js'

/*
 * This client answers every status alike: what came is read with the zod schemas of the document. It does not say what its body is,
 * and `fetch` would say text: its caller names the media type.
 */

const { base, unreachable, tokens } = target
const as = (token: string, baseURL = base) => ({
  baseURL,
  headers: { ...bearer(token), 'Content-Type': 'application/json' },
})
const admin = as(tokens.admin)
const mask = { update_mask: 'name' }
const body = { name: 'From Kubb' }

const masked = await updatePersona(1, body, mask, {}, admin)
check(masked.status === 200 && masked.data.name === 'From Kubb', '200: one field by a mask')

const sent = { ...WHOLE, document_set_ids: [], tool_ids: [] }
const parsed = updatePersonaMutationRequestSchema.parse(sent)
check(JSON.stringify(parsed) === JSON.stringify(sent), 'the schema of the body adds nothing')
const whole = await updatePersona(3, sent, {}, {}, admin)
check(whole.status === 200 && whole.data.is_default_persona, '200: a whole update resets nothing')

const read = await updatePersona(1, {}, { update_mask: '', dry_run: true }, {}, admin)
check(personaSnapshotSchema.parse(read.data).name === 'From Kubb', '200: the read of an agent')

const tool = await updateCustomTool(1, {}, { dry_run: true }, {}, admin)
const { custom_headers: headers, definition } = toolSnapshotSchema.parse(tool.data)
check(headers?.[0]?.value.startsWith('****') === true, '200: the read of a tool')

const validated = await validateTool({ definition: definition ?? {} }, {}, {}, admin)
check(validated.status === 200 && validated.data.methods[0]?.name === 'get_forecast', '200: a validation')

const stale = await updatePersona(1, { name: 'Stale' }, mask, { 'if-match': '"persona-1-1"' }, admin)
const { current_etag: current } = preconditionFailedErrorSchema.parse(stale.data)
check(stale.status === 412 && current.startsWith('"persona-1-'), '412: with the current tag')

const invalid = await updatePersona(1, body, {}, {}, admin)
const { detail = [] } = HTTPValidationErrorSchema.parse(invalid.data)
check(invalid.status === 422 && detail.length > 1, '422: every fault')

const forbidden = await updatePersona(1, body, mask, {}, as(tokens.reader))
check(forbiddenErrorSchema.parse(forbidden.data).error_code === 'INSUFFICIENT_PERMISSIONS', '403')

const demanded = await updatePersona(1, body, mask, {}, as(tokens.careful))
check(preconditionRequiredErrorSchema.parse(demanded.data).error_code === 'PRECONDITION_REQUIRED', '428')

const down = await updatePersona(1, body, mask, {}, as(tokens.admin, unreachable))
check(serviceUnavailableErrorSchema.parse(down.data).reason === 'database_unreachable', '503: with its reason')
