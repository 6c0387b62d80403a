import { type ParseArgsConfig, parseArgs } from 'node:util'

/** As `agentctl` ends where its command line is wrong. */
const EXIT_USAGE = 64

/**
 * What was given to a command of the tests. `--help` prints `usage` and ends the process; a wrong option ends it with one line: what
 * is wrong, and `usage`.
 */
export function readArguments<Config extends ParseArgsConfig>(
  usage: string,
  config: Config,
): ReturnType<typeof parseArgs<Config>> {
  if (process.argv.includes('--help')) {
    process.stdout.write(`usage: ${usage}\n`)
    process.exit()
  }
  try {
    return parseArgs(config)
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const [fault = ''] = error.message.split(/\. |\n/) // Node goes on with what one may have meant
    return misused(usage, fault)
  }
}

/** Ends the process as `readArguments` does. */
export function misused(usage: string, fault: string): never {
  process.stderr.write(`${fault}; usage: ${usage}\n`)
  process.exit(EXIT_USAGE)
}
