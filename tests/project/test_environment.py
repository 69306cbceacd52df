from __future__ import annotations

import os
import runpy
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from llm.providers import all_providers
from project.environment import monitoring
from project.environment.configuration_error import ConfigurationError
from tests.serving import BASE

Load = Callable[..., dict[str, Any]]

# Variable, a wrong value, and the error.
WRONG = [
    ("ACCESS_LOG", "maybe", "'maybe' is neither true nor false."),
    (
        "ALLOWED_HOSTS",
        "a.org, http://b.org",
        "'http://b.org' is not a host name; leave out",
    ),
    ("ALLOWED_HOSTS", "a.org:8000", "'a.org:8000' is not a host name; leave out"),
    ("AZURE_OPENAI_API_VERSION", "new", "'new' is not a version such as "),
    (
        "AZURE_OPENAI_CLIENT_SECRET",
        "two words",
        "a key cannot contain spaces or non-ASCII",
    ),
    ("BEHIND_HTTPS", "nginx", "'nginx' is neither true nor false."),
    ("COMPACTION_THRESHOLD", "96", "'96' is not a number from 0 to 95."),
    ("CSRF_TRUSTED_ORIGINS", "chat.org", "'chat.org' is not an origin; write https"),
    ("CSRF_TRUSTED_ORIGINS", "https://a/b", "'https://a/b' is not an origin; write"),
    ("DATABASE_URL", "mysql://u:p@h/db", "is neither a SQLite file nor PostgreSQL; "),
    ("DATABASE_URL", "postgres://u:p@h/", "it names no database; write postgres://"),
    ("DATABASE_URL", "sqlite://:memory:", "is neither a SQLite file nor PostgreSQL; "),
    ("DATABASE_URL", "sqlite:////no/such/x", "cannot open /no/such/x (No such file or"),
    ("DEBUG", "verbose", "'verbose' is neither true nor false."),
    ("DELETED_RETENTION_DAYS", "-1", "'-1' is not a whole number of days from 0 to"),
    ("AUDIT_RETENTION_DAYS", "-1", "'-1' is not a whole number of days from 0 to"),
    ("READING_NEEDS_REASON", "maybe", "'maybe' is neither true nor false."),
    ("AUDIT_SYSLOG", "log.example", "'log.example' is no syslog server; write udp://"),
    ("AUDIT_SYSLOG", "tcp://h:99", "'tcp://h:99' is no syslog server; write udp://"),
    ("AUDIT_SYSLOG", "udp://h:99999", "'udp://h:99999' is no syslog server; write"),
    ("EXCHANGE_RETENTION_DAYS", "-1", "'-1' is not a whole number of days from 0 to"),
    ("EXCHANGE_MAX_SIZE", "1MB", "'1MB' is not a whole number above 0."),
    ("S3_ADDRESSING_STYLE", "round", "'round' is not one of auto, path, virtual."),
    ("S3_BUCKET", "a/b", "'a/b' is not a bucket's name."),
    ("S3_ENDPOINT_URL", "minio:9000", "'minio:9000' is not a URL; write https://host"),
    ("S3_PREFIX", "a/../b", "'a/../b' is not a prefix; write words/with/slashes."),
    ("DRAIN_GRACE", "10s", "'10s' is not a number of seconds above 0."),
    ("ENABLE_DEMO", "perhaps", "'perhaps' is neither true nor false."),
    ("ENABLE_GROQ", "2", "'2' is neither true nor false."),
    ("GATEWAY_PORT", "99999", "99999 is not a port; use 1 to 65535."),
    ("GATEWAY_WORKERS", "65", "'65' is not a whole number from 0 to 64."),
    ("ENCRYPTION_KEYS", "tooshort", "a key is not 32 url-safe base64 bytes."),
    ("ENCRYPTION_KEYS_COMMAND", "/no/such/kms", "cannot run '/no/such/kms' (No such"),
    ("ENCRYPTION_KEYS_COMMAND", "false", "'false' failed with the exit code 1."),
    ("ENCRYPTION_KEYS_COMMAND", "true", "'true' printed no key."),
    ("ENCRYPTION_KEYS_COMMAND", "echo short", "a key is not 32 url-safe base64 bytes."),
    ("ENCRYPTION_KEYS_COMMAND", "echo 'half", "is no command, or prints no text."),
    ("HSTS_SUBDOMAINS", "some", "'some' is neither true nor false."),
    ("ISOLATED_REQUIRE_SANDBOX", "some", "'some' is neither true nor false."),
    ("GROQ_API_KEY", "gsk with spaces", "a key cannot contain spaces or non-ASCII"),
    ("GROQ_API_BASE", "groq.example/v1", "'groq.example/v1' is not a URL; write"),
    ("GROQ_API_BASE", "http://me:pw@h/v1", "leave out user and password."),
    ("GROQ_API_BASE", "http://h/v1?key=x", "'http://h/v1?key=x' is not a URL; write"),
    ("LLM_CONNECT_TIMEOUT", "-1", "'-1' is not a number of seconds above 0."),
    ("LLM_FIRST_BYTE_TIMEOUT", "nan", "'nan' is not a number of seconds above 0."),
    ("LLM_IDLE_TIMEOUT", "0", "'0' is not a number of seconds above 0."),
    ("LLM_MAX_CONNECTIONS", "0", "'0' is not a whole number above 0."),
    ("LLM_CONNECTION_WAIT", "0", "'0' is not a number of seconds above 0."),
    ("LLM_KEY_WAIT", "-1", "'-1' is not a number of seconds above 0."),
    ("LLM_PROVIDER", "skynet", "'skynet' is not one of "),
    ("LLM_TEMPERATURE", "2.5", "'2.5' is not a number from 0 to 2."),
    ("LLM_TEMPERATURE", "warm", "'warm' is not a number from 0 to 2."),
    ("LLM_TOTAL_TIMEOUT", "inf", "'inf' is not a number of seconds above 0."),
    ("LOG_LEVEL", "loud", "'loud' is not one of DEBUG, INFO, WARNING, ERROR."),
    ("MAX_ANSWER_SIZE", "1MB", "'1MB' is not a whole number above 0."),
    ("MAX_INPUT_SIZE", "1MB", "'1MB' is not a whole number above 0."),
    ("PARLEY_APPS", "no_such_app", "'no_such_app' cannot be imported; install its"),
    ("PARLEY_APPS", "llm.nothing", "'llm.nothing' cannot be imported; install its"),
    ("PARLEY_DATA", "/proc/none/data", "cannot use /proc/none/data ("),
    ("PARLEY_READ_DOTENV", "x", "'x' is neither true nor false."),
    ("PORT", "http", "'http' is not a whole number above 0."),
    ("PORT", "65536", "65536 is not a port; use 1 to 65535."),
    ("REDIS_URL", "localhost:6379", "is not a Redis URL; write redis://host:6379"),
    ("REDIS_URL", "redis://localhost/main", "is not a Redis URL; write redis://"),
    ("REDIS_URL", "redis://localhost", "Redis needs PostgreSQL; set DATABASE_URL="),
    ("RETENTION_DAYS", "36501", "'36501' is not a whole number of days from 0 to 365"),
    (
        "STRUCTURED_OUTPUT_CORRECTIONS",
        "-1",
        "'-1' is not a whole number; 0 means no limit.",
    ),
    (
        "SHARE_LINKS",
        "friends",
        "'friends' is not one of off, group, signed_in, public.",
    ),
    ("HISTORY_CACHE_SHARE", "90", "'90' is not a number from 0 to 50."),
    ("SYNC_MODELS", "daily", "'daily' is neither true nor false."),
    (
        "TIME_ZONE",
        "Paris",
        "'Paris' is not a time zone; write for example Europe/Paris.",
    ),
    ("TOOL_TIMEOUT", "soon", "'soon' is not a number of seconds above 0."),
    ("TURN_CONCURRENCY", "1.5", "'1.5' is not a whole number above 0."),
    ("MAX_LAG", "x", "'x' is not a number from 0 to 60."),
    ("MAX_START_WAIT", "-1", "'-1' is not a number from 0 to 3600."),
    ("MAX_WAITING_TURNS", "-1", "'-1' is not a whole number; 0 means no limit."),
    ("MAX_CONNECTIONS", "many", "'many' is not a whole number; 0 means no limit."),
    ("MAX_MEMORY", "1GB", "'1GB' is not a whole number; 0 means no limit."),
    ("TURN_DEADLINE", "x", "'x' is not a number of seconds above 0."),
    ("TURN_MAX_STEPS", "ten", "'ten' is not a whole number above 0."),
    ("MAX_TURNS_PER_MESSAGE", "0", "'0' is not a whole number above 0."),
    ("MAX_COST_PER_MESSAGE", "-1", "'-1' is not a number from 0 to 1e+06."),
    ("BACKGROUND_TOOL_TIMEOUT", "1h", "'1h' is not a number of seconds above 0."),
    ("MAX_BACKGROUND_CALLS", "0", "'0' is not a whole number above 0."),
    ("MAX_UPLOAD_COUNT", "0", "'0' is not a whole number above 0."),
    ("MAX_UPLOAD_SIZE", "1GB", "'1GB' is not a whole number above 0."),
    (
        "MCP_STDIO_SERVERS",
        "/no/such.json",
        "cannot read /no/such.json (No such file or directory);",
    ),
    ("PUBLIC_URL", "parley.org", "'parley.org' is not a URL; write"),
    ("QUESTION_EXPIRES", "later", "'later' is not a number of seconds above 0."),
    ("IMPORT_MAX_SIZE", "lots", "'lots' is not a whole number above 0."),
    ("DICTATION_MAX_SECONDS", "soon", "'soon' is not a whole number above 0."),
    ("DICTATION_MAX_SIZE", "1GB", "'1GB' is not a whole number above 0."),
    ("AUTO_TITLES", "maybe", "'maybe' is neither true nor false."),
    ("SHOW_COSTS", "maybe", "'maybe' is neither true nor false."),
    ("UPLOAD_QUOTA", "lots", "'lots' is not a whole number above 0."),
    ("USER_BYTES_PER_MINUTE", "1GB", "'1GB' is not a whole number; 0 means no limit."),
    ("USER_REQUESTS_PER_MINUTE", "-1", "'-1' is not a whole number; 0 means no limit."),
    ("USER_CONNECTIONS", "-1", "'-1' is not a whole number; 0 means no limit."),
    ("TOKEN_CONNECTIONS", "many", "'many' is not a whole number; 0 means no limit."),
    ("REAUTHENTICATE_AFTER", "0", "'0' is not a whole number above 0."),
    ("SESSION_HOURS", "0", "'0' is not a whole number above 0."),
    ("SESSION_IDLE_MINUTES", "4", "write 0 for no limit, or at least 5."),
    ("SECOND_FACTOR_FOR_ALL", "all", "'all' is neither true nor false."),
    ("OUTBOUND_HOSTS", "https://a.org", "'https://a.org' is not a host name;"),
    ("OUTBOUND_HOSTS", "*", "'*' is not a host name;"),
    ("CLAMD_ADDRESS", "clamav", "'clamav' is neither host:port nor the path"),
    ("STAFF_SECOND_FACTOR", "all", "'all' is neither true nor false."),
    ("MAIL_HOST", "smtp://a.org", "'smtp://a.org' is not a host name; put the port"),
    ("MAIL_PORT", "smtp", "'smtp' is not a whole number above 0."),
    ("MAIL_SECURITY", "ssl", "'ssl' is not one of starttls, tls, none."),
    ("MAIL_USER", "parley", "it needs MAIL_HOST as well."),
    ("MAIL_PASSWORD", "secret", "it needs MAIL_HOST as well."),
    ("OIDC_KIND", "saml", "'saml' is not one of entra, google, okta, keycloak, oidc."),
    ("OIDC_NEW_ACCOUNTS", "all", "'all' is not one of everybody, invited, nobody."),
    ("OIDC_ISSUER", "https://id.org", "it needs OIDC_CLIENT_ID as well."),
    ("OIDC_CLIENT_SECRET", "s", "it needs OIDC_CLIENT_ID as well."),
    ("LOG_FORMAT", "xml", "'xml' is not one of line, json."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "'collector:4318' is not a URL;"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "x", "'x' is not a URL; write https://"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "'grpc' is not one of http/protobuf."),
    ("OTEL_TRACES_EXPORTER", "zipkin", "'zipkin' is not one of otlp, none."),
    ("OTEL_SDK_DISABLED", "maybe", "'maybe' is neither true nor false."),
    ("METRICS_TOKEN", "short", "write at least 16 letters, digits and signs, without"),
    ("METRICS_NETWORKS", "10.0.0.1/8", "'10.0.0.1/8' is not a network; write"),
    ("METRICS_PORT", "99999", "99999 is not a port; use 1 to 65535, or 0 for none."),
    ("METRICS_PORT", "9100", "it needs METRICS_TOKEN or METRICS_NETWORKS; set one"),
    ("USER_TOKENS_PER_MINUTE", "1.5", "'1.5' is not a whole number; 0 means no limit."),
]
# Any text will do; what `serve` makes of HOST and the password is tested there.
FREE = {
    "AUDIT_KEYS",
    "AWS_ACCESS_KEY_ID",  # both or none of them, with S3_BUCKET
    "AWS_SECRET_ACCESS_KEY",
    "HOST",
    "KEY_FOLDERS",
    "KEY_VARIABLES",
    "MAIL_FROM",
    "METRICS_HOST",
    "OIDC_CLIENT_ID",
    "OIDC_EMAIL_DOMAINS",
    "OIDC_LABEL",
    "PARLEY_ADMIN_PASSWORD",
    "S3_REGION",
    "SECRET_KEY",
    "SYSTEM_PROMPT",
    "TITLE_MODEL",
    "TRANSCRIPTION_MODEL",
}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """`load(PORT="1")`: the names of settings.py, run under this environment alone."""

    def load(**variables: str) -> dict[str, Any]:
        base = {"PARLEY_DATA": str(tmp_path / "data"), "PARLEY_READ_DOTENV": "false"}
        monkeypatch.setattr(os, "environ", {**base, **variables})
        return runpy.run_path(str(BASE / "project" / "settings.py"))

    return load


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("variable", "value", "line"), WRONG)
def test_a_wrong_value_stops_with_one_line_that_names_the_variable(
    load: Load, variable: str, value: str, line: str
):
    with pytest.raises(ConfigurationError) as stop:
        load(**{variable: value})
    text = str(stop.value)
    assert text.startswith(f"{variable}: {line}")
    assert text.endswith(".")
    assert "\n" not in text


def test_traces_are_refused_where_their_libraries_are_missing(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    address = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    assert load(**address)["TRACING"] is True
    assert load(**address, OTEL_SDK_DISABLED="true")["TRACING"] is False
    assert load(**address, OTEL_TRACES_EXPORTER="none")["TRACING"] is False
    assert load()["TRACING"] is False
    monkeypatch.setattr(monitoring, "LIBRARIES", ["not_installed.sdk"])
    # No command: an index may have another program under the name of the wheel.
    with pytest.raises(ConfigurationError, match="install the extra 'otel'"):
        load(**address)


def test_every_variable_has_a_wrong_value_above_or_takes_any_text(load: Load):
    names = load()["env"].names
    own = {name for name in names if not is_of_a_provider(name)}
    assert own == FREE | {name for name, *_ in WRONG if not is_of_a_provider(name)}


def is_of_a_provider(name: str) -> bool:
    is_switch = name.startswith("ENABLE_") and name != "ENABLE_DEMO"
    hosts = all_providers().values()
    return is_switch or any(name in host.variables() for host in hosts)


@pytest.mark.parametrize("variable", ["PORT", "DEBUG", "LOG_LEVEL", "LLM_PROVIDER"])
def test_an_empty_value_counts_as_none(load: Load, variable: str):
    assert load(**{variable: ""})["PORT"] == 8000


def test_values_are_read_as_what_they_mean(load: Load):
    settings = load(
        PORT=" 8123 ",
        DEBUG="Yes",
        ALLOWED_HOSTS="a.org, .b.org,[::1],*",
        LLM_IDLE_TIMEOUT="1.5",
        LLM_TEMPERATURE="0",
        LOG_LEVEL="warning",
        SYSTEM_PROMPT="$ is the currency",
    )
    assert settings["PORT"] == 8123
    assert settings["DEBUG"] is True
    assert settings["ALLOWED_HOSTS"] == ["a.org", ".b.org", "[::1]", "*"]
    assert settings["LLM_IDLE_TIMEOUT"] == 1.5
    assert settings["LLM_TEMPERATURE"] == 0
    assert settings["LOG_LEVEL"] == "WARNING"
    assert settings["SYSTEM_PROMPT"] == "$ is the currency"


def test_a_wrong_key_is_not_shown(load: Load):
    with pytest.raises(ConfigurationError) as stop:
        load(GROQ_API_KEY="gsk-planted secret")
    assert "planted" not in str(stop.value)


def test_the_server_reaches_itself_where_it_listens(load: Load):
    assert load(HOST="0.0.0.0", PORT="9000")["SELF_URL"] == "http://127.0.0.1:9000"


# Files in the data folder


def test_secrets_are_made_once_and_for_our_eyes_only(load: Load, tmp_path: Path):
    first, second = load(), load()
    assert first["SECRET_KEY"] == second["SECRET_KEY"]
    assert first["ENCRYPTION_KEYS"] == second["ENCRYPTION_KEYS"]
    modes = {path.name: mode_of(path) for path in (tmp_path / "data").iterdir()}
    assert modes == {
        "secret_key": 0o600,
        "encryption_keys": 0o600,
        "parley.sqlite3": 0o600,
    }
    assert mode_of(tmp_path / "data") == 0o700


def test_secrets_of_the_environment_leave_no_file(load: Load, tmp_path: Path):
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    settings = load(SECRET_KEY="s" * 50, ENCRYPTION_KEYS=",".join(keys))
    assert settings["SECRET_KEY"] == "s" * 50
    assert settings["ENCRYPTION_KEYS"] == keys
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["parley.sqlite3"]


def test_modes_loosened_by_a_backup_are_mended(load: Load, tmp_path: Path):
    load()
    for path in (tmp_path / "data").iterdir():
        path.chmod(0o644)
    load()
    assert {mode_of(path) for path in (tmp_path / "data").iterdir()} == {0o600}


def test_a_folder_made_for_us_is_closed_to_others(load: Load, tmp_path: Path):
    (tmp_path / "data").mkdir(mode=0o755)
    load()
    assert mode_of(tmp_path / "data") == 0o700


def test_a_shared_folder_keeps_its_mode(load: Load, tmp_path: Path):
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "theirs").touch()
    load()
    assert mode_of(tmp_path / "data") == 0o755


@pytest.mark.parametrize("name", ["secret_key", "encryption_keys"])
def test_an_empty_secret_stops_the_start(load: Load, tmp_path: Path, name: str):
    load()
    (tmp_path / "data" / name).write_text("")
    with pytest.raises(ConfigurationError, match=rf"^PARLEY_DATA: .*/{name} is empty"):
        load()


def test_a_data_folder_with_odd_letters_is_taken_as_it_is(load: Load, tmp_path: Path):
    odd = tmp_path / "c++ 100%20 #1?"
    database = load(PARLEY_DATA=str(odd))["DATABASES"]["default"]
    assert Path(database["NAME"]) == odd / "parley.sqlite3"


def test_a_database_elsewhere_is_private_too(load: Load, tmp_path: Path):
    load(DATABASE_URL=f"sqlite:///{tmp_path / 'other.sqlite3'}")
    assert mode_of(tmp_path / "other.sqlite3") == 0o600
