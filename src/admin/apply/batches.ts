/** PostgreSQL takes 65,535 parameters in a statement; no table here has more than 60 columns. */
const ROWS_AT_ONCE = 1000

/** Cuts a list into pieces that one statement can hold. */
export function* batches<Item>(items: readonly Item[], size = ROWS_AT_ONCE): Generator<Item[]> {
  for (let from = 0; from < items.length; from += size) yield items.slice(from, from + size)
}
