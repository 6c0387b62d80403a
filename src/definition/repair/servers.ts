import type { Loc } from '../check/findings.js'
import { isObject, parsedUrl } from '../check/references.js'
import { addressMeant, lacksScheme, unusableServer } from '../check/servers.js'
import type { EditedDocument } from './edits.js'
import { serversOf } from './swagger.js'

/** Repairs the servers of a definition. `server` is the address given for it, if any. */
export class ServerRepairs {
  constructor(
    private readonly document: EditedDocument,
    private readonly server: string | undefined,
  ) {}

  /** Makes the first server absolute if it is relative and `server` is given. An address that may be another host is left. */
  resolveRelative(): void {
    const path = ['servers', 0, 'url']
    const url = this.document.at(path)
    if (this.server === undefined || typeof url !== 'string' || /[{\s]|.\/\/|^[a-z][a-z0-9+.-]*:/i.test(url)) return
    if (lacksScheme(url)) return
    const { host, protocol } = new URL(this.server)
    const meant = addressMeant(url)
    const resolved = parsedUrl(meant?.replace(/^https?:/, protocol) ?? url, this.server)
    // Slashes of either kind may name another host, which is not relative then.
    if (resolved?.host !== host) return
    const after = url === '' || url === '/' ? this.server : resolved.href
    this.document.set(path, after, 'server_resolved', 'calls need an absolute address')
  }

  /** Adds a server to a document without one, if one is found. */
  add(): void {
    const found = this.serverFound()
    if (found === undefined) return
    this.document.set(['servers'], [{ url: found.url }], 'server_added', `no server was named; this is ${found.origin}`)
  }

  /** A server whose scheme alone is wrong gets it; another that cannot be used is taken out; the last one of the document is replaced. */
  repair(path: Loc): void {
    const holder = path.slice(0, -1)
    const list = this.document.at(holder)
    const url = this.document.at([...path, 'url'])
    const meant = typeof url === 'string' && lacksScheme(url) ? addressMeant(url) : undefined
    if (meant !== undefined) {
      const msg = 'the scheme of the address is left out or misspelt'
      this.document.set([...path, 'url'], meant, 'server_scheme_added', msg)
      return
    }
    if (!Array.isArray(list)) return
    const msg = 'the address cannot be used'
    if (list.length > 1) this.document.remove(path, 'server_removed', msg)
    else if (path.length > 2) this.document.remove(holder, 'server_removed', msg)
    else {
      const found = this.serverFound()
      if (found === undefined) return
      this.document.set(path, { url: found.url }, 'server_replaced', `${msg}; this is ${found.origin}`)
    }
  }

  /** Returns `server`, else the one that the document names elsewhere. */
  private serverFound(): { url: string; origin: string } | undefined {
    if (this.server !== undefined) return { url: this.server, origin: 'the one given' }
    const document = this.document.value
    if (!isObject(document)) return undefined
    const url = serversOf(document)[0]?.url
    const isUsable = url !== undefined && /^https?:\/\/[^{}]+$/.test(url) && unusableServer(url) === undefined
    return isUsable ? { url, origin: 'that of host and base path' } : undefined
  }
}
