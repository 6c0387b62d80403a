/** The media type of answers, as it is sent: to one without its charset Fastify would add that, each time anew. */
export const JSON_TYPE = 'application/json; charset=utf-8'
