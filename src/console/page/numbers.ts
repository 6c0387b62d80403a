/* Numbers keep the form in which they were written, for example 1.0 or 10000000000000001. */
type Raw = { rawJSON: string }
type Exact = { rawJSON(text: string): Raw; isRawJSON(value: unknown): value is Raw }
export const { rawJSON, isRawJSON } = JSON as unknown as Exact

/** Parses a JSON number. If a JavaScript number would be written differently, returns an object that is serialized as the original text. */
export const numberOf = (text: string) =>
  String(Number(text)) === text && Math.abs(Number(text)) <= Number.MAX_SAFE_INTEGER ? Number(text) : rawJSON(text)

const exact = (_: string, value: unknown, { source }: { source?: string } = {}) =>
  typeof value === 'number' && source !== undefined ? numberOf(source) : value

export const parsed = (json: string) => JSON.parse(json, exact)
