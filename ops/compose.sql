-- For docker-compose.yml, once: the service's own user, who owns its database and nothing else. The superuser has no password, so only
-- `docker compose exec postgres psql --username=postgres` reaches it.
\getenv password POSTGRES_PASSWORD
create role agents login password :'password';
create database agents owner agents;
alter role postgres password null;
