import { parse } from 'yaml'

export type Json = Record<string, unknown>

export const FORM = 'application/x-www-form-urlencoded'
export const operation = { operationId: 'x', summary: 'X' }
export const ref = ($ref: string) => ({ $ref })
export const schemaRef = (name: string) => ref(`#/components/schemas/${name}`)

/** Returns a valid definition, with the members of `more` added or replaced. */
export function document(more: Json = {}): Json {
  const servers = [{ url: 'https://t.example.com' }]
  return { openapi: '3.1.0', info: { title: 'T', version: '1' }, servers, paths: { '/x': { get: operation } }, ...more }
}

export const withOperation = (parts: string, more = '') =>
  document({ paths: { '/x': { post: { ...operation, ...parse(parts) } } }, ...parse(more) })

/** Returns a valid definition with one operation, whose JSON body has the schema `schema`. */
export const withBody = (schema: unknown, schemas: object = {}, more: Json = {}) => {
  const requestBody = { required: true, content: { 'application/json': { schema } } }
  return document({ paths: { '/x': { post: { ...operation, requestBody } } }, components: { schemas }, ...more })
}

export const many = (count: number, member: (i: number) => [string, unknown]): Json =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => member(i)))
