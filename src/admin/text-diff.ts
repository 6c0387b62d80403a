import { diffWordsWithSpace } from 'diff'

/** How many words may differ for a comparison by words; above that both texts are shown whole. */
const DIFFERENCES_MAX = 2_000
/** How much of what stays is shown around what changes. */
const CONTEXT = 60

/** What changed in a text, as `[-before-]{+after+}` with some of what stays around it. Nothing of a change is left out. */
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
