/* Every migration by name. The migrations run in the order of their names. */

export * as '0015_read_scope' from './0015_read_scope.js'
export * as '0016_version_3' from './0016_version_3.js'
