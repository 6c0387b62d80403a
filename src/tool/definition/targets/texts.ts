/** What may stand in a text beside what it says to people. */
export type TextFault = 'text_hidden_characters' | 'text_instructs'

/** Characters searched between two looks at the clock, and how many of them are searched again with the next ones. */
const STEP_CHARACTERS = 64 * 1024
const OVERLAP_CHARACTERS = 256
const LAST_ASCII = 0x7e

const JOINED_SCRIPTS = [
  'Arabic',
  'Syriac',
  'Mongolian',
  'Devanagari',
  'Bengali',
  'Gurmukhi',
  'Gujarati',
  'Oriya',
  'Tamil',
  'Telugu',
  'Kannada',
  'Malayalam',
  'Sinhala',
  'Khmer',
  'Myanmar',
  'Tibetan',
]
const IN_JOINED_SCRIPT = JOINED_SCRIPTS.map(script => `\\p{Script=${script}}`).join('')

/**
 * Characters that people do not see and models read. Controls, zero-width and bidirectional characters, fillers and tags are; joiners,
 * variation selectors and tags that make an emoji, a flag or a letter of a script that is written with them are not.
 */
const HIDDEN = new RegExp(
  [
    '[\\x00-\\x08\\x0E-\\x1F\\x7F-\\x84\\x86-\\x9F\\xAD\\u061C\\u115F\\u1160\\u180E\\u200B\\u200E\\u200F\\u202A-\\u202E\\u2060-\\u206F\\u3164]',
    '[\\uFEFF\\uFFA0\\uFFF9-\\uFFFB\\u{E0000}-\\u{E001F}\\u{E0080}-\\u{E00FF}\\u{E01F0}-\\u{E0FFF}]',
    `(?<![${IN_JOINED_SCRIPT}\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\uFE0F])[\\u200C\\u200D]`,
    '(?<=^|[\\p{Script=Latin}\\s\\u180B-\\u180D\\uFE00-\\uFE0F])[\\u180B-\\u180D\\uFE00-\\uFE0F]',
    '(?<!\\p{Script=Han})[\\u{E0100}-\\u{E01EF}]',
    '(?<!\\u{1F3F4}[\\u{E0020}-\\u{E007E}]{0,6})[\\u{E0020}-\\u{E007F}]',
  ].join('|'),
  'u',
)

/** Between the words of a sentence, or of a name. */
const GAP = '[\\s_-]{1,20}'
const WORDS = `(?:(?:all|any|each|every|of|the|your|my|these|those|this)${GAP}){0,4}`
const EARLIER = '(?:previous|prior|preceding|above|earlier|other|former|system)'
const SAYINGS = '(?:instructions?|prompts?|messages?|rules?|tools?|directions?|guidelines?)'

/** Sentences that speak to the model instead of about the function. */
const INSTRUCTION = new RegExp(
  [
    `(?:\\b|_)(?:ignore|disregard|forget)${GAP}${WORDS}(?:${EARLIER}${GAP}(?:and${GAP})?${SAYINGS}|(?:instruction|prompt|directive)s?(?![a-z])|(?:previous|prior|above)(?:${GAP}and(?![a-z])|\\s{0,20}(?:[.,;:!]|$)))`,
    `\\b(?:do not|don['\u2019]?t|never)${GAP}(?:tell|inform|mention${GAP}(?:this${GAP})?to|reveal${GAP}(?:this${GAP})?to)${GAP}the${GAP}user(?![a-z])`,
    '</?(?:system|important|instructions?)>',
    '(?:忽略|忽视|无视|無視)[^。.!?\\n]{0,10}(?:之前|以上|先前|前面|上述|所有|一切)[^。.!?\\n]{0,10}(?:指令|指示|提示|规则|規則|命令)',
  ].join('|'),
  'iu',
)

/**
 * What stands in a text beside what it says, if anything does; hidden characters before instructions. Linear in the length of the text,
 * in steps.
 */
export function textFaultOf(text: string): TextFault | undefined {
  if (holds(text, HIDDEN)) return 'text_hidden_characters'
  return holds(text, INSTRUCTION) ? 'text_instructs' : undefined
}

function holds(text: string, pattern: RegExp): boolean {
  if (text.length <= STEP_CHARACTERS) return pattern.test(text)
  for (let start = 0; start < text.length; start += STEP_CHARACTERS) {
    let from = Math.max(0, start - OVERLAP_CHARACTERS)
    // A part begins with a plain letter if one is near: what is hidden depends on what stands before it.
    for (let i = 0; i < OVERLAP_CHARACTERS && from > 0 && text.charCodeAt(from) > LAST_ASCII; i++) from--
    if (pattern.test(text.slice(from, start + STEP_CHARACTERS))) return true
  }
  return false
}
