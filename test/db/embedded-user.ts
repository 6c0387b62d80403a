/**
 * A process that uses the embedded PostgreSQL, for tests that kill such processes. Arguments: the data folder, then settings as `name=value`. Prints
 * one line of JSON when it is connected, and exits cleanly when its standard input ends.
 */
import { startEmbedded } from '../../src/db/embedded/embedded.js'

const [dataDir = '', ...settings] = process.argv.slice(2)
const { PG_BIN_DIR: binDir } = process.env

try {
  const server = await startEmbedded({
    dataDir,
    settings: Object.fromEntries(settings.map(setting => setting.split('=', 2))),
    ...(binDir ? { binDir } : {}),
  })
  console.log(JSON.stringify({ url: server.url, version: server.version }))
  process.stdin.on('end', () => void server.stop()).resume()
} catch (error) {
  console.log(JSON.stringify({ refused: error instanceof Error ? `${error.name}: ${error.message}` : String(error) }))
}
