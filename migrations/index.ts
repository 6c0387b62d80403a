/* Every migration by its name, which begins with its number: they run in this order. */

export * as '0015_read_scope' from './0015_read_scope.js'
export * as '0016_request_keys' from './0016_request_keys.js'
export * as '0017_private_default' from './0017_private_default.js'
export * as '0018_random_masks' from './0018_random_masks.js'
export * as '0019_simple_chain' from './0019_simple_chain.js'
export * as '0020_access' from './0020_access.js'
