import type { Family } from './growth.js'

/*
 * Definitions in YAML that JSON cannot write: `make(n)` has about `bytes` bytes for each of its `n` parts, as in `growth.ts`.
 */

const HEAD = `openapi: 3.1.0
info: {title: Hostile, version: '1'}
servers: [{url: https://h.example.com}]
paths: {/x: {get: {operationId: x, summary: X}}}
`

function lines(count: number, make: (i: number) => string): string {
  return Array.from({ length: Math.max(1, Math.round(count)) }, (_, i) => `${make(i)}\n`).join('')
}

export const yamlFamilies: readonly Family[] = [
  { name: 'anchors that nobody uses', bytes: 18, make: n => `${HEAD}x-a:\n${lines(n, i => `  - &a${i} v`)}` },
  {
    name: 'anchors that are used once',
    bytes: 30,
    make: n => `${HEAD}x-a:\n${lines(n, i => `  - &a${i} {b: 1}\n  - *a${i}`)}`,
  },
  {
    name: 'anchors that are used fifty times',
    bytes: 500,
    make: n => `${HEAD}x-a:\n${lines(n, i => `  - &a${i} {b: 1}\n${`  - *a${i}\n`.repeat(50).trimEnd()}`)}`,
  },
  { name: 'aliases of one anchor', bytes: 7, make: n => `${HEAD}x-b: &b {c: 1}\nx-a:\n${lines(n, () => '  - *b')}` },
  { name: 'aliases without an anchor', bytes: 12, make: n => `${HEAD}x-a:\n${lines(n, i => `  - *a${i}`)}` },
  {
    name: 'anchors of one name, each used once',
    bytes: 20,
    make: n => `${HEAD}x-a:\n${lines(n, i => `  - &a {b: ${i}}\n  - *a`)}`,
  },
  {
    name: 'aliases that each lead to the alias before',
    bytes: 26,
    make: n => `${HEAD}x-b: &a0 [1]\nx-a:\n${lines(n, i => `  - &a${i + 1} [*a${i}]`)}`,
  },
  {
    name: 'maps that merge one map',
    bytes: 24,
    make: n => `${HEAD}x-b: &b {c: 1}\nx-a:\n${lines(n, i => `  - {<<: *b, d: ${i}}`)}`,
  },
  {
    name: 'maps that each merge the map before',
    bytes: 40,
    make: n => `${HEAD}x-b: &a0 {c: 1}\nx-a:\n${lines(n, i => `  - &a${i + 1} {<<: *a${i}, d: ${i}}`)}`,
  },
  {
    name: 'one map that merges many',
    bytes: 34,
    make: n => `${HEAD}x-a:\n${lines(n, i => `  - &a${i} {k${i}: 1}`)}x-b:\n  <<:\n${lines(n, i => `    - *a${i}`)}`,
  },
  {
    name: 'operations that merge one',
    bytes: 60,
    make: n =>
      `${HEAD.replace(/paths.*\n/, '')}x-b: &b {parameters: []}\npaths:\n${lines(n, i => `  /p${i}: {get: {<<: *b, operationId: o${i}}}`)}`,
  },
  {
    name: 'operations that are one by an alias',
    bytes: 24,
    make: n =>
      `${HEAD.replace(/paths.*\n/, '')}x-b: &b {get: {operationId: o}}\npaths:\n${lines(n, i => `  /p${i}: *b`)}`,
  },
  { name: 'keys that stand twice', bytes: 8, make: n => `${HEAD}x-a:\n${lines(n, () => '  key: v')}` },
  { name: 'keys that are lists', bytes: 18, make: n => `${HEAD}x-a:\n${lines(n, i => `  ? [k, ${i}]\n  : v`)}` },
  { name: 'nested flow lists', bytes: 2, make: n => `${HEAD}x-a: ${'['.repeat(n)}${']'.repeat(n)}\n` },
  { name: 'flow lists that do not end', bytes: 1, make: n => `${HEAD}x-a: ${'['.repeat(n)}\n` },
  { name: 'flow maps that do not end', bytes: 3, make: n => `${HEAD}x-a: ${'{a:'.repeat(n)}\n` },
  { name: 'nested lists in one line', bytes: 2, make: n => `${HEAD}x-a:\n${'- '.repeat(n)}a\n` },
  {
    name: 'maps nested by indentation, to the limit again and again',
    bytes: 3_000,
    make: n =>
      `${HEAD}x-a:\n${lines(n, () => `- ${lines(60, level => `${' '.repeat(level * 2)}${level > 0 ? '  ' : ''}a:`).trimEnd()} 1`)}`,
  },
  { name: 'a text of many lines', bytes: 10, make: n => `${HEAD}x-a: |\n${lines(n, () => '  a: b: c')}` },
  {
    name: 'a folded text of many lines',
    bytes: 8,
    make: n => `${HEAD}x-a: >\n${lines(n, i => (i % 3 ? '  a b' : ''))}`,
  },
  { name: 'a plain text of many lines', bytes: 6, make: n => `${HEAD}x-a: a\n${lines(n, () => '  b c')}` },
  { name: 'a quoted text of many lines', bytes: 6, make: n => `${HEAD}x-a: "a\n${lines(n, () => '  b c')}"\n` },
  { name: 'a quoted text of escapes', bytes: 10, make: n => `${HEAD}x-a: "${'\\U0001F600'.repeat(n)}"\n` },
  { name: 'a quoted text that does not end', bytes: 6, make: n => `${HEAD}x-a: "a\n${lines(n, () => '  b c')}` },
  { name: 'comments', bytes: 6, make: n => `${HEAD}x-a:\n${lines(n, () => '  # c')}  b: 1\n` },
  { name: 'comments behind values', bytes: 14, make: n => `${HEAD}x-a:\n${lines(n, i => `  - ${i} # c`)}` },
  { name: 'empty lines', bytes: 1, make: n => `${HEAD}${'\n'.repeat(n)}x-a: 1\n` },
  { name: 'tags', bytes: 12, make: n => `${HEAD}x-a:\n${lines(n, i => `  - !!str ${i}`)}` },
  { name: 'tags that nobody knows', bytes: 12, make: n => `${HEAD}x-a:\n${lines(n, i => `  - !t${i} v`)}` },
  { name: 'documents', bytes: 9, make: n => `${HEAD}${lines(n, () => '---\na: b')}` },
  { name: 'directives', bytes: 14, make: n => `${lines(n, i => `%TAG !t${i}! a`)}---\n${HEAD}` },
  {
    name: 'indentation that goes wrong',
    bytes: 10,
    make: n => `${HEAD}x-a:\n${lines(n, i => `${' '.repeat(2 + (i % 3))}k${i}: v`)}`,
  },
  {
    name: 'numbers that JavaScript would write in another way',
    bytes: 9,
    make: n => `${HEAD}x-a:\n${lines(n, () => '  - 1.00')}`,
  },
  { name: 'integers of other bases', bytes: 10, make: n => `${HEAD}x-a:\n${lines(n, () => '  - 0x1F')}` },
  { name: 'one integer of many digits', bytes: 1, make: n => `${HEAD}x-a: ${'9'.repeat(n)}\n` },
  { name: 'one line of blanks', bytes: 1, make: n => `${HEAD}x-a:${' '.repeat(n)}b\n` },
  { name: 'one key of many characters', bytes: 1, make: n => `${HEAD}? ${'k'.repeat(n)}\n: v\n` },
  { name: 'colons without blanks', bytes: 2, make: n => `${HEAD}x-a: ${'a:'.repeat(n)}b\n` },
  { name: 'JSON that does not end', bytes: 10, make: n => `{"openapi":"3.1.0","x":[${'{"a":1.0},'.repeat(n)}` },
]
