-- Once, at the leader, as the superuser: the service's own user, who owns its database and nothing else.
create role agents login password '${AGENTS_PASSWORD}';
create database agents owner agents;
