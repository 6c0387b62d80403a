/* Every migration by its name, which begins with its number: they run in this order. */

export * as '0015_read_scope' from './0015_read_scope.js'
export * as '0016_version_3' from './0016_version_3.js'
