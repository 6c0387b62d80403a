/*
 * A second, naive reading of DECISIONS section 3, to compare the service with: what an update makes of an agent, or which
 * status refuses it. It shares no code with the service.
 */

export interface ModelUser {
  id: string
  admin: boolean
  owner: boolean
  fileIds: string[]
}

/** The stored state as the tests read it from the tables. */
export type ModelState = Record<string, unknown> & {
  users: string[]
  groups: string[]
  tool_ids: number[]
  document_set_ids: number[]
  label_ids: number[]
  user_file_ids: string[]
}

export interface ModelRequest {
  body: Record<string, unknown>
  mask: string[] | null
}

/** The fields that are not stored just as they are sent; each has its rule below. */
const SPECIAL = new Set([
  'name',
  'document_set_ids',
  'tool_ids',
  'users',
  'groups',
  'remove_image',
  'uploaded_image_id',
  'label_ids',
  'is_default_persona',
  'display_priority',
  'user_file_ids',
])

/** What the world's tools, sets, labels and files allow: a disabled tool and unknown ids are refused where they are new. */
export const EXISTING = {
  tool_ids: [1, 2, 10, 11, 12, 13, 15, 17],
  document_set_ids: [1, 2, 3],
  label_ids: [1, 2, 3],
}

/** What the update makes of the state: the state that is stored then, and the status that the request is answered with. */
export function modelUpdate(
  state: ModelState,
  user: ModelUser,
  ownerId: string,
  { body, mask }: ModelRequest,
): { status: number; state: ModelState } {
  const asked = Object.fromEntries(Object.entries(body).filter(([field]) => mask === null || mask.includes(field)))
  const next: ModelState = structuredClone(state)
  for (const field of Object.keys(asked)) if (!SPECIAL.has(field)) next[field] = asked[field]
  if ('name' in asked) next.name = String(asked.name).trim()
  imageOf(asked, mask, next)
  for (const field of ['tool_ids', 'document_set_ids', 'label_ids', 'user_file_ids'] as const) {
    if (!(field in asked)) continue
    const list = asked[field] as (number | string)[] | null
    if (list !== null) Object.assign(next, { [field]: ascending(list) })
    else if (mask !== null) Object.assign(next, { [field]: [] })
  }
  if ('users' in asked)
    next.users = shared(
      state.users,
      (asked.users as string[]).filter(id => id !== ownerId),
    )
  const mayShare = user.admin || user.owner
  if ('groups' in asked && (mayShare || (asked.groups as number[]).length > 0))
    next.groups = shared(state.groups, asked.groups as number[])
  if ('is_default_persona' in asked && user.admin) next.is_default_persona = asked.is_default_persona
  const priority = asked.display_priority
  const namesPriority = 'display_priority' in asked && (priority !== null || mask !== null)
  if (namesPriority && (user.admin || state.display_priority === null)) next.display_priority = priority
  return verdict(state, next, user)
}

function imageOf(asked: Record<string, unknown>, mask: string[] | null, next: ModelState): void {
  if (asked.remove_image === true) next.uploaded_image_id = null
  if (mask !== null && asked.uploaded_image_id === null) next.uploaded_image_id = null
  if (asked.uploaded_image_id) next.uploaded_image_id = asked.uploaded_image_id
}

function verdict(state: ModelState, next: ModelState, user: ModelUser): { status: number; state: ModelState } {
  const mayShare = user.admin || user.owner
  if (!mayShare && (state.is_public !== next.is_public || String(state.groups) !== String(next.groups))) {
    return { status: 403, state }
  }
  if (next.is_default_persona && !next.is_public) return { status: 422, state }
  for (const [field, known] of Object.entries(EXISTING)) {
    const had = state[field] as number[]
    if ((next[field] as number[]).some(id => !had.includes(id) && !known.includes(id))) return { status: 422, state }
  }
  const newFiles = next.user_file_ids.filter(id => !state.user_file_ids.includes(id))
  if (!user.admin && newFiles.some(id => !user.fileIds.includes(id))) return { status: 422, state }
  return { status: 200, state: next }
}

function shared(before: string[], ids: (string | number)[]): string[] {
  return ascending(ids.map(String)).map(id => before.find(share => share.startsWith(`${id} `)) ?? `${id} viewer`)
}

function ascending<Id extends number | string>(ids: Id[]): Id[] {
  return [...new Set(ids)].sort((a, b) => (a < b ? -1 : 1))
}
