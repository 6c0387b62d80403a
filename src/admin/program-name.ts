import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** What `npx` and `npm run` put on the path is not there for whoever reads a hint. */
const OWN_FOLDER = /[\\/]node_modules[\\/]\.bin[\\/]?$/
const COMMAND = /(?<!npx )\bagentctl (?=-*[a-z])/g

/** A hint with its commands as they can be typed: `npx agentctl ...` where no folder of PATH has an `agentctl`. */
export function withProgramName(hint: string, { PATH }: Readonly<Record<string, string | undefined>>): string {
  const typed = hint.replace(COMMAND, 'npx agentctl ')
  if (PATH === undefined || typed === hint) return hint
  const folders = PATH.split(delimiter).filter(folder => folder !== '' && !OWN_FOLDER.test(folder))
  const isOnPath = folders.some(folder => existsSync(join(folder, 'agentctl')))
  return isOnPath ? hint : typed
}
