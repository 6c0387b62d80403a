import { diffWordsWithSpace } from 'diff'

/** If more words differ, both texts are shown in full. */
const DIFFERENCES_MAX = 2_000
/** The characters of unchanged text shown around a change. */
const CONTEXT = 60

/** The changes of a text as `[-before-]{+after+}`, with some unchanged text around them. Changes are never cut. */
export function changedWords(from: string, to: string): string {
  const parts = diffWordsWithSpace(from, to, { maxEditLength: DIFFERENCES_MAX })
  if (parts === undefined) return `[-${from}-]\n{+${to}+}`
  return parts
    .map(({ value, added, removed }, index) => {
      if (added) return `{+${value}+}`
      if (removed) return `[-${value}-]`
      return surrounding(value, index === 0, index === parts.length - 1)
    })
    .join('')
}

function surrounding(text: string, isFirst: boolean, isLast: boolean): string {
  const [before, after] = [isFirst ? 0 : CONTEXT, isLast ? 0 : CONTEXT]
  if (text.length <= before + after + 10) return text
  return `${text.slice(0, before)} [...] ${text.slice(text.length - after)}`
}
