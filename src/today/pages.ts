import type { FastifyInstance } from 'fastify'
import { Refused } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import { VERSION } from '../version.js'

const PAGE = { config: { policy: { permission: 'public' } }, schema: { hide: true } } as const
const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT']

const NO_IMAGES = 'No images are kept here: uploaded_image_id names one that is kept elsewhere.'
/** What of the published product is not here, by address. */
const ABSENT = {
  '/auth*': 'There is no login and no cookie here: send a token of agentctl as Authorization: Bearer <token>.',
  '/admin/persona/upload-image': NO_IMAGES,
  '/persona/upload-image': NO_IMAGES,
  '/persona/:persona_id/transfer-ownership': 'No owner is changed over HTTP: the operator does it with agentctl apply.',
  '/chat*': 'There are no chats here: this service keeps agents and does not run them.',
  '/skills*': 'There are no skills here.',
}

/** Registers what needs no token: the version, and a sentence for what is not here. */
export function registerTodayPages(app: FastifyInstance): void {
  const version = JSON.stringify({ backend_version: VERSION })
  for (const url of ['/api', '/api/version'])
    app.get(url, { ...PAGE, exposeHeadRoute: true }, (_, reply) => reply.type(JSON_TYPE).send(version))
  for (const [path, reason] of Object.entries(ABSENT)) {
    const refuse = () => Promise.reject(new Refused('NOT_FOUND', reason))
    app.route({ ...PAGE, method: METHODS, url: `/api${path}`, onRequest: refuse, handler: refuse })
  }
}
