import { isObject } from './references.js'
import { originsOfServer } from './servers.js'

/** As many of one list are judged by the check. */
const SERVERS_READ = 1000
const HOLDERS_A_STEP = 500

/**
 * The origins to which calls by a checked definition may go: those of the document's servers, of its paths and of their
 * operations, also where a path item stands among the components. What calls a tool reads the document's own.
 */
export function* originsOf(definition: unknown): Generator<void, Set<string>> {
  const origins = new Set<string>()
  let holders = 0
  for (const holder of holdersOfServers(definition)) {
    holders += 1
    if (holders % HOLDERS_A_STEP === 0) yield
    if (!isObject(holder) || !Array.isArray(holder.servers)) continue
    for (const server of holder.servers.slice(0, SERVERS_READ)) {
      for (const origin of originsOfServer(server)) origins.add(origin)
      yield
    }
  }
  return origins
}

function* holdersOfServers(definition: unknown): Generator<unknown> {
  if (!isObject(definition)) return
  yield definition
  const { paths, components } = definition
  for (const items of [paths, isObject(components) ? components.pathItems : undefined]) {
    for (const item of isObject(items) ? Object.values(items) : []) {
      yield item
      if (isObject(item)) yield* Object.values(item)
    }
  }
}
