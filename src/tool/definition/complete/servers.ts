import type { Loc } from '../check/findings.js'
import { isObject, parsedUrl } from '../check/references.js'
import { unusableServer } from '../check/servers.js'
import type { EditedDocument } from './edits.js'
import { serversOf } from './swagger.js'

/** The repairs of the servers of a definition. `server` is the address that was given for it, if one was. */
export class ServerRepairs {
  constructor(
    private readonly document: EditedDocument,
    private readonly server: string | undefined,
  ) {}

  /** The first server, when it is relative and a better one is given. */
  resolveRelative(): void {
    const { server } = this
    const url = this.document.at(['servers', 0, 'url'])
    if (server === undefined || typeof url !== 'string' || url.includes('{') || /^[a-z][a-z0-9+.-]*:/i.test(url)) return
    const resolved = url === '' || url === '/' ? server : parsedUrl(url, server)?.href
    if (resolved === undefined) return
    // Slashes of either kind may name another host, which is not relative then.
    if (new URL(resolved).host !== new URL(server).host) return
    this.document.set(['servers', 0, 'url'], resolved, 'server_resolved', 'calls need an absolute address')
  }

  /** Names a server in a document that has none, if one is found. */
  add(): void {
    const found = this.serverFound()
    if (found === undefined) return
    this.document.set(['servers'], [{ url: found.url }], 'server_added', `no server was named; this is ${found.origin}`)
  }

  /** A server that cannot be used is taken out; the last one of the document is replaced. */
  mend(path: Loc): void {
    const list = this.document.at(path.slice(0, -1))
    if (!Array.isArray(list)) return
    const isOwn = path.length > 2
    if (list.length > 1) {
      this.document.remove(path, 'server_removed', 'the address cannot be used')
    } else if (isOwn) {
      this.document.remove(path.slice(0, -1), 'server_removed', 'the address cannot be used')
    } else {
      const found = this.serverFound()
      if (found === undefined) return
      this.document.set(
        path,
        { url: found.url },
        'server_replaced',
        `the address cannot be used; this is ${found.origin}`,
      )
    }
  }

  /** The server given, else the one that the document names somewhere else. */
  private serverFound(): { url: string; origin: string } | undefined {
    if (this.server !== undefined) return { url: this.server, origin: 'the one given' }
    const document = this.document.value
    if (!isObject(document)) return undefined
    const [leftover] = serversOf(document)
    if (leftover !== undefined && /^https?:/.test(leftover.url) && unusableServer(leftover.url) === undefined)
      return { url: leftover.url, origin: 'that of host and base path' }
    const { paths } = document
    if (!isObject(paths)) return undefined
    for (const path of Object.keys(paths)) {
      const item = paths[path]
      if (!isObject(item)) continue
      for (const holder of [item, ...Object.values(item)]) {
        const [server] = isObject(holder) && Array.isArray(holder.servers) ? holder.servers : []
        if (
          isObject(server) &&
          typeof server.url === 'string' &&
          /^https?:\/\/[^{}]+$/.test(server.url) &&
          unusableServer(server.url) === undefined
        )
          return { url: server.url, origin: 'the first that a path or an operation names' }
      }
    }
    return undefined
  }
}
