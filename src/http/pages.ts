import { Type } from '@sinclair/typebox'
import type { FastifyReply } from 'fastify'
import { queryInteger, queryText } from '../schema/parameters.js'
import { INT4_MAX } from '../schema/vocabulary.js'
import { contentTag, type Precondition } from '../updates/tag.js'
import { answerTagged } from './answer.js'

/** Records of one page, at most, and where nobody says how many. */
export const PAGE_RECORDS_MAX = 100
const PAGE_RECORDS = 50

/** A longer page takes memory of its token's share until it is sent. */
const FREE_CHARACTERS = 256 * 1024

/** The query of a list: by name, and a page at a time. */
export const PageQuery = Type.Object({
  name: queryText(255, 'Only those with exactly this name.'),
  limit: queryInteger(1, PAGE_RECORDS_MAX, `Records of the page; ${PAGE_RECORDS} unless it is said.`),
  after: queryInteger(0, INT4_MAX, 'Only those with a larger id: where the page before ended.'),
})

/** What a query asks for. */
export interface AskedPage {
  name?: string
  limit?: number
  after?: number
}

/** A record of a list: its id, and its JSON text. */
export interface PageRow {
  id: number
  record: string
}

/**
 * Answers a page: the records as a list, and in `Link` the address of the next page if there is one. `read` reads so many rows
 * behind an id, in the order of their ids; one more than the page has is asked for.
 */
export async function answerPage(
  reply: FastifyReply,
  asked: AskedPage,
  ifNoneMatch: Precondition | undefined,
  read: (after: number, rows: number) => Promise<PageRow[]>,
): Promise<string | FastifyReply> {
  const { limit = PAGE_RECORDS, after = 0 } = asked
  const rows = await read(after, limit + 1)
  const shown = rows.slice(0, limit)
  const last = shown.at(-1)
  if (rows.length > limit && last !== undefined) {
    const query = new URLSearchParams({
      ...(asked.name !== undefined && { name: asked.name }),
      ...(asked.limit !== undefined && { limit: String(limit) }),
      after: String(last.id),
    })
    reply.header('link', `<${reply.request.routeOptions.url}?${query}>; rel="next"`)
  }
  const text = `[${shown.map(row => row.record).join(',')}]`
  if (text.length > FREE_CHARACTERS) reply.request.reserveMemory(text.length)
  return answerTagged(reply, contentTag(text), text, ifNoneMatch)
}
