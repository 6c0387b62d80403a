import { type Static, Type } from '@sinclair/typebox'
import { text } from '../schema/vocabulary.js'
import { DEFAULT_HEADER_LIMITS } from './headers.js'

export type Header = Static<typeof Header>
/** A custom header. The rules for names and values are in headers.ts: they have types of their own. */
export const Header = Type.Object(
  {
    key: text({ description: `A token of RFC 9110 of at most ${DEFAULT_HEADER_LIMITS.nameCharacters} characters.` }),
    value: text({
      description: `At most ${DEFAULT_HEADER_LIMITS.valueBytes} bytes of Latin-1 without controls but tab; or a mask.`,
    }),
  },
  { $id: 'Header' },
)
