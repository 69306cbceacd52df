"""Settings. Each environment variable is read here once; docs/settings.md lists all."""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec

from project.environment import api_settings
from project.environment.added_apps import (
    find_all_providers,
    list_app_entries,
    read_added_apps,
)
from project.environment.address import Address
from project.environment.file_storage import read_file_storage
from project.environment.locations import find_locations
from project.environment.log_settings import log_settings
from project.environment.monitoring import read_monitoring, read_tracing
from project.environment.provider_accounts import read_accounts, read_disabled_providers
from project.environment.scaled import channel_layer, is_postgres
from project.environment.single_sign_on import read_single_sign_on
from project.environment.variables import Environment

LOCATIONS = find_locations()

env = Environment(LOCATIONS.base)

# The data folder and its secrets

DATA = env.data
SECRET_KEY = env.secret_key
SECRET_KEY_IS_STORED = env.secret_key_is_stored
ENCRYPTION_KEYS = env.encryption_keys
KEYS_ARE_STORED = env.keys_are_stored

# Address

HOST = env.text("HOST", "127.0.0.1")
PORT = env.port("PORT", 8000)
#: Gateway processes beside the one that runs turns, and the port that they serve;
#: 0: the one after the server's.
GATEWAY_WORKERS = env.processes("GATEWAY_WORKERS")
GATEWAY_PORT = env.port("GATEWAY_PORT", PORT) if env.text("GATEWAY_PORT", "") else 0
SELF_URL = Address(HOST, PORT).url  # where the demo provider is requested
DEBUG = env.flag("DEBUG", False)
ALLOWED_HOSTS = env.hosts("ALLOWED_HOSTS", Address(HOST, PORT).names())
CSRF_TRUSTED_ORIGINS = env.origins("CSRF_TRUSTED_ORIGINS")
BEHIND_HTTPS = env.flag("BEHIND_HTTPS", False)

# Django

INSTALLED_APPS = [
    "project",  # first: its commands override Django's and Daphne's
    "project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",  # a page of allauth.mfa uses it
    "channels",
    "rest_framework",
    "drf_spectacular",
    "csp",
    "axes",
    "conversations.audit",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "project.accounts",  # before llm, whose command `rotate_keys` it extends
    "llm",
    "tools",
    "conversations",
]
ADDED_APPS = read_added_apps(env, "PARLEY_APPS")
INSTALLED_APPS += list_app_entries(ADDED_APPS, INSTALLED_APPS)

if find_spec("onelogin"):  # the extra `saml`
    INSTALLED_APPS.insert(
        INSTALLED_APPS.index("project.accounts"), "allauth.socialaccount.providers.saml"
    )

MIDDLEWARE = [
    "project.middleware.set_headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "project.middleware.answer_supervisors",
    "project.middleware.note_sessions",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "project.middleware.note_requests",
    "conversations.access.legal_holds.LegalHoldMiddleware",
    "conversations.access.concurrent_deletion.DeletedRowMiddleware",
    "project.middleware.RequiredSteps",
    "project.middleware.UserLanguageMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "axes.middleware.AxesMiddleware",
    "project.middleware.explain_addresses_of_forms",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [LOCATIONS.files / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "conversations.pages.maintenance.banner",
                "conversations.pages.notices.banners.announcements",
            ]
        },
    }
]

DATABASES = {"default": env.database("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
#: Whether web processes and workers share PostgreSQL; else SQLite, with one
#: process that runs turns.
IS_SCALED = is_postgres(env.text("DATABASE_URL", ""))
#: If set, these processes exchange events through Redis, else through PostgreSQL.
REDIS_URL = env.redis("REDIS_URL")
CHANNEL_LAYERS = {"default": channel_layer(REDIS_URL, is_scaled=IS_SCALED)}
if IS_SCALED:
    # For its table of periodic jobs (conversations/engine/maintenance/schedule.py).
    INSTALLED_APPS += ["procrastinate.contrib.django"]
    PROCRASTINATE_AUTODISCOVER_MODULE_NAME = ""  # there are no tasks to find

_DJANGO_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_DJANGO_VALIDATORS}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_DJANGO_VALIDATORS}.MinimumLengthValidator"},
    {"NAME": f"{_DJANGO_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": "project.accounts.service_words_validator.ServiceWordsValidator"},
    # Accepts every password: it records changes.
    {"NAME": "project.accounts.models.password_change.ChangeRecorder"},
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
if find_spec("ldap3"):  # the extra `ldap`
    AUTHENTICATION_BACKENDS.append(
        "project.accounts.identities.directory_backend.DirectoryBackend"
    )
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "chat"
LOGOUT_REDIRECT_URL = "login"

# Accounts, see docs/accounts.md

SESSION_ENGINE = "conversations.access.session_store"
#: Hours after the sign-in when a session ends, however much it is used.
SESSION_HOURS = env.count("SESSION_HOURS", 14 * 24)
SESSION_COOKIE_AGE = SESSION_HOURS * 3600
#: Minutes without use after which it ends; 0: no limit.
SESSION_IDLE_MINUTES = env.idle_minutes("SESSION_IDLE_MINUTES")
#: Seconds for which a sign-in, or a proof asked for, allows dangerous acts.
REAUTHENTICATE_AFTER = env.count("REAUTHENTICATE_AFTER", 900)
#: Whether everybody needs a second factor.
SECOND_FACTOR_FOR_ALL = env.flag("SECOND_FACTOR_FOR_ALL", False)
#: Whether staff need one before the admin opens.
STAFF_SECOND_FACTOR = env.flag("STAFF_SECOND_FACTOR", False)

ACCOUNT_ADAPTER = "project.accounts.adapters.account.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # a changed address is verified all the same
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Parley: "
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = REAUTHENTICATE_AFTER
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if BEHIND_HTTPS else "http"
ACCOUNT_FORMS = {
    "reset_password": "project.accounts.forms.OwnPasswordResetForm",
}
SOCIALACCOUNT_ADAPTER = "project.accounts.adapters.identity.IdentityAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"  # unverified addresses are not stored
SOCIALACCOUNT_STORE_TOKENS = False
#: The identity provider of the OIDC_ variables, which becomes a row at the start.
SINGLE_SIGN_ON = read_single_sign_on(env)
SCIM_SERVICE_PROVIDER = api_settings.SCIM_SERVICE_PROVIDER
#: django-allauth counts attempts at second factors and marks used codes in the cache,
#: so all processes share it and a restart does not empty it.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "conversations_cacheentry",
        "OPTIONS": {"MAX_ENTRIES": 100_000},  # beyond it counts would be dropped early
    }
}
MFA_ADAPTER = "project.accounts.adapters.second_factor.SecondFactorAdapter"
MFA_FORMS = {
    "authenticate_webauthn": "project.accounts.passkey_forms.AuthenticateForm",
    "login_webauthn": "project.accounts.passkey_forms.PasskeySignInForm",
    "reauthenticate_webauthn": "project.accounts.passkey_forms.ConfirmForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True  # many accounts have no e-mail address
MFA_TOTP_ISSUER = "Parley"
MFA_TOTP_TOLERANCE = 0  # a code counts for its own 30 seconds
#: Browsers allow passkeys over HTTPS and, for trying out, at localhost over HTTP.
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not BEHIND_HTTPS

# Mail

MAIL = env.mail()
SENDS_MAIL = MAIL is not None  # else mails are only shown in the server's output
if MAIL is None:
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
else:
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST, EMAIL_PORT = MAIL.host, MAIL.port
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL.user, MAIL.password
    EMAIL_USE_TLS, EMAIL_USE_SSL = MAIL.uses_starttls, MAIL.uses_tls
EMAIL_TIMEOUT = 10  # seconds
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text("MAIL_FROM", "parley@localhost")

# Languages and time

LANGUAGE_CODE = "en"
LANGUAGES = [  # each named in itself, so that everybody finds their own
    ("en", "English"),
    ("de", "Deutsch"),
    ("fr", "Français"),
    ("es", "Español"),
    ("zh-hans", "简体中文"),
]
LOCALE_PATHS = [LOCATIONS.project / "locale"]
TIME_ZONE = env.time_zone("TIME_ZONE", "UTC")
USE_TZ = True

# Files

STATIC_URL = "static/"
STATICFILES_DIRS = [LOCATIONS.files / "static"]
WHITENOISE_USE_FINDERS = True  # makes collectstatic unnecessary
MEDIA_ROOT = DATA / "media"
STORAGES = {
    "default": read_file_storage(env),  # of uploaded files
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
CLAMD_ADDRESS = env.scanner("CLAMD_ADDRESS")  # of the virus scanner
ISOLATED_HIDDEN_PATHS = [DATA, LOCATIONS.base / ".env"]  # from isolated tools
ISOLATED_REQUIRE_SANDBOX = env.flag("ISOLATED_REQUIRE_SANDBOX", False)

# Safety

# Browsers accept a cookie with this prefix from this host only, and over HTTPS.
_COOKIE_PREFIX = "__Host-" if BEHIND_HTTPS else ""
SESSION_COOKIE_NAME = f"{_COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{_COOKIE_PREFIX}csrftoken"
BROWSER_COOKIE_NAME = f"{_COOKIE_PREFIX}parley_browser"  # see sign_in_attempts
CSRF_FAILURE_VIEW = "conversations.pages.unsent.views.csrf_failure"
MESSAGE_COOKIE_NAME = f"{_COOKIE_PREFIX}messages"
MESSAGE_STORAGE = "project.server.flash_messages.MessageStorage"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True  # the form has the token
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_HTTPS
_HSTS_SUBDOMAINS = env.flag("HSTS_SUBDOMAINS", True)
if BEHIND_HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # probes use plain HTTP
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = _HSTS_SUBDOMAINS
    # A place in the browsers' preload list is for the owner of the domain to ask for.
    SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "object-src": ["'none'"],
        "frame-src": ["'self'"],  # sandboxed: diagrams and artifacts
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 * 1024 * 1024  # bytes of one request's body

# Sign-in attempts, see conversations/access/sign_in_attempts.py

AXES_HANDLER = "conversations.access.sign_in_attempts.AttemptHandler"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5  # the fifth failure delays the next attempt
AXES_COOLOFF_TIME = timedelta(days=1)  # after which failures are forgotten
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_ENABLE_ACCESS_FAILURE_LOG = True
AXES_CLIENT_IP_CALLABLE = "conversations.access.sign_in_attempts.sign_in_address"
AXES_USERNAME_CALLABLE = "conversations.access.sign_in_attempts.axes_username"
AXES_LOCKOUT_CALLABLE = "conversations.access.sign_in_attempts.refusal"
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "csrfmiddlewaretoken"),
    *("old_password", "new_password1", "new_password2"),  # on the account page
]
AXES_ENABLE_ADMIN = False  # conversations/admin/sign_in_attempts.py replaces it
AXES_VERBOSE = False

# The audit log, see docs/audit.md

#: Keys of the hash chain, newest first: the first one signs, all verify.
AUDIT_KEYS = env.words("AUDIT_KEYS", []) or [SECRET_KEY]
AUDIT_ADDRESS_CALLABLE = "conversations.access.sign_in_attempts.sign_in_address"
AUDIT_RETENTION_DAYS = env.days("AUDIT_RETENTION_DAYS", 0)  # 0: never removed
#: Whether staff say why before they read what others have written.
READING_NEEDS_REASON = env.flag("READING_NEEDS_REASON", True)
#: Where each event goes as a line of JSON: udp://host:port or a path.
AUDIT_SYSLOG = env.syslog("AUDIT_SYSLOG")

# REST

REST_FRAMEWORK = api_settings.REST_FRAMEWORK
SPECTACULAR_SETTINGS = api_settings.SPECTACULAR_SETTINGS

# The first start

ADMIN_PASSWORD = env.text("PARLEY_ADMIN_PASSWORD", "")  # "": a random one
ENABLE_DEMO = env.flag("ENABLE_DEMO", True)
_PROVIDERS = find_all_providers(ADDED_APPS, "PARLEY_APPS")
DISABLED_PROVIDERS = read_disabled_providers(env, _PROVIDERS)
ACCOUNTS = read_accounts(env, _PROVIDERS, DISABLED_PROVIDERS)
LLM_TEMPERATURE = env.number("LLM_TEMPERATURE", 0, 2)

# Models and turns

SYSTEM_PROMPT = env.text("SYSTEM_PROMPT", "")
#: Whether a model writes the titles of conversations; else they are the first words.
AUTO_TITLES = env.flag("AUTO_TITLES", True)
TRANSCRIPTION_MODEL = env.text("TRANSCRIPTION_MODEL", "")  # public name; "": none
DICTATION_MAX_SIZE = env.count("DICTATION_MAX_SIZE", 10_000_000)  # bytes
DICTATION_MAX_SECONDS = env.count("DICTATION_MAX_SECONDS", 300)
TITLE_MODEL = env.text("TITLE_MODEL", "")  # public name; "": the conversation's model

LLM_CONNECT_TIMEOUT = env.seconds("LLM_CONNECT_TIMEOUT", 10)
LLM_FIRST_BYTE_TIMEOUT = env.seconds("LLM_FIRST_BYTE_TIMEOUT", 120)
LLM_IDLE_TIMEOUT = env.seconds("LLM_IDLE_TIMEOUT", 120)  # between two chunks
LLM_TOTAL_TIMEOUT = env.seconds("LLM_TOTAL_TIMEOUT", 1800)
LLM_MAX_CONNECTIONS = env.count("LLM_MAX_CONNECTIONS", 2000)
LLM_CONNECTION_WAIT = env.seconds("LLM_CONNECTION_WAIT", 2)  # for a free connection
LLM_KEY_WAIT = env.seconds("LLM_KEY_WAIT", 2)  # for a key, while all are resting

#: Environment variables and folders that a provider's key may name as its place.
KEY_VARIABLES = env.words("KEY_VARIABLES", ["*_API_KEY"])
KEY_FOLDERS = env.words("KEY_FOLDERS", ["/run/secrets"])

#: Calls that may correct a structured answer that does not fit its schema.
STRUCTURED_OUTPUT_CORRECTIONS = env.limit("STRUCTURED_OUTPUT_CORRECTIONS", 1)

TURN_CONCURRENCY = env.count("TURN_CONCURRENCY", 1000)  # concurrent turns of a process
# Limits of a process above which it refuses new work for some seconds; 0: no limit.
MAX_LAG = env.number("MAX_LAG", 0, 60, 1)  # mean seconds of the event loop's delay
MAX_START_WAIT = env.number("MAX_START_WAIT", 0, 3600, 15)  # seconds to a turn's start
MAX_WAITING_TURNS = env.limit("MAX_WAITING_TURNS", 10_000)
MAX_CONNECTIONS = env.limit("MAX_CONNECTIONS", 10_000)  # of programs and pages
MAX_MEMORY = env.limit("MAX_MEMORY", 0)  # megabytes
TURN_MAX_STEPS = env.count("TURN_MAX_STEPS", 10)
TURN_DEADLINE = env.seconds("TURN_DEADLINE", 3600)
#: Turns that a message of a user may cause, its own included.
MAX_TURNS_PER_MESSAGE = env.count("MAX_TURNS_PER_MESSAGE", 10)
#: USD for these turns; 0: no limit.
MAX_COST_PER_MESSAGE = env.number("MAX_COST_PER_MESSAGE", 0, 1e6, 10)
TURN_LEASE = 6.0  # seconds until a claim expires without renewal
TURN_MAX_CLAIMS = 5
TOOL_TIMEOUT = env.seconds("TOOL_TIMEOUT", 30)
BACKGROUND_TOOL_TIMEOUT = env.seconds("BACKGROUND_TOOL_TIMEOUT", 24 * 3600)
MAX_BACKGROUND_CALLS = env.count("MAX_BACKGROUND_CALLS", 100)  # of one process
QUESTION_EXPIRES = env.seconds("QUESTION_EXPIRES", 3 * 24 * 3600)
MCP_STDIO_SERVERS = env.mcp_servers("MCP_STDIO_SERVERS")  # path of a JSON file
OUTBOUND_HOSTS = env.outbound_hosts("OUTBOUND_HOSTS")  # hosts that may be reached
PUBLIC_URL = env.url("PUBLIC_URL")  # address of this server on the internet
MAX_INPUT_SIZE = env.count("MAX_INPUT_SIZE", 1_000_000)  # bytes of one message
MAX_ANSWER_SIZE = env.count("MAX_ANSWER_SIZE", 8_000_000)  # bytes of a turn's output
#: Percent of the room for a prompt; above it earlier messages are summarised. 0: never.
COMPACTION_THRESHOLD: float = env.number("COMPACTION_THRESHOLD", 0, 95, 75) or 0
#: Percent of the memory for the history of conversations that are in use.
HISTORY_CACHE_SHARE: float = env.number("HISTORY_CACHE_SHARE", 0, 50, 5) or 0
DRAIN_GRACE = env.seconds("DRAIN_GRACE", 10)
MAX_UPLOAD_SIZE = env.count("MAX_UPLOAD_SIZE", 20_000_000)  # bytes of one file
MAX_UPLOAD_COUNT = env.count("MAX_UPLOAD_COUNT", 10)  # files of one message
IMPORT_MAX_SIZE = env.count("IMPORT_MAX_SIZE", 200_000_000)  # bytes of one import
#: Bytes of the body of any request, checked while it is received.
MAX_REQUEST_SIZE = max(
    DATA_UPLOAD_MAX_MEMORY_SIZE,
    MAX_UPLOAD_SIZE * MAX_UPLOAD_COUNT + 1_000_000,  # and the other form fields
    IMPORT_MAX_SIZE + 1_000_000,
)
UPLOAD_QUOTA = env.count("UPLOAD_QUOTA", 1_000_000_000)  # bytes of all files of a user
#: Bytes of a WebSocket message. JSON may escape a byte of text as six (\u00xx). The
#: application checks MAX_INPUT_SIZE itself, so that the user gets an error message.
MAX_WEBSOCKET_MESSAGE = 6 * MAX_INPUT_SIZE
DAPHNE_WEBSOCKET_MAX_MESSAGE_SIZE = MAX_WEBSOCKET_MESSAGE
DAPHNE_WEBSOCKET_MAX_FRAME_SIZE = MAX_WEBSOCKET_MESSAGE
#: Open WebSockets and streams of a user, and of a token, in each process; 0: no limit.
USER_CONNECTIONS = env.limit("USER_CONNECTIONS", 200)
TOKEN_CONNECTIONS = env.limit("TOKEN_CONNECTIONS", 1000)
# Limits per minute for a signed-in user; 0: no limit. Access tokens have their own.
USER_REQUESTS_PER_MINUTE = env.limit("USER_REQUESTS_PER_MINUTE", 600)
USER_TOKENS_PER_MINUTE = env.limit("USER_TOKENS_PER_MINUTE", 2_000_000)
USER_BYTES_PER_MINUTE = env.limit("USER_BYTES_PER_MINUTE", 200_000_000)
#: The widest audience of links to conversations; see conversations/access/sharing.py.
_AUDIENCES = ["off", "group", "signed_in", "public"]
SHARE_LINKS = env.choice("SHARE_LINKS", "signed_in", _AUDIENCES)
DELETED_RETENTION_DAYS = env.days("DELETED_RETENTION_DAYS", 30)  # 0: never delete
RETENTION_DAYS = env.days("RETENTION_DAYS", 0)  # of model and tool calls; 0: no limit
#: Of stored requests to providers and their responses, for staff.
EXCHANGE_RETENTION_DAYS = env.days("EXCHANGE_RETENTION_DAYS", 7)  # 0: no limit
EXCHANGE_MAX_SIZE = env.count("EXCHANGE_MAX_SIZE", 262_144)  # bytes of each body
SHOW_COSTS = env.flag("SHOW_COSTS", True)  # to users, beside their answers
SYNC_MODELS = env.flag("SYNC_MODELS", False)  # fetch providers' model lists daily

#: Who may read /metrics, and where a worker serves it; see docs/monitoring.md.
MONITORING = read_monitoring(env)
#: Whether traces are sent; the SDK of OpenTelemetry reads its variables itself.
TRACING = read_tracing(env)

# Logging

LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"])
LOG_FORMAT = env.choice("LOG_FORMAT", "line", ["line", "json"])
LOGGING = log_settings(level=LOG_LEVEL, format=LOG_FORMAT, audit_address=AUDIT_SYSLOG)
ACCESS_LOG = env.flag("ACCESS_LOG", False)
