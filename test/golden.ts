import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

interface Comparing {
  equal(found: string, wanted: string, message: string): unknown
}

/**
 * Compares a text with the checked-in file at `path` in the repository. `npm run golden` sets UPDATE_GOLDEN, which rewrites the file, so that the
 * change can be reviewed as a diff.
 */
export function matchesGolden(t: Comparing, path: string, text: string): void {
  const file = fileURLToPath(new URL(`../../${path}`, import.meta.url))
  if (process.env.UPDATE_GOLDEN) writeFileSync(file, text)
  const wanted = existsSync(file) ? readFileSync(file, 'utf8') : ''
  t.equal(text, wanted, `${path} is what the code makes; rewrite it with: npm run golden`)
}
