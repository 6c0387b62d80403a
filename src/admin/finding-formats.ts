import { VERSION } from '../version.js'
import { harmless } from './terminal.js'

/** Something that a check found in a file. */
export interface FileFinding {
  level: 'error' | 'warning'
  /** From 1. */
  line: number
  type: string
  msg: string
}

/** The findings as a SARIF 2.1.0 log, as code scanners of repositories read it. The same finding at the same line stands once. */
export function sarifOf(file: string, all: readonly FileFinding[]): object {
  const findings = withoutRepeats(all)
  const types = [...new Set(findings.map(each => each.type))].sort()
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: {
          driver: { name: 'agentctl validate', version: VERSION, rules: types.map(type => ruleOf(type, findings)) },
        },
        results: findings.map(({ level, line, type, msg }) => ({
          ruleId: type,
          ruleIndex: types.indexOf(type),
          level,
          message: { text: msg },
          locations: [{ physicalLocation: { artifactLocation: { uri: uriOf(file) }, region: { startLine: line } } }],
        })),
      },
    ],
  }
}

/**
 * The findings as workflow commands of GitHub Actions, one a line, which it shows beside the lines of the file. The same finding at the
 * same line stands once.
 */
export function githubLines(file: string, findings: readonly FileFinding[]): string[] {
  return withoutRepeats(findings).map(({ level, line, type, msg }) =>
    harmless(
      `::${level} file=${escapedProperty(file)},line=${line},title=${escapedProperty(type)}::${escapedText(msg)}`,
    ),
  )
}

/** What many operations share, such as a component, is found for each of them. */
function withoutRepeats(findings: readonly FileFinding[]): FileFinding[] {
  const unlike = new Map(findings.map(each => [JSON.stringify([each.level, each.line, each.type, each.msg]), each]))
  return [...unlike.values()]
}

/** What code hosts show of a rule: GitHub demands all three texts. */
function ruleOf(type: string, findings: readonly FileFinding[]): object {
  const words = type.replaceAll('_', ' ')
  const isError = findings.some(each => each.type === type && each.level === 'error')
  const effect = isError
    ? 'The definition is refused: what the result names cannot become a tool as it is.'
    : 'The definition is accepted. What the result names may work otherwise than its author means.'
  return {
    id: type,
    shortDescription: { text: `${words.charAt(0).toUpperCase()}${words.slice(1)}` },
    fullDescription: { text: effect },
    help: {
      text: 'Mend the line that the result names. "agentctl validate FILE --complete" proposes repairs; ops/definitions.md says more.',
    },
    defaultConfiguration: { level: isError ? 'error' : 'warning' },
  }
}

/** A path relative to the folder of the run as SARIF wants it. */
function uriOf(file: string): string {
  return file.split('/').map(encodeURIComponent).join('/')
}

function escapedText(text: string): string {
  return text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A')
}

function escapedProperty(text: string): string {
  return escapedText(text).replaceAll(':', '%3A').replaceAll(',', '%2C')
}
