#!/usr/bin/env bash
# Creates Parley's role and database: no superuser, so that what reaches the database
# through Parley can neither read the server's files nor run programs. PostgreSQL's
# image runs this once, over an empty volume; elsewhere run it as a superuser, with
# PARLEY_ROLE_PASSWORD and the variables of psql (PGHOST, PGUSER …).
set -euo pipefail
export PARLEY_ROLE=${PARLEY_ROLE:-parley}  # also the name of the database
psql -v ON_ERROR_STOP=1 --username "${POSTGRES_USER:-${PGUSER:-postgres}}" --dbname postgres <<'SQL'
\getenv role PARLEY_ROLE
\getenv password PARLEY_ROLE_PASSWORD
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'password';
CREATE DATABASE :"role" OWNER :"role" ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
