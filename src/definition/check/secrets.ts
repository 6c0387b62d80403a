import { quote } from './findings.js'

const SECRET_NAME =
  /^(?:x[_-]|ocp-apim-)?(?:api|app|access|auth|client|private|secret|service|subscription|user)?[_-]?(?:key|token|secret)$|^(?:password|passwd|pwd|sig|signature|authorization|credentials?)$/i
/** Matches secrets of some vendors by their prefix, as a step of a path or a value. Nothing else counts, however random it looks. */
const SECRET =
  /(?<![^/?#&;=])(?:(?:[sr]k[_-](?:live|test|proj|ant)[_-]|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|xapp-\d-|shp(?:at|ca|pa|ss)_|AIza|ya29\.|AKIA|SG\.[\w-]{10,}\.|eyJ[\w-]+\.)[\w.+=-]{12,}|ASIA(?=[A-Z]*\d)[A-Z\d]{16}|bot\d{6,}:[\w-]{30,}|(?<=\/services\/T\w+\/B\w+\/)\w{16,}|(?<=\/webhooks\/\d{15,}\/)[\w-]{40,})/g
/** Matches a placeholder, an example or a flag instead of a secret. */
const STAND_IN = /^(?:[{<$%[*]|your|my[_-]|x{3}|\.{3}|example|changeme|variable$|true$|false$|\d{1,2}$)/i
const ADDRESS_CHARACTERS = 8192

/** True for an address or a path that has a secret, known by its prefix or by the name of its parameter. */
export function hasSecret(text: string): boolean {
  const [, ...pairs] = text.slice(0, ADDRESS_CHARACTERS).split(/[?&;#]/)
  const isNamed = (pair: string) => {
    const [, name = '', value = ''] = /^([^=]*)=(.+)$/s.exec(pair) ?? []
    return SECRET_NAME.test(name) && !STAND_IN.test(value)
  }
  return text.search(SECRET) !== -1 || pairs.some(isNamed)
}

/** Returns an address without what may be secret: user info, the query, and secrets known by their prefix. */
export function withoutSecrets(address: string): string {
  const open = address.replace(/(\?)[^#]+|(#)(?!\/).+/gs, '$1$2***').replace(/(^|\/\/)[^/?#]+@/, '$1***@')
  return open.replace(SECRET, '***')
}

/** Returns an address as a message shows it. */
export function quoteAddress(text: string): string {
  return quote(withoutSecrets(text))
}
