import { VERSION } from '../version.js'

/** Something that a check found in a file. */
export interface FileFinding {
  level: 'error' | 'warning'
  /** From 1. */
  line: number
  type: string
  msg: string
}

/** The findings as a SARIF 2.1.0 log, as code scanners of repositories read it. */
export function sarifOf(file: string, findings: readonly FileFinding[]): object {
  const types = [...new Set(findings.map(each => each.type))].sort()
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: { driver: { name: 'agentctl validate', version: VERSION, rules: types.map(id => ({ id })) } },
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

/** The findings as workflow commands of GitHub Actions, one a line, which it shows beside the lines of the file. */
export function githubLines(file: string, findings: readonly FileFinding[]): string[] {
  return findings.map(
    ({ level, line, type, msg }) =>
      `::${level} file=${escapedProperty(file)},line=${line},title=${escapedProperty(type)}::${escapedText(msg)}`,
  )
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
