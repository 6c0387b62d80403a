/**
 * What a fault says whose sentence follows from its type alone: pydantic v2's words, because the published service answers
 * with them.
 */
export const SENTENCES = {
  missing: 'Field required',
  extra_forbidden: 'Extra inputs are not permitted',
  parameter_repeated: 'Input should be given once, and was given more than once',
  string_type: 'Input should be a valid string',
  string_nul: 'Input should be a string without NUL characters',
  string_unicode: 'Input should be a valid string, unable to parse raw data as a unicode string',
  bool_type: 'Input should be a valid boolean',
  bool_parsing: 'Input should be a valid boolean, unable to interpret input',
  int_type: 'Input should be a valid integer',
  int_parsing: 'Input should be a valid integer, unable to parse string as an integer',
  int_from_float: 'Input should be a valid integer, got a number with a fractional part',
  float_type: 'Input should be a valid number',
  float_parsing: 'Input should be a valid number, unable to parse string as a number',
  finite_number: 'Input should be a finite number',
  list_type: 'Input should be a valid list',
  dict_type: 'Input should be a valid dictionary',
  model_attributes_type: 'Input should be a valid dictionary or object to extract fields from',
  uuid_type: 'UUID input should be a string, bytes or UUID object',
  uuid_parsing: 'Input should be a valid UUID, 32 hexadecimal digits in the form 8-4-4-4-12',
  datetime_type: 'Input should be a valid datetime',
  datetime_from_date_parsing:
    'Input should be a valid datetime or date in RFC 3339 form, of the years 1 to 9999 in UTC',
  json_invalid: 'JSON decode error',
  key_forbidden: 'This key is not allowed',
} as const
